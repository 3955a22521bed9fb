"""What outlives the process, and what must not."""

import hashlib
import mmap
import os
import random
import resource
import shutil
import signal
import subprocess
import threading
import time

import pytest

from servers import HOST, MIB, wait_until
from wire import Closed

pytestmark = pytest.mark.flowstone

ITEMS = 20_000
BATCH = 500


def value_of(key, length):
    """Bytes that no other key has."""
    digest = hashlib.sha256(key).digest()
    return (digest * (length // len(digest) + 1))[:length]


def mixed_items(seed):
    """Keys with value, client flags and exptime: mostly small, some of hundreds of KiB."""
    rng = random.Random(seed)
    items = {}
    for n in range(ITEMS):
        key = b"restart.%d.%s" % (n, b"k" * rng.choice([0, 0, 10, 200]))
        length = rng.choice([0, 1, 30, 300, 300, 300, 1000, 4000, 5000])
        if n % 1000 == 0:
            length = rng.randrange(100_000, 900_000)
        items[key] = (value_of(key, length), rng.choice([0, 1, 2**32 - 1]), rng.choice([0, 0, 5000, 86400]))
    return items


def store(server, items):
    with server.connect() as connection:
        keys = list(items)
        for first in range(0, len(keys), BATCH):
            batch = []
            for key in keys[first : first + BATCH]:
                value, flags, exptime = items[key]
                batch.append(b"set %s %d %d %d\r\n%s\r\n" % (key, flags, exptime, len(value), value))
            answer = connection.roundtrip(b"".join(batch))
            assert answer == b"STORED\r\n" * len(batch)


def snapshot(server, keys):
    """For each key found: value, flags, CAS, seconds left."""
    found = {}
    keys = list(keys)
    with server.connect() as connection:
        for first in range(0, len(keys), BATCH):
            batch = keys[first : first + BATCH]
            connection.send(b"".join(b"mg %s v k f c t u\r\n" % key for key in batch))
            for key in batch:
                line = connection.read_line().split()
                if line[0] == b"EN":
                    continue
                assert line[0] == b"VA" and line[2] == b"k" + key, line
                value = connection.read_exactly(int(line[1]) + 2)[:-2]
                found[key] = (value, int(line[3][1:]), int(line[4][1:]), int(line[5][1:]))
    return found


def assert_same_snapshot(after, before, seconds):
    """Everything equal, and the times left shorter by no more than has passed."""
    assert set(after) == set(before)
    wrong = [key for key in before if after[key][:3] != before[key][:3]]
    assert wrong == []
    for key, (_, _, _, left) in before.items():
        now_left = after[key][3]
        assert (left == -1) == (now_left == -1), key
        assert left == -1 or left - seconds - 2 <= now_left <= left + 1, (key, left, now_left)


def file_digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fails_to_start(server):
    """The server must end at once with status 2 and one line. Returns the line."""
    server.log_path.write_bytes(b"")
    server.launch()
    status = server.wait()
    lines = server.log().splitlines()
    assert status == 2, f"status {status}: {lines}"
    assert len(lines) == 1, lines
    assert "panicked" not in lines[0]
    return lines[0]


def test_a_restart_counts_the_same_bytes(make_server):
    server = make_server().start()
    for n in range(10):
        server.ask(b"set key%d 0 0 1000\r\n%s\r\n" % (n, bytes(1000)))
    before = int(server.stats()["bytes"])
    assert server.terminate() == 0
    server.start()
    after = int(server.stats()["bytes"])
    # Three lie in a page.
    assert before <= after <= 4 * 4096, (before, after)


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_orderly_stop_keeps_everything(make_server, sig):
    server = make_server().start()
    started = time.monotonic()
    items = mixed_items(seed=int(sig))
    store(server, items)
    keys = list(items)
    # What happened to items after they were stored must be remembered as well.
    changed = (
        b"delete %s\r\n" % keys[1] + b"touch %s 7777\r\n" % keys[2] + b"append %s 0 0 1\r\n!\r\n" % keys[3]
        + b"set counter 9 0 2\r\n41\r\nincr counter 1\r\n" + b"md %s I\r\n" % keys[4]
    )  # fmt: skip
    assert server.ask(changed) == b"DELETED\r\nTOUCHED\r\nSTORED\r\nSTORED\r\n42\r\nHD\r\n"
    keys += [b"counter"]
    before = snapshot(server, [key for key in keys if key != keys[4]])
    assert len(before) == ITEMS - 1
    version = max(cas for _, _, cas, _ in before.values())

    assert server.terminate(sig) == 0
    server.start()
    after = snapshot(server, [key for key in keys if key != keys[4]])
    assert_same_snapshot(after, before, time.monotonic() - started)
    assert server.ask(b"mg %s s\r\nmg %s s\r\n" % (keys[4], keys[4])).split(b"\r\n")[0].endswith(b"X W"), "still stale"
    # A version is never given twice.
    assert server.ask(b"set fresh 0 0 1\r\nx\r\n") == b"STORED\r\n"
    [(_, _, cas, _)] = snapshot(server, [b"fresh"]).values()
    assert cas not in {cas for _, _, cas, _ in before.values()}, version


def test_many_restarts(make_server):
    server = make_server()
    for round_ in range(5):
        server.start()
        if round_:
            assert server.ask(b"get round\r\n") == b"VALUE round 0 1\r\n%d\r\nEND\r\n" % (round_ - 1)
        assert server.ask(b"set round 0 0 1\r\n%d\r\n" % round_) == b"STORED\r\n"
        assert server.terminate() == 0


def test_expired_while_stopped(make_server):
    server = make_server().start()
    server.ask(b"set short 0 1 1\r\nx\r\nset long 0 1000 1\r\nx\r\n")
    stored = time.time()
    assert server.terminate() == 0
    wait_until(lambda: time.time() > stored + 2, "the item's second to pass")
    server.start()
    assert server.ask(b"get short long\r\n") == b"VALUE long 0 1\r\nx\r\nEND\r\n"


def test_flushed_stays_flushed(make_server):
    server = make_server().start()
    server.ask(b"set a 0 0 1\r\nx\r\n")
    server.spill()
    server.ask(b"set b 0 0 1\r\nx\r\nflush_all\r\nset c 0 0 1\r\nx\r\n")
    assert server.terminate() == 0
    server.start()
    assert server.ask(b"get a b c\r\n") == b"VALUE c 0 1\r\nx\r\nEND\r\n"


def test_stop_under_load_keeps_what_was_acknowledged(make_server):
    server = make_server().start()
    acknowledged = [{} for _ in range(4)]

    def write(mine, thread):
        try:
            with server.connect() as connection:
                for n in range(1_000_000):
                    key = b"load.%d.%d" % (thread, n)
                    value = value_of(key, 500)
                    connection.send(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
                    if connection.read_line() != b"STORED\r\n":
                        return
                    mine[key] = value
        except (OSError, Closed):
            return

    threads = [threading.Thread(target=write, args=(mine, n)) for n, mine in enumerate(acknowledged)]
    for thread in threads:
        thread.start()
    wait_until(lambda: all(len(mine) >= 500 for mine in acknowledged), "some writes")
    assert server.terminate() == 0
    for thread in threads:
        thread.join()
    server.start()
    for mine in acknowledged:
        found = snapshot(server, mine)
        assert [key for key in mine if key not in found or found[key][0] != mine[key]] == []


def test_kill_never_brings_back_an_old_value(make_server):
    server = make_server().start()
    old = {b"kill.%d" % n: (b"old.%d" % n, 0, 0) for n in range(2000)}
    store(server, old)
    server.spill()
    assert server.terminate() == 0

    server.start()
    assert len(snapshot(server, old)) == len(old), "warm after an orderly stop"
    new = {key: (b"new" + value, 0, 0) for key, (value, _, _) in old.items()}
    store(server, new)
    gone = list(new)[:100]
    server.ask(b"".join(b"delete %s\r\n" % key for key in gone))
    server.kill()

    server.start()
    found = snapshot(server, new)
    assert [key for key in found if found[key][0] != new[key][0]] == []
    assert [key for key in gone if key in found] == []
    store(server, new)
    assert len(snapshot(server, new)) == len(new)


def test_kill_keeps_what_had_reached_flash(make_server):
    server = make_server().start()
    items = {b"kept.%d" % n: (value_of(b"%d" % n, 1000), 0, 0) for n in range(20_000)}
    store(server, items)
    server.spill()
    objects = int(server.stats(b"flash")["objects_on_flash"])
    waiting = int(server.stats(b"flash")["segments_waiting"]) + 1
    per_segment = int(server.stats(b"flash")["segment_bytes"]) // 1000
    deleted = list(items)[::7]
    server.ask(b"".join(b"delete %s\r\n" % key for key in deleted))
    server.kill()
    server.start()
    stats = server.stats(b"flash")
    assert int(stats["recovery_items"]) >= objects - len(deleted) - waiting * per_segment, stats
    found = snapshot(server, items)
    assert [key for key in found if found[key][0] != items[key][0]] == []
    assert [key for key in deleted if key in found] == []
    # Again, at once: what was found is found again.
    server.kill()
    server.start()
    again = snapshot(server, items)
    assert set(again) == set(found)


def test_sync_makes_durable_what_memory_alone_has(make_server):
    server = make_server(options=["--set", "cache.write_back=0"]).start()

    def items(round):
        return {b"%s.%d" % (round, n): (value_of(b"%s%d" % (round, n), 700), n, 0) for n in range(2000)}

    def found_after_kill(expected):
        server.kill()
        server.start()
        found = snapshot(server, expected)
        assert [key for key in found if found[key][:2] != expected[key][:2]] == []
        return len(found)

    first, second, third = items(b"first"), items(b"second"), items(b"third")
    store(server, first)
    assert found_after_kill(first) == 0, "without a window memory alone has it"
    store(server, second)
    quiet = b"".join(b"set %s %d 0 %d noreply\r\n%s\r\n" % (k, f, len(v), v) for k, (v, f, _) in third.items())
    assert server.ask(quiet + b"flowstone sync\r\n") == b"OK\r\n"
    assert found_after_kill(second) == len(second)
    assert len(snapshot(server, third)) == len(third), "what was sent before on the connection, too"
    # Without an answer of its own: the next one stands for it.
    store(server, first)
    assert server.ask(b"flowstone sync noreply\r\nmn\r\n") == b"MN\r\n"
    assert found_after_kill(first) == len(first)
    for wrong in (b"flowstone", b"flowstone now", b"flowstone sync now"):
        assert server.ask(wrong + b"\r\n").split()[0] in (b"ERROR", b"CLIENT_ERROR"), wrong


def test_sync_says_what_the_flash_refuses(make_server):
    """A limit on the length of files stands for a flash that takes no writes."""
    endless = resource.RLIM_INFINITY
    server = make_server(limits={resource.RLIMIT_FSIZE: endless}).start()
    items = {b"refused.%d" % n: (value_of(b"%d" % n, 700), n, 0) for n in range(2000)}
    store(server, items)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (MIB, endless))
    assert server.ask(b"flowstone sync\r\n") == b"SERVER_ERROR not everything is durable\r\n"
    assert server.ask(b"flowstone sync noreply\r\nmn\r\n") == b"MN\r\n"
    assert "a client's sync" in server.log()
    assert len(snapshot(server, items)) == len(items), "it serves all the same"
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (endless, endless))
    assert server.ask(b"flowstone sync\r\n") == b"OK\r\n"
    server.kill()
    server.start()
    assert len(snapshot(server, items)) == len(items)


def test_a_sync_that_the_settings_forbid_is_refused_and_saves_nothing(make_server):
    server = make_server(options=["--set", "server.enable_sync=false", "--set", "cache.write_back=0"]).start()
    refusal = b"CLIENT_ERROR sync not allowed\r\n"
    assert server.ask(b"set key 0 0 1\r\nx\r\nflowstone sync\r\nget key\r\n") == (
        b"STORED\r\n" + refusal + b"VALUE key 0 1\r\nx\r\nEND\r\n"
    )
    server.ask(b"flowstone sync noreply\r\nmn\r\n")
    server.kill()
    server.start()
    assert server.ask(b"get key\r\n") == b"END\r\n"


def test_write_back_of_0_seconds_is_off(make_server):
    options = {"off": ["--set", "cache.write_back=0"], "on": ["--set", "cache.write_back=1"]}
    server = make_server(options=options["on"]).start()
    store(server, {b"a.%d" % n: (b"value", 0, 0) for n in range(100)})
    wait_until(lambda: server.stats(b"flash")["written_back"] == "100", "all to be written back")
    server.kill()
    server.options = options["off"]
    server.start()
    store(server, {b"b.%d" % n: (b"value", 0, 0) for n in range(100)})
    stored = time.time()
    wait_until(lambda: time.time() > stored + 3, "three windows of a second")
    assert server.stats(b"flash")["written_back"] == "0"
    for wrong in ("86401", "-1", "soon"):
        server.kill()
        server.options = ["--set", f"cache.write_back={wrong}"]
        assert "cache.write_back" in fails_to_start(server)


@pytest.mark.parametrize("damage", ["removed", "truncated", "of another run"])
def test_journal_that_cannot_be_trusted(make_server, damage):
    """Without a record of what has been overwritten, nothing that lies on flash may be served."""
    server = make_server().start()
    old = {b"old.%d" % n: (b"old", 0, 0) for n in range(500)}
    store(server, old)
    assert server.terminate() == 0
    journal = server.flash.with_name(server.flash.name + ".journal")
    before = journal.read_bytes()
    for _ in range(2):
        server.start()
        store(server, {key: (b"new", 0, 0) for key in old})
        server.kill()
    if damage == "removed":
        journal.unlink()
    elif damage == "truncated":
        os.truncate(journal, os.path.getsize(journal) // 4096 // 2 * 4096)
    else:
        journal.write_bytes(before)
    server.start()
    assert snapshot(server, old) == {}
    assert b"journal" in server.log().encode()
    server.ask(b"set a 0 0 1\r\nx\r\n")
    assert server.terminate() == 0
    server.start()
    assert server.ask(b"get a\r\n") == b"VALUE a 0 1\r\nx\r\nEND\r\n"


def test_foreign_journal_is_left_alone(make_server):
    server = make_server().start()
    server.ask(b"set a 0 0 1\r\nx\r\n")
    assert server.terminate() == 0
    foreign = server.directory / "accounts.db"
    foreign.write_bytes(random.Random(3).randbytes(3 * MIB))
    before = file_digest(foreign)
    server.options = ["--set", f"cache.journal={foreign}"]
    line = fails_to_start(server)
    assert "journal" in line and "--force" in line
    assert file_digest(foreign) == before
    server.options = []
    server.start()
    assert server.ask(b"get a\r\n") == b"VALUE a 0 1\r\nx\r\nEND\r\n"


@pytest.mark.parametrize("left", [0, 100, 5000, 1 << 20])
def test_a_journal_cut_short_starts_empty_and_the_next_start_is_warm(make_server, left):
    server = make_server().start()
    server.ask(b"set a 0 0 1\r\nx\r\n")
    assert server.terminate() == 0
    os.truncate(server.flash.with_name(server.flash.name + ".journal"), left)
    server.start()
    assert "empty: its journal cannot be used" in server.log()
    assert server.ask(b"get a\r\nset a 0 0 1\r\ny\r\n") == b"END\r\nSTORED\r\n"
    assert server.terminate() == 0
    server.start()
    assert server.ask(b"get a\r\n") == b"VALUE a 0 1\r\ny\r\nEND\r\n"


def test_downtime_that_is_too_long(make_server):
    server = make_server().start()
    server.ask(b"set a 0 0 1\r\nx\r\n")
    assert server.terminate() == 0
    stopped = time.time()
    wait_until(lambda: time.time() > stopped + 3, "some seconds of downtime")
    server.options = ["--max-downtime", "1", "--set", "cache.after_downtime=stale"]
    server.start()
    assert server.ask(b"get a\r\n") == b"VALUE a 0 1\r\nx\r\nEND\r\n"
    first, _, second, _, _ = server.ask(b"mg a v\r\nmg a v\r\n").split(b"\r\n")
    assert set(first.split()[2:]) == {b"W", b"X"}, "stale, and this client is to recache it"
    assert set(second.split()[2:]) == {b"X", b"Z"}, "stale, and somebody else does"
    assert server.terminate() == 0
    stopped = time.time()
    wait_until(lambda: time.time() > stopped + 3, "some seconds of downtime")
    server.options = ["--max-downtime", "1"]
    server.start()
    assert server.ask(b"get a\r\n") == b"END\r\n"


def test_kill_before_the_first_change_is_noticed_too(make_server):
    server = make_server().start()
    server.ask(b"set a 0 0 3\r\nold\r\n")
    assert server.terminate() == 0
    server.start()
    server.ask(b"set a 0 0 3\r\nnew\r\n")
    server.kill()
    server.start()
    assert b"old" not in server.ask(b"get a\r\n")


def test_kill_during_orderly_stop(make_server):
    """Whatever the instant, the next start serves the latest value or none."""
    for _ in range(5):
        server = make_server().start()
        server.ask(b"set a 0 0 3\r\nold\r\n")
        assert server.terminate() == 0
        server.start()
        server.ask(b"set a 0 0 3\r\nnew\r\n")
        server.process.terminate()
        server.kill()
        server.start()
        assert server.ask(b"get a\r\n") in (b"END\r\n", b"VALUE a 0 3\r\nnew\r\nEND\r\n")
        server.kill()
        server.flash.unlink()


def test_two_servers_on_one_file(make_server):
    first = make_server().start()
    first.ask(b"set a 0 0 1\r\nx\r\n")
    line = fails_to_start(make_server(flash=first.flash))
    assert str(first.flash) in line
    assert first.ask(b"get a\r\n") == b"VALUE a 0 1\r\nx\r\nEND\r\n"


def test_foreign_file_is_left_alone(make_server, tmp_path):
    foreign = tmp_path / "holiday.jpg"
    foreign.write_bytes(random.Random(1).randbytes(3 * MIB))
    before = file_digest(foreign)
    server = make_server(flash=foreign)
    line = fails_to_start(server)
    assert str(foreign) in line and "--force" in line
    assert file_digest(foreign) == before

    server.options = ["--force"]
    server.start()
    assert server.ask(b"set a 0 0 1\r\nx\r\nget a\r\n").startswith(b"STORED\r\nVALUE a")


def test_truncated_file(make_server):
    server = make_server().start()
    store(server, mixed_items(seed=5))
    assert server.terminate() == 0
    os.truncate(server.flash, os.path.getsize(server.flash) // 2)
    before = file_digest(server.flash)
    line = fails_to_start(server)
    assert str(server.flash) in line
    assert file_digest(server.flash) == before


def test_damaged_head(make_server):
    server = make_server().start()
    server.ask(b"set a 0 0 1\r\nx\r\n")
    assert server.terminate() == 0
    with open(server.flash, "r+b") as file:
        file.write(random.Random(2).randbytes(64 * 1024))
    before = file_digest(server.flash)
    line = fails_to_start(server)
    assert str(server.flash) in line
    assert file_digest(server.flash) == before


@pytest.mark.parametrize("size", ["256MiB", "1GiB"])
def test_another_flash_size(make_server, size):
    server = make_server().start()
    server.ask(b"set a 0 0 1\r\nx\r\n")
    assert server.terminate() == 0
    before = file_digest(server.flash)
    server.flash_size = size
    line = fails_to_start(server)
    assert "--flash-size" in line
    assert file_digest(server.flash) == before

    server.flash_size = "512MiB"
    server.start()
    assert server.ask(b"get a\r\n") == b"VALUE a 0 1\r\nx\r\nEND\r\n"


def test_less_memory_keeps_the_items_on_flash(make_server):
    server = make_server(memory_mib=128).start()
    items = {b"less.%d" % n: (value_of(b"%d" % n, 4000), 0, 0) for n in range(10_000)}
    store(server, items)
    assert server.terminate() == 0
    server.memory_mib = 64
    server.start()
    assert {key: found[0] for key, found in snapshot(server, items).items()} == {key: item[0] for key, item in items.items()}


def test_damaged_values_are_misses(make_server):
    """Bytes that rot in the file cost a miss, never a wrong value."""
    server = make_server().start()
    items = {b"rot.%d" % n: (value_of(b"%d" % n, 2000), 0, 0) for n in range(5000)}
    store(server, items)
    assert server.terminate() == 0
    rng = random.Random(7)
    with open(server.flash, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        marks = [at for at in (data.find(item[0]) for item in rng.sample(list(items.values()), 50)) if at >= 0]
    assert marks, "values lie in the file as they are"
    with open(server.flash, "r+b") as file:
        for at in marks:
            file.seek(at + rng.randrange(2000))
            file.write(b"\xa5\x5a")
    server.start()
    found = snapshot(server, items)
    assert [key for key in found if found[key][0] != items[key][0]] == []
    assert len(items) - len(marks) <= len(found) < len(items)


def test_flash_in_a_directory_that_is_not_there(make_server, tmp_path):
    flash = tmp_path / "nowhere" / "cache.flash"
    assert str(flash) in fails_to_start(make_server(flash=flash))


def test_flash_is_a_directory(make_server, tmp_path):
    (tmp_path / "directory").mkdir()
    assert str(tmp_path / "directory") in fails_to_start(make_server(flash=tmp_path / "directory"))


def test_unwritable_directory(make_server, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    # Root may write there all the same; nobody may create files in /proc.
    flash = (closed if os.geteuid() else type(closed)("/proc")) / "cache.flash"
    assert str(flash) in fails_to_start(make_server(flash=flash))


def test_file_may_not_grow_to_its_size(make_server):
    server = make_server(limits={resource.RLIMIT_FSIZE: 64 * MIB})
    line = fails_to_start(server)
    assert str(server.flash) in line


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare")
def test_full_disk(make_server, tmp_path):
    """A file system of 64 MiB under a flash of 512: refused at the start, or misses, but no wrong end."""
    small = tmp_path / "small"
    small.mkdir()
    mounts = ["unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount -t tmpfs -o size=64m none "$0" && exec "$@"', str(small)]
    if subprocess.run([*mounts, "true"], check=False, capture_output=True).returncode:
        pytest.skip("may not mount here")
    server = make_server(flash=small / "cache.flash")
    plain = server.command
    server.command = lambda: mounts + plain()
    server.launch()
    ready = wait_until(lambda: "ended" if not server.alive() else _serves(server), "a start or an end")
    if ready == "ended":
        lines = server.log().splitlines()
        assert server.process.returncode == 2 and len(lines) == 1 and str(server.flash) in lines[0], lines
        return
    with server.connect() as connection:
        for n in range(200):
            connection.roundtrip(b"".join(b"set full.%d.%d 0 0 8192\r\n%s\r\n" % (n, m, bytes(8192)) for m in range(100)))
    assert server.ask(b"set a 0 0 1\r\nx\r\nget a\r\n").endswith(b"END\r\n")
    assert server.terminate() == 0


def _serves(server):
    """Its port is open before it knows whether it can serve."""
    try:
        return server.ask(b"version\r\n") != b""
    except OSError:
        return False


def test_port_in_use(make_server):
    first = make_server().start()
    second = make_server(flash=first.directory / "other.flash")
    second.port = first.port
    second.log_path.write_bytes(b"")
    second.launch()
    assert second.wait() != 0
    lines = second.log().splitlines()
    assert len(lines) == 1 and f"{HOST}:{first.port}" in lines[0], lines


def test_nobody_reaches_a_server_that_has_ended(make_server):
    """A client that comes in the moment of a restart is refused and tries again: it does not talk to a listener that is left."""
    server = make_server().start()
    for _ in range(8):
        server.process.kill()
        server.wait()
        with pytest.raises(ConnectionRefusedError):
            server.connect().close()
        server.start()
