"""Emulated flash: the same promises as on a file, the times of the device, and what is refused."""

import hashlib
import random
import time

import pytest

from servers import HOST, MIB, free_port, wait_until
from test_cli import one_line, run
from test_inspect import refused

pytestmark = pytest.mark.flowstone

# 8 channels of 2 blocks of 4 MiB, in real time.
SMALL = "nand:mlc,size=64MiB"
# A third of it, and more than the memory has for items.
KEYS = 1500
VALUE_BYTES = 16 * 1024
BATCH = 64


@pytest.fixture
def emulated(make_server):
    def make(flash, *options, memory_mib=48, **kwargs):
        options = ["--threads", "2", *options]
        return make_server(flash=flash, flash_size=None, memory_mib=memory_mib, options=options, **kwargs)

    return make


def value_of(key, version):
    """What version of what key it is, and bytes that no other has."""
    head = b"%d %d " % (key, version)
    return (head + hashlib.sha256(head).digest() * (VALUE_BYTES // 32))[:VALUE_BYTES]


def overwrite(server, latest, rng, mib):
    """Stores `mib` MiB under random keys; notes in `latest` what has been acknowledged."""
    with server.connect() as connection:
        for _ in range(mib * MIB // VALUE_BYTES // BATCH):
            batch = {rng.randrange(KEYS): rng.randrange(1 << 30) for _ in range(BATCH)}
            request = b"".join(
                b"set k%d 0 0 %d\r\n%s\r\n" % (key, VALUE_BYTES, value_of(key, version))
                for key, version in batch.items()
            )
            assert connection.roundtrip(request) == b"STORED\r\n" * len(batch)
            latest.update(batch)


def check(server, latest):
    """Reads every key: its latest value or nothing. Returns how many were there."""
    found = 0
    with server.connect() as connection:
        keys = list(latest)
        for first in range(0, len(keys), BATCH):
            batch = keys[first : first + BATCH]
            connection.send(b"".join(b"mg k%d v\r\n" % key for key in batch))
            for key in batch:
                line = connection.read_line().split()
                if line[0] == b"EN":
                    continue
                assert line[0] == b"VA", line
                value = connection.read_exactly(int(line[1]) + 2)[:-2]
                assert value == value_of(key, latest[key]), f"k{key}: a wrong value, {value[:30]}"
                found += 1
    return found


@pytest.mark.parametrize("preset", ["flowstone", "fatcache-sync", "fatcache-async", "didacache"])
def test_more_than_the_flash_holds_is_never_wrong(preset, emulated):
    server = emulated(SMALL, "--preset", preset).start()
    latest = {}
    overwrite(server, latest, random.Random(1), 120)
    assert check(server, latest) > 100
    flash = server.stats(b"flash")
    assert flash["path"].startswith("nand:mlc") and "emulated NAND" in flash["device"]
    assert int(flash["segment_bytes"]) == 4 * MIB
    assert server.stats(b"settings")["preset"] == preset
    assert server.stats(b"reclaim")["segments_reclaimed"] != "0"
    assert int(flash["write_errors"]) == 0
    assert server.terminate() == 0
    assert "goes with this process" in server.log() and "is gone" in server.log()
    assert list(server.directory.iterdir()) == [server.log_path], "nothing is left behind"


def good_segments(server):
    flash = server.stats(b"flash")
    return int(flash["segments"]) - int(flash["segments_retired"])


def test_a_cache_that_drives_its_flash_tells_of_reserve_and_wear(emulated):
    server = emulated("nand:didacache,size=384MiB,block=512KiB", "--preset", "didacache").start()
    latest, rng = {}, random.Random(6)
    overwrite(server, latest, rng, 64)
    reclaim = {name: int(value) for name, value in server.stats(b"reclaim").items()}
    # 12 channels, a free segment for each; 15 % of the good flash above that.
    assert reclaim["low_watermark"] >= 12
    assert reclaim["high_watermark"] == reclaim["low_watermark"] + good_segments(server) * 15 // 100
    wear = server.stats(b"wear")
    assert int(wear["erases"]) > 50 and int(wear["erase_max"]) <= 1
    assert 0 < float(wear["erase_mean"]) < 1
    fixed = emulated("nand:didacache,size=384MiB,block=512KiB", *watermarks("static", 5, 40)).start()
    overwrite(fixed, {}, rng, 16)
    reclaim, good = fixed.stats(b"reclaim"), good_segments(fixed)
    assert (int(reclaim["low_watermark"]), int(reclaim["high_watermark"])) == (good * 5 // 100, good * 40 // 100)


def test_a_conventional_drive(emulated):
    server = emulated("ftl:crucial-m4,size=1GiB,block=512KiB").start()
    latest = {}
    overwrite(server, latest, random.Random(2), 64)
    assert check(server, latest) == len(latest)
    flash = server.stats(b"flash")
    assert "emulated SSD" in flash["device"] and int(flash["flash_bytes_written"]) > 0


def test_flash_in_a_file_survives_kills_and_stops(emulated, tmp_path):
    flash = f"nand:mlc,size=384MiB,file={tmp_path / 'nand'}"
    rng, latest = random.Random(3), {}
    server = emulated(flash).start()
    overwrite(server, latest, rng, 32)
    wait_until(lambda: int(server.stats(b"flash")["segments_written"]) >= 3, "items to reach flash")
    server.kill()
    for preset in ["flowstone", "fatcache-async", "didacache"]:
        server = emulated(flash, "--preset", preset).start()
        assert "warm after a crash" in server.log()
        assert check(server, latest) > 0
        overwrite(server, latest, rng, 16)
        server.kill()
    # Without a size the file's counts.
    server = emulated(f"nand:mlc,file={tmp_path / 'nand'}").start()
    found = check(server, latest)
    assert server.terminate() == 0
    server = emulated(flash).start()
    assert "warm, " in server.log()
    assert check(server, latest) == found
    assert {path.name for path in tmp_path.iterdir() if path.suffix != ".log"} == {
        "nand",
        "nand.meta",
        "nand.journal",
    }


def test_reads_take_their_time(emulated):
    """A page of `didacache` takes 370 us, whoever asks."""
    server = emulated("nand:didacache,size=192MiB", memory_mib=80).start()
    keys = 12_000
    value = bytes(8 * 1024)
    with server.connect() as connection:
        for first in range(0, keys, 100):
            batch = b"".join(
                b"set t%d 0 0 %d\r\n%s\r\n" % (n, len(value), value) for n in range(first, first + 100)
            )
            assert connection.roundtrip(batch) == b"STORED\r\n" * 100
        before = server.flash_hits()
        times = []
        for n in range(keys):
            started = time.perf_counter()
            connection.send(b"get t%d\r\n" % n)
            connection.read_until(b"END\r\n")
            taken = time.perf_counter() - started
            hits = server.flash_hits()
            if hits > before:
                times.append(taken)
                before = hits
            if len(times) == 50:
                break
    assert len(times) == 50, "hardly anything was on flash"
    assert min(times) > 370e-6


def watermarks(reserve, low, high):
    settings = {"reserve": reserve, "low_watermark": low, "high_watermark": high}
    return [part for name, value in settings.items() for part in ("--set", f"cache.{name}={value}")]


WRONG = {
    "unknown device": (["--flash", "nand:slc"], "didacache, crucial-m4, mlc, tlc, qlc"),
    "unknown option of a device": (["--flash", "nand:mlc,speed=9"], "speed=9"),
    "file of a drive": (["--flash", "ftl:mlc,file=x"], "file=x"),
    "size is no size": (["--flash", "nand:mlc,size=much"], "much"),
    "size beside the device": (["--flash", "nand:mlc", "--flash-size", "1GiB"], "size=S"),
    "segment size beside the device": (["--flash", "nand:mlc,file=x", "--set", "cache.segment_size=4MiB"], "erase block"),
    "journal beside memory": (["--flash", "nand:mlc", "--set", "cache.journal=x"], "cache.journal"),
    "values larger than a block": (["--flash", "nand:crucial-m4,file=x", "--max-item-size", "1MiB"], "values of"),
    "too little memory": (["--flash", "nand:didacache,file=x", "--memory", "24MiB"], "memory"),
    "too large": (["--flash", "nand:mlc,file=x,size=900TB"], "use fewer"),
    "no directory": (["--flash", "nand:mlc,file=absent/x"], "absent/x"),
    "blocks that are no pages": (["--flash", "nand:mlc,block=100KB"], "whole pages"),
    "watermarks that cross": (watermarks("static", 30, 10), "must be below the high one"),
    "a reserve of nearly everything": (watermarks("static", 10, 90), "50 % at most"),
    "watermarks of a reserve that moves": (watermarks("queueing", 10, 20), "set cache.reserve to `static`"),
    "unknown preset": (["--preset", "bigcache"], "fatcache-async-fifo-drop"),
    "unknown preset in the settings": (["--set", "cache.preset=bigcache"], "fatcache-async-fifo-drop"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options(name, tmp_path):
    arguments, word = WRONG[name]
    line = one_line(run("serve", "--listen", f"{HOST}:{free_port()}", *arguments, cwd=tmp_path))
    assert word in line
    assert list(tmp_path.iterdir()) == [], "nothing may be created"


def serve(flash, *options, cwd):
    """The line with which a server refuses."""
    arguments = ["serve", "--listen", f"{HOST}:{free_port()}", "--flash", flash, *options]
    return one_line(run(*arguments, cwd=cwd))


def test_a_file_is_left_alone_by_what_it_is_not_for(emulated, tmp_path):
    file = tmp_path / "nand"
    server = emulated(f"{SMALL},file={file}").start()
    overwrite(server, {}, random.Random(4), 16)
    assert "in use" in serve(f"nand:mlc,file={file}", cwd=tmp_path)
    assert server.terminate() == 0

    def digests():
        return {path: hashlib.sha256(path.read_bytes()).digest() for path in sorted(tmp_path.iterdir())}

    before = digests()
    assert "holds a device of" in serve(f"nand:mlc,size=1GiB,file={file}", cwd=tmp_path)
    assert "holds a device of" in serve(f"nand:tlc,file={file}", cwd=tmp_path)
    assert "not a Flowstone image" in serve(str(file), cwd=tmp_path)
    assert "superblock of an image on emulated flash" in serve(f"{file}.meta", cwd=tmp_path)
    assert "emulated NAND device" in refused(file)
    assert "superblock of an image on emulated flash" in refused(f"{file}.meta")
    assert digests() == before
    meta = tmp_path / "nand.meta"
    meta.rename(tmp_path / "elsewhere")
    assert "nand.meta: no such file" in serve(f"nand:mlc,file={file}", cwd=tmp_path)
    assert not meta.exists()
    server = emulated(f"nand:mlc,file={file}", "--force").start()
    assert server.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"


def test_an_image_takes_another_preset(make_server, tmp_path):
    """Segments tell their layout; the sizes of the image count."""
    rng, latest = random.Random(5), {}
    for preset in ["flowstone", "fatcache-async", "fatcache-sync-greedy", "flowstone"]:
        server = make_server(flash_size="128MiB", options=["--preset", preset, "--threads", "2"]).start()
        check(server, latest)
        overwrite(server, latest, rng, 32)
        assert check(server, latest) > 500
        assert server.terminate() == 0
