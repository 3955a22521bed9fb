"""What the server tells about itself."""

import re

import pytest

from wire import Mask

# Names that monitoring reads; each must be there and be a number.
GENERAL = """
    pid uptime time pointer_size rusage_user rusage_system curr_connections total_connections rejected_connections
    cmd_get cmd_set cmd_touch cmd_flush get_hits get_misses get_expired get_flushed
    delete_hits delete_misses incr_hits incr_misses decr_hits decr_misses
    cas_hits cas_misses cas_badval touch_hits touch_misses
    bytes_read bytes_written limit_maxbytes threads bytes curr_items total_items evictions
""".split()


def test_general_names(subject):
    stats = subject.stats()
    assert [name for name in GENERAL if name not in stats] == []
    assert [name for name in GENERAL if not re.fullmatch(r"\d+(\.\d+)?", stats[name])] == []
    assert stats["version"]
    assert int(stats["pid"]) == subject.process.pid


def test_counters_count(make_server):
    server = make_server().start()
    server.ask(
        b"set a 0 0 1\r\n1\r\nset b 0 0 1\r\nx\r\nget a\r\nget a b c\r\ndelete b\r\ndelete b\r\nincr a 1\r\nincr c 1\r\n"
        b"decr a 1\r\ndecr c 1\r\ncas a 0 0 1 999999999999\r\n1\r\ncas c 0 0 1 1\r\n1\r\ntouch a 0\r\ntouch c 0\r\n"
    )
    stats = {name: int(value) for name, value in server.stats().items() if value.isdigit()}
    expected = {
        "get_hits": 3, "get_misses": 1, "delete_hits": 1, "delete_misses": 1, "incr_hits": 1, "incr_misses": 1,
        "decr_hits": 1, "decr_misses": 1, "cas_badval": 1, "cas_misses": 1, "touch_hits": 1, "touch_misses": 1,
        "curr_items": 1, "cmd_flush": 0,
    }  # fmt: skip
    assert {name: stats[name] for name in expected} == expected
    assert stats["total_items"] >= 2
    assert stats["bytes"] > 0

    server.ask(b"flush_all\r\nstats reset\r\n")
    after = server.stats()
    assert after["get_hits"] == "0" and after["get_misses"] == "0"


def test_settings(subject):
    settings = subject.stats(b"settings")
    for name in ("maxbytes", "maxconns", "tcpport", "num_threads", "item_size_max", "verbosity"):
        assert settings[name].isdigit(), name
    assert int(settings["tcpport"]) == subject.port
    assert int(settings["item_size_max"]) == 1 << 20


@pytest.mark.parametrize("group", ["items", "slabs", "sizes", "conns", "settings"])
def test_groups_are_well_formed(subject, group):
    subject.ask(b"set present 0 0 1\r\nx\r\n")
    answer = subject.ask(b"stats %s\r\nmn\r\n" % group.encode())
    *lines, end, after = answer.decode().split("\r\n")[:-1]
    assert (end, after) == ("END", "MN")
    assert [line for line in lines if not re.fullmatch(r"STAT \S+( .*)?", line)] == []


@pytest.mark.flowstone
@pytest.mark.parametrize("group", [b"flash", b"index", b"admission"])
def test_groups_of_our_own(subject, group):
    stats = subject.stats(group)
    assert stats, "an empty answer"
    assert any(value.isdigit() for value in stats.values())


@pytest.mark.flowstone
def test_flash_hits_are_counted_apart(make_server):
    server = make_server().start()
    server.ask(b"set cold 0 0 1\r\nx\r\n")
    server.spill()
    server.ask(b"set warm 0 0 1\r\nx\r\n")
    before = server.flash_hits()
    server.ask(b"get warm\r\n")
    assert server.flash_hits() == before
    server.ask(b"get cold\r\n")
    assert server.flash_hits() == before + 1


def metadump(server):
    answer = server.ask(b"lru_crawler metadump all\r\n")
    assert answer.endswith(b"END\r\n"), answer[-100:]
    items = {}
    for line in answer.splitlines()[:-1]:
        fields = dict(word.split(b"=", 1) for word in line.split())
        key = re.sub(rb"%([0-9A-Fa-f]{2})", lambda match: bytes([int(match[1], 16)]), fields[b"key"])
        assert key not in items, f"{key} is listed twice"
        items[key] = fields
    return items


def test_metadump_lists_every_item_once(make_server):
    server = make_server().start()
    keys = [b"dump.%d" % n for n in range(500)] + [b"dump.with%percent", b"dump.\xff"]
    server.ask(b"".join(b"set %s 0 %d 1\r\nx\r\n" % (key, n % 2 * 1000) for n, key in enumerate(keys)))
    server.ask(b"get dump.3\r\n")
    items = metadump(server)
    assert sorted(items) == sorted(keys)
    assert items[b"dump.0"][b"exp"] == b"-1"
    assert int(items[b"dump.1"][b"exp"]) > 1_000_000_000, "an absolute time"
    assert {b"exp", b"la", b"cas", b"fetch", b"cls", b"size"} <= set(items[b"dump.0"])


@pytest.mark.flowstone
def test_metadump_sees_dram_and_flash(make_server):
    server = make_server().start()
    server.ask(b"".join(b"set cold.%d 0 0 1\r\nx\r\n" % n for n in range(500)))
    server.spill()
    server.ask(b"".join(b"set warm.%d 0 0 1\r\nx\r\n" % n for n in range(500)) + b"delete cold.7\r\n")
    items = metadump(server)
    assert {key for key in items if key.startswith(b"cold.")} == {b"cold.%d" % n for n in range(500) if n != 7}
    assert {key for key in items if key.startswith(b"warm.")} == {b"warm.%d" % n for n in range(500)}


def test_malformed_admin_commands(subject, oracle):
    for request in (b"lru_crawler\r\n", b"stats nonsense\r\n", b"verbosity x\r\n"):
        assert Mask().lines(subject.ask(request))[0][:5] == Mask().lines(oracle.ask(request))[0][:5], request
