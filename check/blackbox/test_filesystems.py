"""File systems that cannot do all that a server would like."""

import subprocess

import pytest

from refused import needs_filter
from servers import MIB

pytestmark = pytest.mark.flowstone

VALUE = b"v" * 3000


def warnings(server):
    return [line for line in server.log().splitlines() if " WARN " in line]


def serves_flash(server):
    """Stores more than memory holds, and gets it back."""
    count = 2 * server.memory_mib * MIB // len(VALUE)
    with server.connect() as client:
        for first in range(0, count, 1000):
            keys = range(first, min(first + 1000, count))
            batch = b"".join(b"set k%d 0 0 %d noreply\r\n%s\r\n" % (n, len(VALUE), VALUE) for n in keys)
            assert client.roundtrip(batch) == b""
    assert server.ask(b"get k0\r\n") == b"VALUE k0 0 %d\r\n%s\r\nEND\r\n" % (len(VALUE), VALUE)
    assert server.flash_hits() > 0


def small(make_server, **options):
    return make_server(memory_mib=36, flash_size="128MiB", max_connections=100, **options)


@needs_filter
@pytest.mark.parametrize("error", ["EOPNOTSUPP", "ENOSYS", "EPERM", "EINVAL"])
@pytest.mark.parametrize("preallocate", [True, False])
def test_without_fallocate_the_server_serves_and_warns_once(make_server, error, preallocate):
    options = [] if preallocate else ["--set", "cache.preallocate=false"]
    server = small(make_server, refused={"fallocate": error}, options=options).start()
    told = warnings(server)
    assert len(told) == (1 if preallocate else 0), told
    assert all("`preallocate`" in line and "128 MiB" in line for line in told)
    serves_flash(server)
    assert server.terminate() == 0
    # A file of full size reserves nothing, and has nothing to be warned of.
    server.log_path.write_bytes(b"")
    server.start()
    assert server.ask(b"get k0\r\n").startswith(b"VALUE k0 ")
    assert warnings(server) == []


@needs_filter
@pytest.mark.parametrize(
    "calls",
    [
        {"fstatfs": "EPERM", "statfs": "EPERM"},
        {"fchmod": "EPERM", "chmod": "EPERM"},
        {"setsockopt": "EPERM", "getsockname": "EPERM"},
    ],
    ids=["figures", "modes", "options"],
)
def test_a_server_that_gets_no_figures_modes_or_options_serves(make_server, calls):
    server = small(make_server, refused=calls).start()
    assert warnings(server) == []
    serves_flash(server)
    assert server.terminate() == 0


def mounted(tmp_path, kind, *options):
    """Mounts a new file system of a kind, yields its folder, and unmounts it."""
    image, folder = tmp_path / f"{kind}.image", tmp_path / kind
    folder.mkdir()
    with open(image, "wb") as file:
        file.truncate(400 * MIB)
    try:
        subprocess.run([f"mkfs.{kind}", "-q", *options, image], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as refused:
        pytest.skip(f"no {kind} can be mounted here: {refused}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def ext3(tmp_path):
    """A folder on a file system without extents, where the kernel refuses fallocate."""
    yield from mounted(tmp_path, "ext3", "-F")


def test_ext3_is_served(make_server, ext3):
    server = small(make_server, directory=ext3).start()
    told = warnings(server)
    assert len(told) == 1 and "Operation not supported" in told[0], told
    serves_flash(server)
    assert server.terminate() == 0
