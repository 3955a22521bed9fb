"""What the log says when the world around the server has changed its files."""

import os
import platform
import re
import resource
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest

from servers import MIB, Flowstone, wait_until
from test_files import journal_of
from test_filesystems import serves_flash, small
from test_restart import fails_to_start

pytestmark = pytest.mark.flowstone


def filled(make_server):
    server = make_server().start()
    assert server.ask(b"set key 0 0 5\r\nvalue\r\n") == b"STORED\r\n"
    return server


def warning_of_next_start(server):
    """Starts the server again. Returns the warning about the empty start, which comes before the line of the start."""
    starts = server.log().count("is serving")
    server.start()
    assert server.ask(b"get key\r\n") == b"END\r\n"
    wait_until(lambda: server.log().count("is serving") > starts, "the line of the start")
    lines = server.log().splitlines()
    warned = [number for number, line in enumerate(lines) if " WARN " in line and "starts empty" in line]
    serving = [number for number, line in enumerate(lines) if "is serving" in line]
    assert len(warned) == 1 and warned[0] < serving[-1], server.log()
    return lines[warned[0]]


def stopped_with_older_journal(make_server):
    server = filled(make_server)
    server.terminate()
    older = journal_of(server).read_bytes()
    server.start()
    server.terminate()
    return server, older


@pytest.mark.parametrize("cause", ["missing", "cut short", "cut short, to 1 B", "holds nothing", "of another run", "flash is new"])
def test_item_9_an_empty_start_names_its_cause(make_server, cause):
    server, older = stopped_with_older_journal(make_server)
    journal = journal_of(server)
    if cause == "missing":
        journal.unlink()
    elif cause == "cut short":
        os.truncate(journal, 8192)
    elif cause == "cut short, to 1 B":
        os.truncate(journal, 1)
    elif cause == "holds nothing":
        journal.write_bytes(bytes(len(older)))
    elif cause == "of another run":
        journal.write_bytes(older)
    else:
        server.flash.unlink()
    assert cause in warning_of_next_start(server)


def test_item_10_a_journal_that_is_not_where_the_flash_says_is_refused(make_server):
    server = filled(make_server)
    server.terminate()
    journal, other = journal_of(server), server.directory / "other.journal"
    options = server.options
    server.options = [*options, "--set", f"cache.journal={other}"]
    line = fails_to_start(server)
    assert str(journal) in line and str(other) in line and "--force" in line
    assert not other.exists()
    journal.rename(other)
    server.start()
    assert b"value" in server.ask(b"get key\r\n")
    server.terminate()
    server.options = options
    assert str(other) in fails_to_start(server)
    server.options = [*options, "--force"]
    server.start()
    assert server.ask(b"get key\r\n") == b"END\r\n"


@pytest.mark.parametrize("which", ["flash", "journal"])
def test_item_9_a_stop_promises_nothing_of_files_that_have_gone(make_server, which):
    server = filled(make_server)
    gone = server.flash if which == "flash" else journal_of(server)
    gone.unlink()
    server.terminate()
    assert f"{gone} has been removed or replaced" in server.log()
    assert "the next start is warm" not in server.log()


def errors(server):
    return [line for line in server.log().splitlines() if " ERROR " in line]


@pytest.mark.parametrize("left", [0, 8192, MIB, 64 * MIB + 100])
def test_a_flash_file_that_is_cut_short_is_told_by_server_stop_and_next_start(make_server, left):
    server = small(make_server).start()
    serves_flash(server)
    os.truncate(server.flash, left)
    for n in range(0, 20_000, 100):
        server.ask(b"get k%d\r\n" % n)
    wait_until(lambda: errors(server), "the line about the file")
    server.terminate()
    told = errors(server)
    assert len(told) == 2 and all(f"{server.flash} has been cut short" in line for line in told), told
    assert "--force" in told[1] and "the next start is warm" not in server.log()
    for size in (None, "128MiB"):
        server.flash_size = size
        line = fails_to_start(server)
        assert f"{server.flash}: has been cut short" in line and "128 MiB" in line and "--force" in line
    server.flash_size, server.options = None, ["--force"]
    server.start()
    assert server.ask(b"get k0 k19000\r\n") == b"END\r\n"
    serves_flash(server)
    server.terminate()
    server.options = []
    server.start()
    serves_flash(server)


def test_a_flash_file_that_has_its_length_again_is_not_called_whole(make_server):
    server = small(make_server).start()
    serves_flash(server)
    os.truncate(server.flash, 8 * MIB)
    assert server.ask(b"flowstone sync\r\n") == b"OK\r\n"
    wait_until(lambda: errors(server), "the line about the file")
    os.truncate(server.flash, 128 * MIB)
    server.terminate()
    assert "misses the items" in errors(server)[-1] and "the next start is warm" not in server.log()


