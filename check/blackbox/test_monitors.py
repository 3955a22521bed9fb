"""Statistics as monitoring programs read them, and `docs/guide/statistics.md`, which has every field."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import monitors
from servers import HOST, wait_until

GROUPS = ["", "settings", "items", "slabs", "sizes", "conns", "flash", "index", "reclaim", "admission", "wear"]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "statistics.md"
MEMCACHED_TOOL = Path("/usr/share/memcached/scripts/memcached-tool")


def fields_on_page():
    """The fields of every group, and those among them that are not always there."""
    always, sometimes, group = {}, {}, None
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            heading = re.fullmatch(r"## `stats ?(\w*)`", line)
            group = heading and heading[1]
        elif group is not None and (row := re.match(r"\| `([^`]+)`( \(not always\))? \|", line)):
            assert row[1] not in always.get(group, set()) | sometimes.get(group, set()), f"{row[1]} is told twice"
            (sometimes if row[2] else always).setdefault(group, set()).add(row[1])
    return always, sometimes


def store(server, count, value_bytes=10, expiry=0, prefix=b"item"):
    value = b"x" * value_bytes
    with server.connect() as connection:
        for first in range(0, count, 200):
            batch = b"".join(
                b"set %s.%d 0 %d %d noreply\r\n%s\r\n" % (prefix, number, expiry, value_bytes, value)
                for number in range(first, min(first + 200, count))
            )
            assert connection.roundtrip(batch) == b""


@pytest.mark.flowstone
@pytest.mark.parametrize("group", GROUPS)
def test_the_page_has_every_field_and_no_other(subject, group):
    always, sometimes = fields_on_page()
    assert set(always) == set(GROUPS), "a part for each group"
    printed = {re.sub(r"^\d+:", "N:", name) if group == "conns" else name for name in subject.stats(group.encode())}
    assert printed - always[group] - sometimes.get(group, set()) == set(), "not on the page"
    assert always[group] - printed == set(), "not printed"


@pytest.mark.flowstone
def test_what_is_not_always_there_is_there_at_times(make_server):
    server = make_server().start()
    assert "dram_bits_per_object" not in server.stats(b"index"), "the index is as large as it is empty"
    store(server, 30_000, 200)
    server.spill()
    bits = float(server.stats(b"index")["dram_bits_per_object"])
    assert 8 < bits < 500
    _, sometimes = fields_on_page()
    beside = server.directory / "tiered"
    beside.mkdir()
    tiers = make_server(options=["--preset", "slickcache"], directory=beside)
    of_tiers = set(tiers.start().stats(b"index")) - set(server.stats(b"index"))
    assert {"tier1_hits", "tier2_hits", "tier3_hits"} <= of_tiers
    beside = server.directory / "sliced"
    beside.mkdir()
    sliced = make_server(options=["--preset", "sliced"], directory=beside)
    of_slices = set(sliced.start().stats(b"index")) - set(server.stats(b"index"))
    assert {"index_hit_reads", "index_tables_flushed"} <= of_slices
    beside = server.directory / "limited"
    beside.mkdir()
    limited = make_server(options=["--flash-write-limit", "20MiB"], directory=beside)
    of_limit = set(limited.start().stats(b"flash")) - set(server.stats(b"flash"))
    assert "flash_write_limit" in of_limit
    beside = server.directory / "learning"
    beside.mkdir()
    learning = make_server(options=["--preset", "flashield"], directory=beside)
    of_learner = set(learning.start().stats(b"admission")) - set(server.stats(b"admission"))
    assert {"lessons", "samples"} <= of_learner
    of_keyless = set(learning.stats(b"index")) - set(server.stats(b"index"))
    assert {"index_ghosts", "index_recorded_lost"} <= of_keyless
    of_index = {"dram_bits_per_object"} | of_tiers | of_slices | of_keyless
    assert sometimes == {"index": of_index, "flash": of_limit, "admission": of_learner}


def use_a_little(server):
    server.ask(b"set a 0 0 1\r\n1\r\nset b 0 60 1\r\n1\r\nget a b c\r\nincr a 1\r\ntouch b 90\r\ncas a 0 0 1 1\r\n2\r\n")


def test_the_exporter_finds_the_server_up(make_server):
    server = make_server().start()
    monitors.exporter(server)
    use_a_little(server)
    samples = monitors.exporter(server)
    assert samples["commands_total", "get", "hit"] == 2
    assert samples["commands_total", "set", "hit"] == 2
    assert samples["commands_total", "cas", "miss"] + samples["commands_total", "cas", "badval"] == 1
    assert samples["curr_items",] == 2
    slabs = {labels[0] for metric, *labels in samples if metric == "slab_chunk_size"}
    assert sum(samples["slab_number", slab] for slab in slabs) == 2


@pytest.mark.flowstone
def test_the_exporter_finds_all_fields_but_those_of_parts_that_are_not_there(subject):
    metrics = {metric for metric, *_ in monitors.exporter(subject)}
    wanted = set(monitors.EXPORTER_GENERAL) | {"extstore_" + name for name in monitors.EXPORTER_EXTSTORE}
    wanted |= {"slab_" + name for name in monitors.EXPORTER_ITEMS + monitors.EXPORTER_SLABS}
    assert wanted - metrics == set()


def test_memcached_tool_shows_a_row_for_each_class(make_server):
    server = make_server().start()
    use_a_little(server)
    rows = monitors.memcached_tool_display(server)
    assert sum(row["Count"] for row in rows.values()) == 2
    assert all(row["Pages"] >= 1 and row["Item_Size"] > 0 for row in rows.values())
    assert all(row["Evicted"] == 0 and row["OOM"] == 0 for row in rows.values())


@pytest.mark.skipif(not MEMCACHED_TOOL.exists() or not shutil.which("perl"), reason="no memcached-tool")
def test_memcached_tool_itself_shows_them(make_server):
    server = make_server().start()
    use_a_little(server)
    for mode in ("display", "stats", "settings", "sizes"):
        command = ["perl", "-w", str(MEMCACHED_TOOL), f"{HOST}:{server.port}", mode]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert "uninitialized" not in done.stderr, done.stderr
        header, *rows = done.stdout.splitlines()
        assert rows, f"{mode}: nothing below {header!r}"
        if mode == "display":
            words = rows[0].split()
            assert len(words) == 9 and words[2].endswith("s") and words[5] in ("yes", "no"), rows[0]


def test_telegraf_finds_its_fields_as_integers(make_server):
    server = make_server().start()
    use_a_little(server)
    with server.connect() as connection:
        connection.send(b"stats\r\n")
        while (line := connection.read_line()) != b"END\r\n":
            assert line.startswith(b"STAT ") and len(line.split(b" ", 2)) == 3, line
    stats = server.stats()
    assert [name for name in monitors.TELEGRAF if not stats.get(name, "").isdigit()] == []


def test_datadog_finds_its_fields_as_numbers(make_server):
    server = make_server().start()
    use_a_little(server)
    found = monitors.datadog(server)
    wanted = {(group, name) for group, names in monitors.DATADOG.items() for name in names}
    assert wanted - set(found) == set()
    assert found["", "bytes"] <= found["", "limit_maxbytes"], "fill_percent"
    assert 20 < found["", "bytes"] / found["", "curr_items"] < 200, "avg_item_size"


@pytest.mark.flowstone
def test_what_goes_to_flash_is_not_evicted_and_still_counts(make_server):
    server = make_server().start()
    store(server, 20_000, 4096)
    wait_until(lambda: int(server.stats(b"flash")["demotions"]) > 5000, "items to leave memory")
    stats, items = server.stats(), server.stats(b"items")
    assert (stats["evictions"], items["items:1:evicted"]) == ("0", "0")
    assert stats["curr_items"] == items["items:1:number"] == "20000"
    bytes_stored = 20_000 * 4096
    assert bytes_stored < int(stats["bytes"]) < bytes_stored * 5 // 4
    assert int(stats["bytes"]) < int(stats["limit_maxbytes"])
    assert int(stats["extstore_bytes_used"]) < int(stats["bytes"])


@pytest.mark.flowstone
def test_evictions_are_live_items_that_are_gone(make_server):
    server = make_server(flash_size="128MiB").start()
    store(server, 60_000, 4096, expiry=3600)
    # Reads would bring items to memory, and others out of it.
    found = server.ask(b"lru_crawler metadump all\r\n").count(b"key=item.")
    stats, items = server.stats(), server.stats(b"items")
    evicted = int(stats["evictions"])
    assert evicted > 20_000
    # A copy on flash may go while memory has the item, which is then counted twice.
    assert 60_000 <= found + evicted <= 60_000 * 101 // 100
    assert abs(int(stats["curr_items"]) - found) < 3000, "an estimate"
    assert items["items:1:evicted"] == items["items:1:evicted_nonzero"] == stats["evictions"]
    assert int(stats["evicted_unfetched"]) + int(stats["evicted_active"]) == evicted
    server.ask(b"stats reset\r\n")
    stats, items = server.stats(), server.stats(b"items")
    assert (stats["evictions"], stats["evicted_unfetched"], items["items:1:evicted"]) == ("0", "0", "0")
    assert (stats["total_items"], stats["total_connections"]) == ("0", "1")


@pytest.mark.flowstone
def test_after_flush_all_nothing_is_counted(make_server):
    server = make_server().start()
    store(server, 20_000, 4096)
    server.ask(b"flush_all\r\nset after 0 0 1\r\nx\r\n")
    stats = server.stats()
    assert stats["curr_items"] == "1" and int(stats["bytes"]) < 200
    # The crawler gives the memory back though nobody asks for it.
    wait_until(lambda: int(server.stats(b"index")["dram_tier_bytes"]) < 16 << 20, "memory to be given back")
    assert server.stats(b"index")["dram_items"] == "1"


@pytest.mark.flowstone
def test_expired_items_go_by_themselves(make_server):
    server = make_server().start()
    store(server, 50_000, 400, expiry=2)
    store(server, 100, 400, prefix=b"stays")
    wait_until(lambda: server.stats()["curr_items"] == "100", "the crawler to find what has expired")
    stats = server.stats()
    assert stats["crawler_reclaimed"] == stats["expired_unfetched"] == "50000"
    assert (stats["evictions"], stats["extstore_objects_written"]) == ("0", "0")
    wait_until(lambda: int(server.stats(b"index")["dram_tier_bytes"]) < 8 << 20, "memory to be given back")
    assert server.ask(b"get stays.99\r\n").startswith(b"VALUE ")


@pytest.mark.flowstone
def test_only_misses_that_cost_a_read_are_misses_of_flash(make_server):
    server = make_server().start()
    server.ask(b"get none\r\n" * 100)
    stats = server.stats()
    assert (stats["get_misses"], stats["flash_misses"]) == ("100", "0")
