"""`stats cachedump`, and clients of the old binary protocol."""

import re
import shutil
import struct
import subprocess

import pytest

from servers import HOST, Memcached

pytestmark = pytest.mark.flowstone


def cachedump(server, class_, limit):
    answer = server.ask(b"stats cachedump %d %d\r\n" % (class_, limit))
    assert answer.endswith(b"END\r\n")
    return re.findall(rb"^ITEM (\S+) \[(\d+) b; (\d+) s\]\r\n", answer, re.MULTILINE)


def test_cachedump_lists_what_is_in_memory_and_on_flash(make_server):
    server = make_server().start()
    keys = [b"dumped.%d" % n for n in range(2000)]
    server.ask(b"".join(b"set %s 0 0 3\r\nabc\r\n" % key for key in keys))
    server.ask(b"ms %s 1 b\r\nx\r\n" % b"YSBi")
    server.spill()
    server.ask(b"set fresh 0 4000000000 5\r\nvalue\r\nset later 0 2000000000 5\r\nvalue\r\n")
    items = cachedump(server, 1, 0)
    listed = {key for key, _, _ in items}
    assert listed >= {*keys, b"later"} and b"a b" not in listed
    assert (b"later", b"5", b"2000000000") in items and (keys[0], b"3", b"0") in items
    assert len(cachedump(server, 1, 700)) == 700
    assert cachedump(server, 2, 0) == []


def test_cachedump_refuses_as_memcached_does(make_server):
    servers = [make_server().start(), make_server(Memcached).start()]
    for request in (b"stats cachedump\r\n", b"stats cachedump 1\r\n", b"stats cachedump 1 x\r\n", b"stats cachedump 64 0\r\n"):
        answers = {server.ask(request) for server in servers}
        assert len(answers) == 1 and answers.pop().startswith(b"CLIENT_ERROR"), request


@pytest.mark.skipif(not shutil.which("memcdump"), reason="needs libmemcached-tools")
def test_memcdump_lists_all_keys(make_server):
    server = make_server().start()
    keys = [b"listed.%d" % n for n in range(500)]
    server.ask(b"".join(b"set %s 0 0 3\r\nabc\r\n" % key for key in keys))
    done = subprocess.run(["memcdump", f"--servers={HOST}:{server.port}"], stdout=subprocess.PIPE, check=True, timeout=30)
    assert set(keys) <= set(done.stdout.split())


def test_binary_clients_are_told_in_their_own_protocol_and_logged_once_a_minute(make_server):
    server = make_server().start()
    get = struct.pack(">BBHBBHIIQ", 0x80, 0x00, 3, 0, 0, 0, 3, 0x01020304, 0) + b"key"
    for piece in (None, *[1] * 49):
        with server.connect() as client:
            answer = client.exchange(get, piece)
        magic, opcode, key, extras, kind, status, body, opaque, cas = struct.unpack(">BBHBBHIIQ", answer[:24])
        assert (magic, opcode, key, extras, kind, cas) == (0x81, 0x00, 0, 0, 0, 0)
        assert (status, opaque) == (0x0083, 0x01020304)
        assert len(answer) == 24 + body and b"not supported" in answer[24:]
    assert server.log().count("binary protocol") == 1


def test_a_dump_of_any_size_streams(make_server):
    """The lines of one segment full of small items are a hundred times what a reply may hold."""
    server = make_server().start()
    count, batch = 300_000, 2000
    with server.connect() as client:
        for first in range(0, count, batch):
            keys = range(first, first + batch)
            client.roundtrip(b"".join(b"set streamed.%06d 0 0 1 noreply\r\nx\r\n" % key for key in keys))
    server.spill()
    for request, line in (
        (b"lru_crawler metadump all\r\n", rb"^key=streamed\.(\d+) "),
        (b"lru_crawler mgdump all\r\n", rb"^mg streamed\.(\d+)\r\n"),
    ):
        dump = server.ask(request)
        assert dump.endswith((b"END\r\n", b"EN\r\n")), dump[-100:]
        assert len(set(re.findall(line, dump, re.MULTILINE))) == count