def test_a_flash_file_that_another_program_overwrites_is_told_at_reads_and_at_the_stop(make_server):
    server = small(make_server).start()
    serves_flash(server)
    assert server.ask(b"flowstone sync\r\n") == b"OK\r\n"
    with server.flash.open("r+b") as file:
        file.seek(8 * MIB)
        file.write(bytes(120 * MIB))
    with server.connect() as client:
        client.roundtrip(b"".join(b"get k%d\r\n" % n for n in range(0, 20_000, 10)))
    told = [line for line in server.log().splitlines() if " WARN " in line and "overwritten the flash" in line]
    assert 1 <= len(told) <= 6 and "damaged=1" in told[0], server.log()
    server.terminate()
    assert "misses the items there" in errors(server)[-1] and "the next start is warm" not in server.log()


def test_a_flash_file_that_nobody_reads_is_found_cut_short_at_the_stop(make_server):
    server = filled(make_server)
    os.truncate(server.flash, 64 * MIB)
    server.terminate()
    assert f"{server.flash} has been cut short" in errors(server)[-1]
    assert "the next start is warm" not in server.log()


def zeroed(file):
    file.write(bytes(4096))


def overwritten(file):
    file.write(b"another program" * 300)


def grown(file):
    file.truncate(os.fstat(file.fileno()).st_size + MIB)


@pytest.mark.parametrize("harm, why", [(zeroed, "it holds nothing"), (overwritten, "not a Flowstone journal"), (grown, "its size has changed")])
def test_a_stop_promises_nothing_of_a_journal_that_has_been_changed(make_server, harm, why):
    server = filled(make_server)
    with open(journal_of(server), "r+b") as file:
        harm(file)
    server.terminate()
    [told] = errors(server)
    assert f"{journal_of(server)} has been changed" in told and why in told, told
    assert "the next start is warm" not in server.log()
    if "refused" in told:
        assert why in fails_to_start(server)
    else:
        assert why in warning_of_next_start(server)


@pytest.mark.parametrize("preset", ["fatcache-sync", "didacache"])
def test_a_stop_whose_flash_refuses_writes_promises_what_is_on_it(make_server, preset):
    """A limit on the length of files stands for a flash that takes no writes."""
    endless = resource.RLIM_INFINITY
    limits = {resource.RLIMIT_FSIZE: endless}
    server = make_server(options=["--preset", preset], limits=limits).start()
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (MIB, endless))
    with server.connect() as client:
        for n in range(2000):
            client.send(b"set k%d 0 0 1000 noreply\r\n%s\r\n" % (n, bytes(1000)))
        client.roundtrip(b"")
    server.terminate()
    told = errors(server)[-1]
    lost = int(re.search(r"lost=(\d+)", told)[1])
    assert "without a last checkpoint" in told and "objects=0" in told and 0 < lost <= 2000, told
    server.start()
    assert server.ask(b"get k0 k1999\r\n") == b"END\r\n"


def test_a_new_flash_does_not_take_the_journal_that_another_cache_uses(make_server, tmp_path):
    server = filled(make_server)
    server.terminate()
    journal = journal_of(server)
    other = make_server(flash=tmp_path / "other.flash", options=["--set", f"cache.journal={journal}"])
    before = journal.read_bytes()
    line = fails_to_start(other)
    assert str(journal) in line and "another cache" in line and "--force" in line
    assert journal.read_bytes() == before and not other.flash.exists()
    server.start()
    assert b"value" in server.ask(b"get key\r\n")
    server.terminate()
    other.options.append("--force")
    other.start()


def test_an_empty_path_of_the_journal_is_refused_by_its_name(make_server):
    line = fails_to_start(make_server(options=["--set", "cache.journal="]))
    assert "cache.journal" in line and "is empty" in line, line


WITH_WINDOW, WITHOUT_WINDOW = 'kill_loses="items of the last 60 s"', 'kill_loses="all items that memory alone has"'


def told_at_start(server, text):
    """Waits for the line of the start that is under way, and asserts that it has `text`."""

    def line():
        return [line for line in server.log().splitlines() if "is serving" in line]

    assert text in wait_until(line, "the line of the start")[-1], server.log()


def test_item_9_a_preset_without_a_window_says_what_a_kill_loses(make_server):
    server = filled(make_server)
    told_at_start(server, WITH_WINDOW)
    server.terminate()
    server.log_path.write_bytes(b"")
    server.options = [*server.options, "--set", "cache.write_back=0"]
    server.start()
    told_at_start(server, WITHOUT_WINDOW)
    server.kill()
    server.log_path.write_bytes(b"")
    server.start()
    told_at_start(server, "without the items that memory alone had")


