"""Each system call of a server, refused with each of its errors, from the start and under load.

A server serves, or ends with one line. Under load an answer is right, a miss or an error, and the server serves again.
"""

import shutil
import socket

import pytest

from calls import AT_START, UNDER_LOAD
from refused import needs_filter
from servers import wait_until
from test_filesystems import small
from test_refused_calls import without, wrong_answers_while_failing

pytestmark = [pytest.mark.flowstone, needs_filter]

FAULT_S = 1.0
START_S = 30.0
MOST_LINES = 25
SERVED = b"STORED\r\nVALUE z 0 1\r\nx\r\nEND\r\n"

# The runtimes of C and Rust end a process that has one of these failures: memory that an allocation needs cannot be had, a
# descriptor is closed that is not open, a hash table has no random number, or a thread cannot be like the first one.
ENDS_RUNTIME = {
    *(("getrandom", error) for error in "EAGAIN EFAULT EINVAL".split()),
    *(("brk", error) for error in ("ENOMEM", "ENOSYS", "EPERM")),
    *(("mmap", error) for error in "EACCES EAGAIN EBADF EINVAL ENFILE ENODEV ENOMEM ENOSYS EOVERFLOW EPERM".split()),
    *(("mprotect", error) for error in "EACCES EINVAL ENOMEM ENOSYS EPERM".split()),
    *(("rseq", error) for error in "EBUSY EFAULT EINVAL ENOSYS EPERM".split()),
    ("close", "EBADF"),
    ("fcntl", "EBADF"),
}


def ask(server):
    """The answer to a `set` and a `get`; nothing if there is none."""
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=2) as client:
            client.sendall(b"set z 0 0 1\r\nx\r\nget z\r\n")
            answer = b""
            while not answer.endswith(b"END\r\n"):
                more = client.recv(4096)
                if not more:
                    break
                answer += more
            return answer
    except OSError:
        return b""


def assert_quiet(server):
    log = server.log()
    assert "panicked" not in log and "backtrace" not in log and len(log.splitlines()) < MOST_LINES, log


@pytest.mark.parametrize("call, error, has_no_ring", AT_START)
def test_a_server_without_a_call_serves_or_says_why(make_server, call, error, has_no_ring):
    server = small(make_server, refused=without(call, error, has_no_ring)).launch()
    has_ended = wait_until(lambda: server.process.poll() is not None or ask(server) == SERVED, "an answer", START_S)
    assert has_ended
    if (call, error) in ENDS_RUNTIME and server.process.poll() is not None:
        return
    if server.process.poll() is None:
        assert server.terminate() in (0, 1), server.log()
    else:
        lines = [line for line in server.log().splitlines() if line.startswith("flowstone: ")]
        assert server.process.returncode == 2 and len(lines) == 1, (server.process.returncode, server.log())
    assert_quiet(server)


@pytest.mark.skipif(not shutil.which("strace"), reason="strace makes the calls fail")
@pytest.mark.parametrize("call, error, has_no_ring", UNDER_LOAD)
def test_a_server_whose_calls_fail_for_a_while_serves_again(make_server, call, error, has_no_ring):
    options = ["--set", "server.io=fallback"] if has_no_ring else []
    server = small(make_server, options=options).start()
    wrong = wrong_answers_while_failing(server, call, error, FAULT_S)
    assert wrong == []
    if (call, error) in ENDS_RUNTIME and not server.alive():
        return
    assert server.alive(), server.log()
    wait_until(lambda: ask(server) == SERVED, "the server to serve again", START_S)
    assert server.terminate() in (0, 1), server.log()
    assert_quiet(server)
