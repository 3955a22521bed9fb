"""libmemcached's own conformance tests of the ASCII protocol."""

import re
import shutil
import subprocess

from servers import HOST, PATIENCE_S


def capable(server):
    """The exit status, and the verdict on each test."""
    done = subprocess.run(
        ["memccapable", "-a", "-h", HOST, "-p", str(server.port), "-t", "10"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE_S * 2,
        check=False,
    )
    verdicts = dict(re.findall(r"^(ascii \S.*?)\s+\[(\w+)\]$", done.stdout.decode(errors="replace"), re.MULTILINE))
    return done.returncode, verdicts


def test_every_ascii_test_passes(make_server):
    assert shutil.which("memccapable"), "libmemcached-tools is not installed"
    # memccapable flushes what it talks to: a server of its own.
    status, verdicts = capable(make_server().start())
    assert len(verdicts) >= 27
    assert {name for name, verdict in verdicts.items() if verdict != "pass"} == set()
    assert status == 0
