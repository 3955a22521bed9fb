"""The files of a server: who may read them, and who may keep it from them."""

import fcntl
import os
import shutil
import subprocess

import pytest

from test_restart import fails_to_start

pytestmark = pytest.mark.flowstone


def journal_of(server):
    return server.flash.with_name(server.flash.name + ".journal")


def mode(path):
    return path.stat().st_mode & 0o777


def test_files_are_their_owners_alone_and_others_that_can_read_them_are_warned_of(make_server):
    before = os.umask(0)
    try:
        server = make_server().start()
    finally:
        os.umask(before)
    files = (server.flash, journal_of(server))
    assert [mode(file) for file in files] == [0o600, 0o600]
    assert "can be read by other users" not in server.log()
    assert server.terminate() == 0
    for file in files:
        file.chmod(0o644)
    server.start()
    for file in files:
        assert f"{file} can be read by other users (mode 644)" in server.log()
    assert [mode(file) for file in files] == [0o644, 0o644]


@pytest.mark.parametrize("which", ["flash", "journal"])
def test_a_user_that_can_only_read_a_file_cannot_keep_the_server_from_starting(make_server, which):
    server = make_server().start()
    server.ask(b"set a 0 0 1\r\nx\r\n")
    assert server.terminate() == 0
    path = server.flash if which == "flash" else journal_of(server)
    with open(path, "rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_EX)
        server.start()
        assert server.ask(b"get a\r\n") == b"VALUE a 0 1\r\nx\r\nEND\r\n"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("losetup"), reason="needs root and losetup")
def test_item_16_a_read_only_device_is_called_a_device(make_server, tmp_path):
    (image := tmp_path / "image").write_bytes(bytes(64 << 20))
    made = subprocess.run(["losetup", "--read-only", "--find", "--show", image], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(made.stderr)
    device = made.stdout.strip()
    try:
        line = fails_to_start(make_server(flash=device, flash_size=None))
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
    assert f"{device}: the device is read-only" in line and "blockdev --setrw" in line


def test_item_16_a_text_of_no_device_makes_no_file(make_server, tmp_path):
    line = fails_to_start(make_server(flash="flash:mlc"))
    assert "--flash" in line and "./flash:mlc" in line
    assert not (tmp_path / "flash:mlc").exists()
