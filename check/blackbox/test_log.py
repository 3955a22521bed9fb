"""A log that takes nothing: nobody waits for it, neither clients nor a stop."""

import fcntl
import os
import pty
import signal
import time

import pytest

from servers import wait_until
from test_restart import fails_to_start

pytestmark = pytest.mark.flowstone


def logs_to(server, path):
    """Lets the server write its log to `path`, which may be a terminal or a pipe."""
    plain = server.command
    server.command = lambda: ["sh", "-c", f'exec 2> {path}; exec "$@"', "sh", *plain()]


def serves(server):
    assert server.ask(b"set a 0 0 1\r\nx\r\nget a\r\n") == b"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"


def test_a_terminal_that_has_been_stopped_stops_nobody(make_server):
    server = make_server()
    terminal, end = pty.openpty()
    logs_to(server, os.ttyname(end))
    server.start()
    os.write(terminal, b"\x13")  # Ctrl-S
    for _ in range(3):
        server.process.send_signal(signal.SIGUSR1)
        serves(server)
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    os.close(end)
    os.close(terminal)


def test_a_full_pipe_stops_nobody(make_server, tmp_path):
    server = make_server()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    room = fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    os.write(reader, b"x" * room)
    logs_to(server, pipe)
    server.start()
    serves(server)

    def read():
        try:
            return os.read(reader, 1 << 16)
        except BlockingIOError:
            return b""

    # Its reader comes back: the lines that waited are written.
    log = bytearray()
    wait_until(lambda: log.extend(read()) or b"is serving" in log, "the line of the start")
    os.write(reader, b"x" * (room - 1))
    server.process.send_signal(signal.SIGUSR1)
    serves(server)
    begin = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    assert time.monotonic() - begin < 20
    os.close(reader)


@pytest.mark.parametrize("level", ["verbose", "info,loud", ""])
def test_a_level_that_does_not_exist_is_refused(make_server, level):
    line = fails_to_start(make_server(options=["--set", f"log.level={level}"]))
    assert "log.level" in line and "use off, error, warn, info, debug or trace" in line, line