def test_item_9_the_other_presets_have_no_window_and_say_so(make_server, tmp_path):
    text = subprocess.run([Flowstone.binary(), "serve", "--help"], capture_output=True, text=True, check=True).stdout
    presets = re.findall(r"^  ([a-z]\S+)", text.partition("\nPresets:\n")[2], re.MULTILINE)
    assert {"flowstone", "s3-fifo", "flashield", "fatcache-sync"} < set(presets)
    for preset in presets:
        server = make_server(flash=tmp_path / f"{preset}.flash", options=["--preset", preset]).start()
        told_at_start(server, WITH_WINDOW if preset == "flowstone" else WITHOUT_WINDOW)
        server.kill()
        server.flash.unlink()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def tell_journal_the_time(journal, second):
    """Stores `second` as the latest one that the journal has seen: word 8 of its head."""
    word = crc32c(struct.pack("<Q", second)) << 32 | second
    with open(journal, "r+b") as file:
        file.seek(8 * 8)
        file.write(struct.pack("<Q", word))


def test_item_8_a_start_before_the_last_run_loses_nothing_stored_after_it(make_server):
    server = make_server().start()
    server.ask(b"set for_ever 0 0 1\r\nx\r\nset kept 0 10000 1\r\nx\r\nset gone 0 3600 1\r\nx\r\n")
    server.terminate()
    tell_journal_the_time(journal_of(server), int(time.time()) + 7200)
    server.start()
    wait_until(lambda: "the clock cannot be right" in server.log(), "the warning")
    assert server.ask(b"mg gone v\r\n") == b"EN\r\n", "it had expired by the clock of the last run"
    kept = int(server.ask(b"mg kept t\r\n").split(b"t")[1])
    assert 2700 < kept <= 2800
    server.ask(b"set new 0 3600 1\r\nx\r\n")
    for _ in range(2):
        server.terminate()
        server.start()
        for key in (b"for_ever", b"kept", b"new"):
            assert server.ask(b"mg %s v\r\n" % key) == b"VA 1\r\nx\r\n"
        assert 3500 < int(server.ask(b"mg new t\r\n").split(b"t")[1]) <= 3600
        assert server.ask(b"mg gone v\r\n") == b"EN\r\n"
    assert server.log().count("the clock cannot be right") == 1


class WallClock:
    """The wall clock of servers with this environment, which a preloaded library moves."""

    def __init__(self, directory):
        if not shutil.which("cc") or platform.machine() != "x86_64":
            pytest.skip("the library that moves the clock cannot be built here")
        self.path, library = directory / "seconds-ahead", directory / "wall_clock.so"
        source = Path(__file__).with_name("wall_clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        self.env = {"LD_PRELOAD": str(library), "WALL_CLOCK": str(self.path)}
        self.step(7200)
        shown = subprocess.run(["date", "+%s"], env={**os.environ, **self.env}, capture_output=True, check=False)
        if shown.returncode == 77:
            pytest.skip("the library cannot move the clock here")
        assert abs(int(shown.stdout) - time.time() - 7200) < 10
        self.step(0)

    def step(self, ahead):
        """Sets the clock so many seconds ahead of the true time."""
        with open(self.path, "r+b" if self.path.exists() else "wb") as file:
            file.write(struct.pack("<q", ahead))


def seconds_left(server, key):
    return int(server.ask(b"mg %s t\r\n" % key).removeprefix(b"HD t"))


def test_item_8_steps_of_the_wall_clock_change_nothing_until_the_next_start(make_server, tmp_path):
    clock = WallClock(tmp_path)
    server = make_server(env=clock.env).start()
    start = time.time()
    server.ask(b"set hour 0 3600 1\r\nx\r\nset for_ever 0 0 1\r\nx\r\n")
    server.ask(b"set absolute 0 %d 1\r\nx\r\n" % (start + 3600))
    for ahead in (7200, -3600):
        clock.step(ahead)
        assert server.ask(b"set short 0 2 1\r\nx\r\nset new 0 3600 1\r\nx\r\n") == b"STORED\r\nSTORED\r\n"
        server.ask(b"set new_absolute 0 %d 1\r\nx\r\n" % (time.time() + 3600))
        for key in (b"hour", b"absolute", b"new", b"new_absolute"):
            assert 3500 < seconds_left(server, key) <= 3600, key
        assert seconds_left(server, b"for_ever") == -1
        stats = server.stats()
        assert abs(int(stats["time"]) - time.time()) < 10 and int(stats["uptime"]) <= time.time() - start + 2
        wait_until(lambda: server.ask(b"mg short t\r\n") == b"EN\r\n", "an item to expire", 20)
    clock.step(7200)
    server.terminate()
    server.start()
    assert abs(int(server.stats()["time"]) - time.time() - 7200) < 10
    assert server.ask(b"get hour absolute new for_ever\r\n") == b"VALUE for_ever 0 1\r\nx\r\nEND\r\n"
