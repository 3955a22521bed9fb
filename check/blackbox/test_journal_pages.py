"""Pages of the journal that the system takes away: the file is cut short, or its file system is full."""

import fcntl
import os
import struct

import pytest

from servers import MIB, wait_until
from test_filesystems import mounted, serves_flash, small

pytestmark = pytest.mark.flowstone

_FS_IOC_SETFLAGS, _FS_NOCOW_FL = 0x40086602, 0x00800000
_FICLONE = 0x40049409

PAGE = 4096
DELETED = 2000


def journal_of(server):
    return server.flash.with_name(server.flash.name + ".journal")


def delete(server):
    """Deletes items that are on flash, and so need records."""
    batch = b"".join(b"delete k%d\r\n" % n for n in range(DELETED))
    assert server.ask(batch).count(b"DELETED") == DELETED


def found(server):
    return server.ask(b"get " + b" ".join(b"k%d" % n for n in range(DELETED)) + b"\r\n").count(b"VALUE ")


def lines(server, level):
    return [line for line in server.log().splitlines() if f"{level} " in line]


@pytest.mark.parametrize("left", [0, 2 * PAGE])
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_journal_that_is_cut_short_ends_nobody_and_brings_nothing_back(make_server, left, is_killed):
    server = small(make_server).start()
    serves_flash(server)
    os.truncate(journal_of(server), left)
    delete(server)
    if is_killed:
        server.kill()
    else:
        wait_until(lambda: "the journal is whole again" in server.log(), "a checkpoint")
        told = lines(server, "ERROR")
        assert len(told) == 1 and "taken away" in told[0] and "next start is empty" in told[0], told
        assert server.terminate() == 0
    server.log_path.write_bytes(b"")
    server.start()
    assert found(server) == 0
    # A kill may come when the journal has been made whole already.
    assert is_killed or "warm" in server.log()
    assert server.terminate() == 0


def test_a_journal_that_is_cut_short_before_a_stop_does_not_end_the_cache(make_server):
    server = small(make_server).start()
    serves_flash(server)
    os.truncate(journal_of(server), 0)
    assert server.terminate() == 0
    assert "the next start is warm" in server.log()
    server.start()
    assert found(server) == DELETED


@pytest.fixture
def btrfs(tmp_path):
    """A folder on a file system that copies what is overwritten."""
    yield from mounted(tmp_path, "btrfs", "-f")


def fill(folder):
    """Takes all the space that a file system has left."""
    with open(folder / "ballast", "wb", buffering=0) as ballast, pytest.raises(OSError):
        while True:
            ballast.write(os.urandom(MIB))
    os.sync()


def share(file, copy):
    """Makes a copy that shares its bytes with the file, as a snapshot does: whoever writes next needs space."""
    with open(file, "rb") as source, open(copy, "wb") as target:
        # Only files that are overwritten in place can share with such a file.
        fcntl.ioctl(target, _FS_IOC_SETFLAGS, struct.pack("l", _FS_NOCOW_FL))
        fcntl.ioctl(target, _FICLONE, source.fileno())


def test_a_full_file_system_that_copies_is_served_and_started_on(make_server, btrfs):
    server = small(make_server, flash=btrfs / "cache.flash").start()
    serves_flash(server)
    fill(btrfs)
    delete(server)
    serves_flash(server)
    assert server.terminate() == 0
    server.log_path.write_bytes(b"")
    server.start()
    assert "warm" in server.log()
    serves_flash(server)
    delete(server)
    server.kill()
    server.start()
    assert found(server) == 0
    server.close()


def test_a_start_whose_journal_cannot_be_written_serves_and_says_so(make_server, btrfs):
    # A journal that others share, as with a snapshot, is copied when it is overwritten.
    server = small(make_server, options=["--set", f"cache.journal={btrfs}/journal"]).start()
    serves_flash(server)
    assert server.terminate() == 0
    share(btrfs / "journal", btrfs / "copy")
    fill(btrfs)
    server.log_path.write_bytes(b"")
    server.start()
    told = lines(server, "ERROR")
    assert len(told) == 1 and "journal cannot be written" in told[0] and "next start is empty" in told[0], server.log()
    assert found(server) == DELETED
    delete(server)
    server.kill()
    server.start()
    assert found(server) == 0
    server.close()
