"""Each system call of a server, refused with each of its errors, from the start and under load.

A server serves, or ends with one line. Under load an answer is right, a miss or an error, and the server serves again.
"""

import re
import time

import pytest

from calls import AT_START, NOT_TRIED, OF_LOAD, RARE, UNDER_LOAD
from load import Load
from refused import Traced, needs_filter, needs_strace
from servers import wait_until
from test_filesystems import small
from test_refused_calls import SERVED, answer_to, goes_through, without

pytestmark = [pytest.mark.flowstone, needs_filter]

FAULT_S = 1.0
MEASURED_S = 5.0
START_S = 30.0
MOST_LINES = 25

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


def assert_quiet(server):
    log = server.log()
    assert "panicked" not in log and "backtrace" not in log and len(log.splitlines()) < MOST_LINES, log


@pytest.mark.parametrize("call, error, has_no_ring", AT_START)
def test_a_server_without_a_call_serves_or_says_why(make_server, call, error, has_no_ring):
    server = small(make_server, refused=without(call, error, has_no_ring)).launch()
    has_ended = wait_until(lambda: server.process.poll() is not None or answer_to(server) == SERVED, "an answer", START_S)
    assert has_ended
    if (call, error) in ENDS_RUNTIME and server.process.poll() is not None:
        return
    if server.process.poll() is None:
        assert server.terminate() in (0, 1), server.log()
    else:
        lines = [line for line in server.log().splitlines() if line.startswith("flowstone: ")]
        assert server.process.returncode == 2 and len(lines) == 1, (server.process.returncode, server.log())
    assert_quiet(server)


def options_of(has_no_ring):
    return ["--set", f"server.io={'fallback' if has_no_ring else 'io-uring'}"]


@needs_strace
@pytest.mark.parametrize("has_no_ring", [False, True])
def test_the_calls_under_load_are_those_that_are_tried(make_server, has_no_ring):
    server = small(make_server, options=options_of(has_no_ring)).start()
    load, trace = Load(server), Traced(server, "-c", "-U", "calls,name")
    end = time.monotonic() + MEASURED_S
    load.run(lambda: time.monotonic() > end)
    made = set(re.findall(r"^ *\d+ (\w+)$", trace.end(), re.MULTILINE)) - {"total"}
    assert made and made - NOT_TRIED - RARE <= set(OF_LOAD[has_no_ring])


@needs_strace
@pytest.mark.parametrize("call, error, has_no_ring", UNDER_LOAD)
def test_a_server_whose_calls_fail_for_a_while_serves_again(make_server, call, error, has_no_ring):
    server = small(make_server, options=options_of(has_no_ring)).start()
    if not goes_through(server, call, error, FAULT_S):
        assert (call, error) in ENDS_RUNTIME, server.log()
        return
    assert server.terminate() in (0, 1), server.log()
    assert_quiet(server)
