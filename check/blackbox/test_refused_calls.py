"""System calls that a kernel or a container refuses: the server does without, or says one line."""

import pytest

from refused import needs_filter
from test_filesystems import serves_flash, small, warnings
from test_restart import fails_to_start

pytestmark = [pytest.mark.flowstone, needs_filter]

RING_CALLS = ["io_uring_setup", "io_uring_register", "io_uring_enter"]


@pytest.mark.parametrize("error", ["EPERM", "EINVAL", "ENOSYS", "ENOMEM", "EAGAIN"])
@pytest.mark.parametrize("call", RING_CALLS)
def test_half_an_io_uring_is_not_used(make_server, call, error):
    server = small(make_server, refused={call: error}).start()
    told = warnings(server)
    assert len(told) == 1 and f"{call} is refused" in told[0], server.log()
    serves_flash(server)
    assert server.terminate() == 0
    assert "panicked" not in server.log() and len(server.log().splitlines()) < 10, server.log()


@pytest.mark.parametrize("call", RING_CALLS)
def test_io_uring_that_is_asked_for_and_refused_is_one_line(make_server, call):
    server = small(make_server, refused={call: "EPERM"}, options=["--set", "server.io=io-uring"])
    line = fails_to_start(server)
    assert f"{call} is refused" in line and "seccomp" in line
