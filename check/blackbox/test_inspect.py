"""`flowstone inspect`: what it tells is what a server then finds, and it changes nothing."""

import json
import os
import random
import subprocess
import threading

import pytest

from servers import MIB, PATIENCE_S, Flowstone, wait_until
from test_restart import file_digest, store, value_of

pytestmark = pytest.mark.flowstone

SUPERBLOCKS = (0, MIB // 2)


def run(*arguments):
    """Runs `flowstone inspect` to its end."""
    return subprocess.run(
        [Flowstone.binary(), "inspect", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def inspect(path, *options, status=0):
    """The JSON object of an inspection that ends with `status` and leaves image and journal alone."""
    done = run(path, "--json", *options)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1, "one object on one line"
    return json.loads(done.stdout)


def untouched(path, *options, status=0):
    """As `inspect`, of an image that nobody uses: every byte and the time of change must stay."""
    files = [file for file in (path, journal_of(path)) if file.exists()]
    before = [(file_digest(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files]
    names = sorted(path.parent.iterdir())
    found = inspect(path, *options, status=status)
    assert [(file_digest(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files] == before
    assert sorted(path.parent.iterdir()) == names, "nothing may be created"
    assert not found["live"]
    return found


def refused(*arguments):
    """The line of a refusal."""
    done = run(*arguments)
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("flowstone: ") and "panicked" not in line
    return line


def journal_of(flash):
    return flash.with_name(flash.name + ".journal")


def items_of(prefix, count, length=1000):
    return {b"%s.%d" % (prefix, n): (value_of(b"%s.%d" % (prefix, n), length), 0, 0) for n in range(count)}


def stopped(make_server, count=3000):
    """What an orderly stop leaves of `count` items."""
    server = make_server().start()
    store(server, items_of(b"item", count))
    assert server.terminate() == 0
    return server


def test_after_an_orderly_stop(make_server):
    server = stopped(make_server)
    found = untouched(server.flash, "--verify")
    assert found["sound"] and not found["changing"]
    assert found["recovery"]["outcome"] == "warm" and found["recovery"]["orderly"]
    assert found["recovery"]["items"] == found["items"]["alive"] == 3000
    assert found["verified"]["items_sound"] == 3000 and found["verified"]["items_corrupt"] == 0
    assert found["verified"]["dead_corrupt"] == 0
    assert found["superblock"]["clean"]
    server.start()
    assert int(server.stats(b"flash")["recovery_items"]) == 3000


def test_after_a_kill_it_tells_what_the_next_start_finds(make_server):
    server = make_server().start()
    store(server, items_of(b"old", 20_000))
    server.spill()
    keys = list(items_of(b"old", 20_000))
    server.ask(b"".join(b"delete %s\r\n" % key for key in keys[::7]))
    store(server, items_of(b"old", 5000, length=300))
    server.spill()
    server.kill()
    found = untouched(server.flash, "--verify")
    assert found["sound"] and not found["superblock"]["clean"]
    assert found["recovery"] == {
        "outcome": "warm",
        "orderly": False,
        "items": found["items"]["alive"],
        "bytes": found["items"]["alive_bytes"],
    }
    assert found["items"]["displaced"] + found["journal"]["records"]["dead"] > 0
    server.start()
    stats = server.stats(b"flash")
    assert found["items"]["alive"] == int(stats["recovery_items"]) > 10_000
    assert found["segments"]["living"]["count"] == int(stats["recovery_segments"])
    assert found["geometry"]["segment_bytes"] == int(stats["segment_bytes"])


def test_shape_of_the_object(make_server):
    server = stopped(make_server)
    found = untouched(server.flash)
    assert found["path"] == str(server.flash)
    assert found["format"] == 7 and found["placement"] == "exact" and len(found["image"]) == 16
    geometry = found["geometry"]
    assert geometry["image_bytes"] == geometry["device_bytes"] == 512 * MIB
    assert geometry["channels"] == 1 and geometry["partitions"] == 64
    superblock = found["superblock"]
    generations = [copy["generation"] for copy in superblock["copies"] if copy["state"] == "valid"]
    assert superblock["generation"] == max(generations) and len(generations) == 2
    assert superblock["run"] == 1
    journal = found["journal"]
    assert journal["state"] == "usable" and journal["problem"] is None
    assert journal["path"] == str(journal_of(server.flash))
    kinds = {"dead", "segment_dead", "key_dead", "key_located", "entry_lost", "retired", "cutoff", "flush_at"}
    assert set(journal["records"]) == kinds
    checkpoint = found["checkpoint"]
    assert checkpoint["readable"] and len(checkpoint["segments"]) == found["segments"]["checkpoint"]["count"] == 1
    assert checkpoint["segments_listed"] == found["segments"]["living"]["count"]
    assert sum(state["count"] for state in found["segments"].values()) == geometry["segments"]
    for state in found["segments"].values():
        assert state["bytes"] == state["count"] * geometry["segment_bytes"]
    items = found["items"]
    space = items["alive_bytes"] + items["dead_bytes"] + items["summary_bytes"] + items["unused_bytes"]
    assert space == found["segments"]["living"]["bytes"]
    assert found["verified"] is None
    assert found["flaws"] == {"count": 0, "first": []}


def test_table_for_people(make_server):
    server = stopped(make_server)
    done = run(server.flash, "--verify")
    assert done.returncode == 0 and done.stderr == ""
    for words in ("recovery", "would find 3,000 items", "living", "checkpoint", "journal", "items sound", "free"):
        assert words in done.stdout, words
    assert "in use:" not in done.stdout and "DAMAGED" not in done.stdout
    assert all(len(line) <= 140 for line in done.stdout.splitlines() if str(server.flash) not in line)


def test_beside_a_server_at_work(make_server):
    """A flash so small that it is written again and again, and never a word of damage."""
    server = make_server(flash_size="128MiB").start()
    stop = threading.Event()

    def write(thread):
        rng = random.Random(thread)
        while not stop.is_set():
            keys = [b"busy.%d" % rng.randrange(60_000) for _ in range(200)]
            with server.connect() as connection:
                value = value_of(keys[0], 3000)
                connection.roundtrip(b"".join(b"set %s 0 0 3000 noreply\r\n%s\r\n" % (key, value) for key in keys))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    try:
        reclaimed = int(server.stats(b"reclaim").get("segments_reclaimed", 0))
        for _ in range(15):
            found = inspect(server.flash, "--verify")
            assert found["live"] and found["in_use"] and found["sound"], found
            assert found["flaws"]["count"] == 0
        assert "in use:" in run(server.flash).stdout
        wait_until(lambda: int(server.stats(b"reclaim").get("segments_reclaimed", 1)) > reclaimed, "reclaim")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert server.alive()
    # It was not disturbed: it stops, and starts, as ever.
    assert server.terminate() == 0
    alive = untouched(server.flash, "--verify")["items"]["alive"]
    server.start()
    # On a full flash the oldest segments make room before they are read.
    assert alive * 9 // 10 < int(server.stats(b"flash")["recovery_items"]) <= alive


def test_beside_an_idle_server(make_server):
    server = make_server().start()
    server.ask(b"set a 0 0 1\r\nx\r\n")
    found = inspect(server.flash)
    assert found["live"] and found["in_use"] and found["sound"]
    assert found["items"]["alive"] == 0, "it is in memory"


def test_rotten_bytes_are_found(make_server):
    server = stopped(make_server)
    found = untouched(server.flash)
    rng = random.Random(11)
    data = server.flash.read_bytes()
    marks = []
    for n in rng.sample(range(3000), 20):
        at = data.find(value_of(b"item.%d" % n, 1000))
        assert at > 0, "values lie in the file as they are"
        marks.append(at + rng.randrange(1000))
    with open(server.flash, "r+b") as file:
        for at in marks:
            file.seek(at)
            file.write(bytes([data[at] ^ 0x5A]))
    assert untouched(server.flash)["sound"], "items are read only to verify them"
    found = untouched(server.flash, "--verify", status=1)
    assert not found["sound"]
    assert found["verified"]["items_corrupt"] == found["flaws"]["count"] == 20
    assert found["verified"]["items_sound"] == 2980
    segment_bytes = found["geometry"]["segment_bytes"]
    told = sorted(MIB + flaw["segment"] * segment_bytes + flaw["offset"] for flaw in found["flaws"]["first"])
    for at, mark in zip(told, sorted(marks), strict=True):
        assert at < mark < at + 1100
    done = run(server.flash, "--verify")
    assert done.returncode == 1 and done.stdout.count("DAMAGED") == 10 and "and 10 more" in done.stdout


@pytest.mark.parametrize(
    "damage, state",
    [("removed", "missing"), ("truncated", "other-size"), ("void", "void"), ("head", "damaged"), ("foreign", "foreign")],
)
def test_journal_that_cannot_be_trusted(make_server, damage, state):
    server = stopped(make_server)
    journal = journal_of(server.flash)
    if damage == "removed":
        journal.unlink()
    elif damage == "truncated":
        os.truncate(journal, os.path.getsize(journal) // 4096 * 3 // 4 * 4096)
    else:
        at, word = {"void": (72, b"\1"), "head": (24, b"\xff"), "foreign": (0, b"accounts")}[damage]
        with open(journal, "r+b") as file:
            file.seek(at)
            file.write(word)
    found = untouched(server.flash, status=1)
    assert found["journal"]["state"] == state and found["journal"]["problem"]
    assert found["recovery"]["outcome"] == ("refused" if damage == "foreign" else "empty")
    assert found["segments"]["distrusted"]["count"] > 0 and found["items"]["alive"] == 0
    assert found["recovery"]["problem"] in run(server.flash).stdout


def test_journal_elsewhere(make_server, tmp_path):
    server = stopped(make_server)
    elsewhere = tmp_path / "elsewhere.journal"
    journal_of(server.flash).rename(elsewhere)
    found = untouched(server.flash, "--journal", elsewhere)
    assert found["sound"] and found["journal"]["path"] == str(elsewhere)
    assert "nowhere" in refused(server.flash, "--journal", tmp_path / "nowhere")


def test_damaged_copy_of_the_superblock(make_server):
    server = stopped(make_server)
    with open(server.flash, "r+b") as file:
        file.seek(SUPERBLOCKS[0] + 2000)
        file.write(b"rot")
    found = untouched(server.flash)
    assert sorted(copy["state"] for copy in found["superblock"]["copies"]) == ["damaged", "valid"]
    with open(server.flash, "r+b") as file:
        file.seek(SUPERBLOCKS[1] + 2000)
        file.write(b"rot")
    assert "superblock" in refused(server.flash)


def shown(number):
    """The ways to write eight bytes: as numbers, signed or not, of either order, and one by one."""
    for order in ("little", "big"):
        value = int.from_bytes(number, order)
        yield from (str(value), str(int.from_bytes(number, order, signed=True)), f"{value:x}", f"{value:X}")
    yield from (separator.join(form % byte for byte in number) for form in ("%d", "%02x") for separator in (",", ", ", " ", ":"))


def test_the_secret_seed_of_the_key_hash_is_shown_nowhere(make_server):
    """Who knows it can make keys of one hash."""
    server = make_server(options=["-vv"]).start()
    store(server, items_of(b"item", 3000))
    said = [str(server.stats(group)) for group in (b"", b"settings", b"flash", b"items", b"slabs", b"sizes", b"conns")]
    said.append(repr(server.ask(b"flowstone sync\r\nme item.1\r\nmg item.1 t f s c k h l O1\r\nlru_crawler metadump all\r\n")))
    server.kill()
    server.start()
    assert server.terminate() == 0
    head = server.flash.read_bytes()[:4096]
    image_id, seed = head[32:40], head[4034:4042]
    options = (("--json",), ("--verify",), ("--json", "--verify"), ())
    said += [run(server.flash, *option).stdout for option in options]
    for at in SUPERBLOCKS:
        with open(server.flash, "r+b") as file:
            file.seek(at + 2000)
            file.write(b"rot")
        said += [str(run(server.flash, *option)) for option in options]
    server.launch()
    assert server.wait() == 2
    said.append(server.log())
    text = "\n".join(said)
    assert any(form in text for form in shown(image_id)), "the seed would not be found either"
    assert [form for form in shown(seed) if form in text] == []


def test_what_is_no_image(make_server, tmp_path):
    server = stopped(make_server, count=10)
    absent = tmp_path / "absent.flash"
    assert f"{absent}: no such file" in refused(absent)
    assert not absent.exists()
    assert "directory" in refused(tmp_path)
    assert "character device" in refused("/dev/null")
    photo = tmp_path / "holiday.jpg"
    photo.write_bytes(random.Random(1).randbytes(3 * MIB))
    assert "not a Flowstone image" in refused(photo)
    (tmp_path / "short").write_bytes(b"hello")
    assert "not a Flowstone image" in refused(tmp_path / "short")
    (tmp_path / "zeros").write_bytes(bytes(2 * MIB))
    assert "holds nothing" in refused(tmp_path / "zeros", "--json")
    head = bytearray(server.flash.read_bytes()[: 4 * MIB])
    (tmp_path / "part").write_bytes(head)
    assert "of an image of 512 MiB" in refused(tmp_path / "part")
    for at in SUPERBLOCKS:
        head[at + 8] = 77
    (tmp_path / "newer").write_bytes(head)
    line = refused(tmp_path / "newer")
    assert "format 77" in line and "format 7" in line
    assert "--nonsense" in refused(server.flash, "--nonsense")
    assert "PATH" in refused()


def test_image_that_may_only_be_read(make_server):
    server = stopped(make_server, count=100)
    for file in (server.flash, journal_of(server.flash)):
        file.chmod(0o444)
    assert untouched(server.flash, "--verify")["items"]["alive"] == 100
