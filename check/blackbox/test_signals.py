"""Signals: which of them stop a server, and that none throws away what it holds."""

import fcntl
import os
import pty
import re
import signal
import time
from pathlib import Path

import pytest

from servers import MIB, wait_until

pytestmark = pytest.mark.flowstone

# How long a stop goes on undisturbed (GRACE in product/server/src/stop.rs).
GRACE_S = 5


def lock(path):
    """Holds the file as another server would, until it is closed."""
    file = open(path, "r+b")
    fcntl.lockf(file, fcntl.LOCK_EX)
    return file


def has_open(server, path):
    """Whether the process has the file open."""
    try:
        return str(path) in {os.readlink(fd) for fd in Path(f"/proc/{server.process.pid}/fd").iterdir()}
    except FileNotFoundError:
        return False


def test_a_signal_during_the_start_is_an_orderly_stop(make_server):
    server = make_server().start()
    server.ask(b"set a 0 0 1\r\nx\r\n")
    assert server.terminate() == 0
    with lock(server.flash):
        server.launch()
        wait_until(lambda: has_open(server, server.flash) or not server.alive(), "the flash to be opened")
        server.process.terminate()
    assert server.wait() == 0, server.log()
    server.start()
    assert server.ask(b"get a\r\n") == b"VALUE a 0 1\r\nx\r\nEND\r\n"


def test_signals_that_mean_nothing_leave_a_line_in_the_log(make_server):
    server = make_server()
    server.identity = {"start_new_session": True}  # and so without a terminal
    server.start()
    for sig in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        server.process.send_signal(sig)
        wait_until(lambda: f"{sig.name} is ignored" in server.log() or not server.alive(), "a line")
        assert server.ask(b"mn\r\n") == b"MN\r\n"
    assert server.terminate() == 0


def test_a_hung_up_terminal_is_an_orderly_stop(make_server):
    server = make_server()
    terminal, end = pty.openpty()
    # A session of its own, so that opening the terminal makes it the controlling one.
    server.identity = {"start_new_session": True}
    plain = server.command
    server.command = lambda: ["sh", "-c", f'exec < {os.ttyname(end)}; exec "$@"', "sh", *plain()]
    server.start()
    os.close(end)
    server.ask(b"set a 0 0 1\r\nx\r\n")
    os.close(terminal)
    assert server.wait() == 0, server.log()
    assert "its terminal hung up" in server.log()
    server.command, server.identity = plain, {}
    server.start()
    assert server.ask(b"get a\r\n") == b"VALUE a 0 1\r\nx\r\nEND\r\n"


def test_what_nohup_starts_outlives_its_terminal(make_server):
    server = make_server()
    plain = server.command
    server.command = lambda: ["nohup", *plain()]
    server.start()
    server.process.send_signal(signal.SIGHUP)
    server.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: "SIGUSR1 is ignored" in server.log(), "the signal behind it")
    assert "SIGHUP" not in server.log()


def fill_memory(server, value_bytes=4096):
    """Items of three quarters of the memory, which a stop has to write."""
    value = bytes(value_bytes)
    with server.connect() as connection:
        for first in range(0, server.memory_mib * MIB * 3 // 4 // value_bytes, 64):
            batch = b"".join(b"set s%d 0 0 %d noreply\r\n%s\r\n" % (first + n, value_bytes, value) for n in range(64))
            connection.roundtrip(batch)


def test_a_second_signal_in_a_row_does_not_end_the_stop(make_server):
    server = make_server().start()
    fill_memory(server)
    server.process.terminate()
    wait_until(lambda: "stopping" in server.log(), "the stop to begin")
    server.process.terminate()
    server.process.send_signal(signal.SIGINT)
    assert server.wait() == 0, server.log()
    assert "ended before" not in server.log()


def test_a_second_signal_after_the_grace_ends_the_stop_and_says_what_is_lost(make_server, tmp_path):
    # What three writers of slow flash take more than twice the grace for.
    flash = f"nand:qlc,size=1GiB,file={tmp_path / 'slow'}"
    server = make_server(memory_mib=256, flash=flash, flash_size=None).start()
    fill_memory(server)
    server.process.terminate()
    wait_until(lambda: "stopping" in server.log(), "the stop to begin")
    begun = time.monotonic()
    server.process.terminate()
    wait_until(lambda: "is ignored: the stop goes on" in server.log(), "a line")
    wait_until(lambda: time.monotonic() > begun + GRACE_S, "the grace to end")
    assert server.alive(), server.log()
    server.process.terminate()
    assert server.wait() == 1
    lost = re.search(r"ended before the stop had ended: about (\d+) items", server.log())
    assert lost and int(lost[1]) > 0, server.log()
