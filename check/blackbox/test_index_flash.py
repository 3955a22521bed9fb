"""A device of its own for the index: found again, and refused where it is not the right one."""

import shutil
import stat

import pytest

from servers import MIB, wait_until
from test_cli import one_line, run
from test_inspect import refused
from test_restart import fails_to_start

pytestmark = pytest.mark.flowstone

# More than the memory has for items, and little enough to be stored in a moment.
KEYS = 30_000
VALUE_BYTES = 1000
BATCH = 500


@pytest.fixture
def apart(make_server):
    def make(index, *options, flash_size="128MiB", **kwargs):
        options = ["--preset", "slickcache-gc", "--threads", "2", "--index-flash", str(index), *options]
        return make_server(flash_size=flash_size, memory_mib=48, options=options, **kwargs)

    return make


def value_of(number):
    return (b"%d " % number * VALUE_BYTES)[:VALUE_BYTES]


def store(server, first=0, count=KEYS):
    with server.connect() as connection:
        for begin in range(first, first + count, BATCH):
            numbers = range(begin, begin + BATCH)
            request = b"".join(b"set k%d 0 0 %d\r\n%s\r\n" % (n, VALUE_BYTES, value_of(n)) for n in numbers)
            assert connection.roundtrip(request) == b"STORED\r\n" * BATCH


def found(server, first=0, count=KEYS):
    """How many are there, each with its value."""
    there = 0
    with server.connect() as connection:
        for begin in range(first, first + count, BATCH):
            numbers = range(begin, begin + BATCH)
            connection.send(b"".join(b"mg k%d v\r\n" % n for n in numbers))
            for number in numbers:
                line = connection.read_line().split()
                if line[0] == b"EN":
                    continue
                assert connection.read_exactly(int(line[1]) + 2)[:-2] == value_of(number)
                there += 1
    return there


def test_the_index_is_found_again_after_a_stop_and_after_a_kill(apart, tmp_path):
    index = tmp_path / "index"
    server = apart(index).start()
    assert stat.S_IMODE(index.stat().st_mode) == 0o600
    flash = server.stats(b"flash")
    assert flash["index_path"] == str(index) and "file" in flash["index_device"]
    store(server)
    assert server.terminate() == 0
    server.start()
    wait_until(lambda: "warm" in server.log(), "the line of the start")
    assert found(server) > 0.95 * KEYS
    store(server, KEYS, 10_000)
    assert server.ask(b"flowstone sync\r\n") == b"OK\r\n"
    server.kill()
    server.start()
    assert found(server, KEYS, 10_000) > 9_500


def test_all_of_the_flash_is_for_items(apart, make_server, tmp_path):
    apart_bytes = int(apart(tmp_path / "index").start().stats(b"flash")["flash_bytes"])
    other = tmp_path / "other"
    other.mkdir()
    inside = make_server(
        directory=other, flash_size="128MiB", memory_mib=48, options=["--preset", "slickcache-gc", "--threads", "2"]
    )
    # All but the superblock, in whole segments.
    assert apart_bytes >= 126 * MIB > int(inside.start().stats(b"flash")["flash_bytes"])


def test_what_is_not_the_index_of_the_cache_is_refused_and_left_alone(apart, tmp_path):
    index, kept = tmp_path / "index", tmp_path / "kept"
    server = apart(index).start()
    assert server.terminate() == 0
    shutil.copy(index, kept)
    server.start()
    assert server.terminate() == 0

    def refusal(*words):
        """The line of a start that is refused; the files are as they were."""
        before = [path.read_bytes() for path in (server.flash, index) if path.exists()]
        line = fails_to_start(server)
        assert all(word in line for word in words), line
        assert before == [path.read_bytes() for path in (server.flash, index) if path.exists()]
        return line

    right = tmp_path / "right"
    index.rename(right)
    refusal(str(index), "no such file", "--force")
    assert not index.exists(), "a refused start makes no file"
    with open(index, "wb") as blank:
        blank.truncate(right.stat().st_size)
    refusal(str(index), "holds nothing")
    shutil.copy(kept, index)
    refusal(str(index), "run 1", "run 2", "older copy")
    index.write_bytes(b"somebody's data" + bytes(2 * MIB))
    refusal(str(index), "not an index of Flowstone")
    options = server.options
    at = options.index("--index-flash")
    server.options = options[:at] + options[at + 2 :]
    refusal(str(server.flash), "device of its own", "--index-flash")
    server.options = options
    shutil.copy(right, index)
    server.start()
    wait_until(lambda: "warm" in server.log(), "the line of the start")
    assert server.terminate() == 0
    index.write_bytes(b"somebody's data" + bytes(2 * MIB))
    server.options = [*options, "--force"]
    server.start()
    assert "was overwritten" in server.log()


def test_the_device_of_another_cache_is_refused_with_both_ids(apart, tmp_path):
    servers = []
    for name in ("one", "two"):
        directory = tmp_path / name
        directory.mkdir()
        server = apart(directory / "index", directory=directory).start()
        assert server.terminate() == 0
        servers.append(server)
    one, two = (server.directory / "index" for server in servers)
    swapped = tmp_path / "swapped"
    one.rename(swapped)
    two.rename(one)
    swapped.rename(two)
    lines = [fails_to_start(server) for server in servers]
    ids = [set(word.strip(",:") for word in line.split() if len(word.strip(",:")) == 16) for line in lines]
    assert all("index of the cache" in line for line in lines)
    assert len(ids[0]) == 2 and ids[0] == ids[1], lines


def test_an_index_in_use_or_too_small_is_refused(apart, tmp_path):
    index = tmp_path / "index"
    running = apart(index).start()
    other = tmp_path / "other"
    other.mkdir()
    line = fails_to_start(apart(index, directory=other))
    assert str(index) in line and "in use" in line
    running.close()
    third = tmp_path / "third"
    third.mkdir()
    small = apart(third / "index", "--set", "cache.index_flash_size=2MiB", directory=third)
    line = fails_to_start(small)
    assert "it has 2 MiB" in line and "needs" in line


def test_the_index_device_is_told_from_a_cache(apart, tmp_path):
    index = tmp_path / "index"
    server = apart(index).start()
    assert server.terminate() == 0
    line = refused(index)
    assert "index of the cache" in line
    line = one_line(run("serve", "--listen", "127.0.0.1:1", "--flash", str(index), cwd=tmp_path))
    assert "--index-flash" in line


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--flash", "f", "--index-flash", "nvm:optane"], "in memory"),
        (["--flash", "ftl:mlc,size=1GiB", "--index-flash", "index"], "name an emulated one"),
        (["--flash", "f", "--index-flash", "nand:mlc"], "--index-flash (cache.index_flash): "),
        (["--flash", "nvm:optane"], "--flash (cache.flash): "),
        (["--flash", "f", "--index-flash", "f"], "another file"),
        (["--flash", "f", "--index-flash", "i", "--flash-size", "64MiB"], "keeps its whole index in memory"),
    ],
)
def test_what_cannot_be_is_refused(options, says, tmp_path):
    line = one_line(run("serve", "--listen", "127.0.0.1:1", *options, cwd=tmp_path))
    assert says in line, line
    assert not (tmp_path / "i").exists()


def test_an_emulated_index_serves_an_emulated_flash(apart):
    server = apart("nvm:optane,read_us=10", flash="ftl:mlc,size=2GiB", flash_size=None).start()
    flash = server.stats(b"flash")
    assert flash["index_path"].startswith("nvm:optane") and "7 channels" in flash["index_device"]
    store(server)
    assert found(server) > 0.9 * KEYS
