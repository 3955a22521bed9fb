"""System calls that a kernel or a container refuses: the server does without, or says one line.

The tables of the start have the calls that `strace` shows, except those without which the loader, the C library or the runtime of Rust
does not come as far as the program: execve, openat, read, mmap, munmap, mprotect, newfstatat, pread64, poll, rt_sigaction, futex.
"""

import contextlib
import signal
import socket
import time

import pytest

from calls import RARE
from load import Load
from refused import Failing, Traced, needs_filter, needs_strace
from servers import PATIENCE_S, wait_until
from test_filesystems import serves_flash, small, warnings
from test_restart import fails_to_start
from wire import Closed

pytestmark = [pytest.mark.flowstone, needs_filter]

RING_CALLS = ["io_uring_setup", "io_uring_register", "io_uring_enter", "eventfd2", "madvise"]

# Without these calls, where the second column is set without io_uring, a server serves.
DONE_WITHOUT = [
    ("access", False),
    ("chmod", False),
    ("epoll_wait", True),
    ("eventfd2", False),
    ("eventfd2", True),
    ("fallocate", True),
    ("fchmod", False),
    ("fdatasync", False),
    ("fstat", False),
    ("fstatfs", False),
    ("ftruncate", False),
    ("getrandom", False),
    ("getrusage", False),
    ("getsockname", False),
    ("gettid", False),
    ("ioctl", False),
    ("madvise", False),
    ("madvise", True),
    ("memfd_create", False),
    ("prctl", False),
    ("prlimit64", False),
    ("rseq", False),
    ("rt_sigprocmask", False),
    ("sched_getaffinity", False),
    ("set_robust_list", False),
    ("setsockopt", True),
    ("shutdown", False),
    ("sigaltstack", False),
    ("socketpair", False),
    ("statx", False),
    ("uname", False),
    ("uname", True),
    ("unlink", False),
]

# Without these no server can be.
NEEDED = [
    ("bind", False),
    ("epoll_create1", False),
    ("epoll_create1", True),
    ("epoll_ctl", True),
    ("fcntl", False),
    ("listen", False),
    ("lseek", False),
    ("pipe2", False),
    ("socket", False),
]

# Calls of a server without io_uring that fail for a while, and calls of the ring.
UNDER_LOAD = [
    ("accept4", "EMFILE", True),
    ("accept4", "EOPNOTSUPP", True),
    ("accept4", "EPERM", True),
    ("clone3", "EAGAIN", True),
    ("epoll_ctl", "ENOMEM", True),
    ("epoll_pwait", "EINTR", True),
    ("fdatasync", "EIO", True),
    ("fdatasync", "ENOSPC", True),
    ("io_uring_enter", "EAGAIN", False),
    ("io_uring_enter", "EBUSY", False),
    ("io_uring_enter", "EINTR", False),
    ("io_uring_enter", "ENOMEM", False),
    ("madvise", "ENOMEM", True),
    ("pread64", "EIO", True),
    ("pwrite64", "EIO", True),
    ("pwrite64", "ENOSPC", True),
    ("recvfrom", "ENOMEM", True),
    ("sendto", "ENOBUFS", True),
]
FAULT_S = 1.5
# Of each client, when the call works again.
ROUNDS_AFTER = 100
LEAST_HITS = 1000
SERVED = b"STORED\r\nVALUE z 0 1\r\nx\r\nEND\r\n"


@pytest.mark.parametrize("error", ["EPERM", "EINVAL", "ENOSYS", "ENOMEM", "EAGAIN"])
@pytest.mark.parametrize("call", RING_CALLS)
def test_half_an_io_uring_is_not_used(make_server, call, error):
    server = small(make_server, refused={call: error}).start()
    told = warnings(server)
    assert len(told) == 1 and f"{call} is refused" in told[0], server.log()
    serves_flash(server)
    assert server.terminate() == 0
    assert_quiet(server)


@pytest.mark.parametrize("call", RING_CALLS)
def test_io_uring_that_is_asked_for_and_refused_is_one_line(make_server, call):
    server = small(make_server, refused={call: "EPERM"}, options=["--set", "server.io=io-uring"])
    line = fails_to_start(server)
    assert f"{call} is refused" in line and "seccomp" in line


def assert_quiet(server):
    log = server.log()
    assert "panicked" not in log and "backtrace" not in log and len(log.splitlines()) < 10, log


def without(call, error, has_no_ring):
    return {"io_uring_setup": "EPERM", call: error} if has_no_ring else {call: error}


@pytest.mark.parametrize("error", ["EPERM", "ENOSYS"])
@pytest.mark.parametrize("call, has_no_ring", DONE_WITHOUT)
def test_a_call_that_a_server_can_do_without(make_server, call, has_no_ring, error):
    server = small(make_server, refused=without(call, error, has_no_ring)).start()
    serves_flash(server)
    assert server.terminate() == 0
    assert_quiet(server)


