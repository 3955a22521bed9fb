"""What the log says when the world around the server has changed its files."""

import os
import struct
import time

import pytest

from servers import wait_until
from test_files import journal_of
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


@pytest.mark.parametrize("cause", ["missing", "cut short", "holds nothing", "of another run", "flash is new"])
def test_item_9_an_empty_start_names_its_cause(make_server, cause):
    server, older = stopped_with_older_journal(make_server)
    journal = journal_of(server)
    if cause == "missing":
        journal.unlink()
    elif cause == "cut short":
        os.truncate(journal, 8192)
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


def test_item_9_a_preset_without_a_window_says_what_a_kill_loses(make_server):
    server = filled(make_server)
    wait_until(lambda: 'kill_loses="items of the last 60 s"' in server.log(), "the line of the start")
    server.terminate()
    server.options = [*server.options, "--set", "cache.write_back=0"]
    server.start()
    wait_until(lambda: 'kill_loses="all items that memory alone has"' in server.log(), "the line of the start")
    server.kill()
    server.start()
    wait_until(lambda: "without the items that memory alone had" in server.log(), "the line of the start")


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


def test_item_8_time_goes_on_from_the_start(make_server):
    server = make_server().start()
    stats = server.stats()
    assert abs(int(stats["time"]) - time.time()) < 2 and int(stats["uptime"]) < 5
