"""A log that takes nothing: nobody waits for it, neither clients nor a stop."""

import fcntl
import os
import pty
import resource
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


LIMIT_BYTES = 8 << 20
REFUSES_S = 12.0
SETS_PER_S = 50


def test_item_5_a_device_that_refuses_is_a_line_each_ten_seconds(make_server):
    # A limit on the size of files that comes and goes makes writes fail as those of a drive. Each segment may fail thrice.
    server = make_server(limits={resource.RLIMIT_FSIZE: resource.RLIM_INFINITY}).start()
    client, value = server.connect(), bytes(100_000)

    def limit_files(limit):
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    def store(key):
        assert client.roundtrip(b"set k%d 0 0 %d\r\n%s\r\n" % (key, len(value), value)) == b"STORED\r\n"

    for key in range(1000):
        store(key)
    before = len(server.log().splitlines())
    limit_files(LIMIT_BYTES)
    for key in range(int(REFUSES_S * SETS_PER_S)):
        store(key)
        time.sleep(1 / SETS_PER_S)
    lines = server.log().splitlines()[before:]
    begun = [line for line in lines if "a segment could not be written" in line]
    assert len(begun) == 1 and " ERROR " in begun[0], lines
    assert sum("segments could not be written" in line for line in lines) == 1, lines
    # A checkpoint and the superblock may have lines of their own.
    assert len(lines) < 12, lines
    limit_files(resource.RLIM_INFINITY)
    for key in range(int(REFUSES_S * SETS_PER_S)):
        store(key)
        time.sleep(1 / SETS_PER_S)
    again = [line for line in server.log().splitlines() if "segments are written again" in line]
    assert len(again) == 1 and "failed=" in again[0], server.log()


@pytest.mark.parametrize("level", ["verbose", "info,loud", ""])
def test_a_level_that_does_not_exist_is_refused(make_server, level):
    line = fails_to_start(make_server(options=["--set", f"log.level={level}"]))
    assert "log.level" in line and "use off, error, warn, info, debug or trace" in line, line