@pytest.mark.parametrize("error", ["EPERM", "ENOSYS"])
@pytest.mark.parametrize("call, has_no_ring", NEEDED)
def test_a_call_that_a_server_needs_is_one_line(make_server, call, has_no_ring, error):
    server = small(make_server, refused=without(call, error, has_no_ring))
    assert fails_to_start(server).startswith("flowstone: ")


def test_a_start_without_random_numbers_is_one_line(make_server):
    server = small(make_server, refused={"getrandom": "EAGAIN"})
    assert "getrandom" in fails_to_start(server)
    assert_quiet(server)


@pytest.mark.parametrize("error", ["EPERM", "ENOSYS"])
@pytest.mark.parametrize("call", ["accept4", "recvfrom", "sendto"])
def test_clients_that_cannot_be_served_are_one_line(make_server, call, error):
    server = small(make_server, refused=without(call, error, True)).launch()

    def told():
        with contextlib.suppress(OSError, Closed), server.connect(timeout_s=1) as client:
            client.roundtrip(b"mn\r\n")
        return [line for line in server.log().splitlines() if "seccomp profile allow" in line and call in line]

    assert len(wait_until(told, "a line")) == 1
    assert len(told()) == 1, server.log()
    assert server.terminate() == 0


@pytest.mark.parametrize("error, told", [("EDQUOT", "quota"), ("EFBIG", "ulimit -f")])
def test_a_flash_over_a_quota_or_a_limit_is_told_as_such(make_server, error, told):
    line = fails_to_start(small(make_server, refused={"fallocate": error}))
    assert told in line and "room" not in line, line


def answer_to(server):
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


def goes_through(server, call, error, seconds):
    """Makes a call of the server fail under load for so many seconds, and at least once. Returns whether the server lives on.

    It serves again then. Each answer is right, a miss or a refusal.
    """
    load, fault = Load(server), Failing(server, call, error)
    start = time.monotonic()

    def is_over():
        seconds_gone = time.monotonic() - start
        return seconds_gone > seconds and (fault.hits() or seconds_gone > PATIENCE_S / 2)

    load.run(is_over)
    is_made = "(INJECTED)" in fault.end()
    if not is_made and call in RARE:
        pytest.skip(f"{call} has not been made this time")
    assert is_made, f"{call} has not been made"
    # A sync waits for this call without a ring, and with a ring it is not made.
    assert call != "fdatasync" or load.sum("syncs") == 0, "a sync that failed was acknowledged"
    if server.alive():
        wait_until(lambda: answer_to(server) == SERVED, "the server to serve again")
        refused = load.sum("refused")
        load.run_whole(ROUNDS_AFTER)
        assert load.sum("refused") == refused and load.sum("hits") > LEAST_HITS, server.log()
    assert load.wrong() == []
    return server.alive()


@needs_strace
@pytest.mark.parametrize("call, error, has_no_ring", UNDER_LOAD)
def test_a_call_that_fails_under_load(make_server, call, error, has_no_ring):
    options = ["--set", "server.io=fallback"] if has_no_ring else []
    server = small(make_server, options=options).start()
    assert goes_through(server, call, error, FAULT_S), server.log()
    assert server.terminate() in (0, 1)
    assert "panicked" not in server.log() and "backtrace" not in server.log(), server.log()


@needs_strace
@pytest.mark.parametrize("error", ["EAGAIN", "EBUSY"])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_ring_that_fails_for_good_ends_the_server(make_server, error, is_stopped):
    server = small(make_server).start()
    fault = Failing(server, "io_uring_enter", error)
    if is_stopped:
        server.process.terminate()
    else:
        with contextlib.suppress(OSError):
            server.connect(timeout_s=1).roundtrip(b"version\r\n")
    assert server.wait(30) == -signal.SIGABRT
    fault.end()
    told = [line for line in server.log().splitlines() if "the process ends" in line]
    assert len(told) == 1 and "io_uring_enter" in told[0] and 'server.io="fallback"' in told[0], server.log()
    assert_quiet(server)


@needs_strace
def test_workers_that_the_system_holds_do_not_hold_a_stop(make_server):
    server = small(make_server, options=["--set", "server.stop_deadline=1"]).start()
    # The process is gone once `strace` lets its threads go.
    trace = Traced(server, "-e", "trace=io_uring_enter", "-e", "inject=io_uring_enter:delay_enter=15000000")
    server.process.terminate()
    assert server.wait(30) == 1
    trace.end()
    assert "the deadline of the stop passed" in server.log(), server.log()


@needs_strace
def test_a_worker_that_the_system_holds_is_told_of(make_server):
    server = small(make_server, options=["--set", "server.io=fallback"]).start()
    held = "inject=sendto:delay_enter=6000000:when=1"
    trace = Traced(server, "-e", "trace=sendto", "-e", held)
    with server.connect(timeout_s=30) as client:
        assert client.roundtrip(b"version\r\n").startswith(b"VERSION")
    wait_until(lambda: "no longer holds a worker" in server.log(), "the worker to go on")
    trace.end()
    assert server.log().count("the system has held 1 of") == 1, server.log()
