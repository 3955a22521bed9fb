"""What monitoring programs make of `stats`: their rules of reading, and the fields they ask for.

Told after the sources of memcached's `scripts/memcached-tool` (1.6.45), prometheus/memcached_exporter with
grobie/gomemcache, Telegraf's `inputs.memcached` and Datadog's `mcache` check.
"""

import math
import re

OPERATIONS = ("get", "delete", "incr", "decr", "cas", "touch")

# The fields of Telegraf's plugin; it takes those that it finds.
TELEGRAF = """
    accepting_conns auth_cmds auth_errors bytes bytes_read bytes_written cas_badval cas_hits cas_misses cmd_flush
    cmd_get cmd_set cmd_touch conn_yields connection_structures curr_connections curr_items decr_hits decr_misses
    delete_hits delete_misses evicted_active evicted_unfetched evictions expired_unfetched get_expired get_flushed get_hits
    get_misses hash_bytes hash_is_expanding hash_power_level incr_hits incr_misses limit_maxbytes
    listen_disabled_num max_connections reclaimed rejected_connections store_no_memory store_too_large threads
    total_connections total_items touch_hits touch_misses uptime
""".split()

# Datadog's gauges and rates: of `stats`, of each class in `stats items`, and of `stats slabs`.
DATADOG = {
    "": """
        total_items curr_items limit_maxbytes uptime bytes curr_connections max_connections connection_structures
        threads pointer_size rusage_user rusage_system cmd_get cmd_set cmd_flush get_hits get_misses delete_misses
        delete_hits evictions bytes_read bytes_written cas_misses cas_hits cas_badval total_connections
        listen_disabled_num
    """.split(),
    "items": """
        evicted evicted_nonzero expired_unfetched evicted_unfetched outofmemory tailrepairs reclaimed
        crawler_reclaimed lrutail_reflocked direct_reclaims number age evicted_time
    """.split(),
    "slabs": """
        get_hits cmd_set delete_hits incr_hits decr_hits cas_hits cas_badval touch_hits used_chunks chunk_size
        chunks_per_page total_pages total_chunks free_chunks free_chunks_end active_slabs total_malloced
    """.split(),
}

# What the exporter takes where it is there.
EXPORTER_GENERAL = """
    uptime time cmd_flush bytes limit_maxbytes curr_items total_items bytes_read bytes_written
    curr_connections total_connections rejected_connections conn_yields listen_disabled_num evictions reclaimed
    store_too_large store_no_memory lru_crawler_starts direct_reclaims crawler_items_checked crawler_reclaimed
    accepting_conns total_malloced
""".split()
EXPORTER_EXTSTORE = """
    compact_rescues page_allocs page_evictions page_reclaims pages_free pages_used objects_evicted objects_read
    objects_written objects_used bytes_evicted bytes_written bytes_read bytes_used bytes_fragmented limit_maxbytes
""".split()
EXPORTER_ITEMS = """
    number age crawler_reclaimed evicted evicted_nonzero evicted_time evicted_unfetched expired_unfetched
    mem_requested outofmemory reclaimed tailrepairs
""".split()
EXPORTER_SLABS = """
    chunk_size chunks_per_page total_pages total_chunks used_chunks free_chunks free_chunks_end mem_requested
""".split()


def datadog(server):
    """The values of the fields that the check asks for, by group and field: numbers, or it raises."""
    found = {}
    for group, fields in DATADOG.items():
        for name, value in server.stats(group.encode()).items():
            name = name.split(":")[-1]
            if name in fields:
                found[group, name] = float(value)
    return found


def exporter(server):
    """The samples of the exporter by name and labels; raises where it says that the server is down.

    It reads `stats`, `stats slabs` and `stats items` on one connection. Every line of three words counts: by the
    colons in its name it is a figure of all, of a slab class or of a class of items. A class of slabs without
    `cmd_set`, `cas_hits` and `cas_badval`, or a sample that comes twice, spoils the answer.
    """
    general, slabs, items = {}, {}, {}
    with server.connect() as connection:
        for group in (b"stats\r\n", b"stats slabs\r\n", b"stats items\r\n"):
            connection.send(group)
            while (line := connection.read_line()) != b"END\r\n":
                words = line.split(b" ")
                assert words[0] == b"STAT", line
                if len(words) != 3:
                    continue
                name, value = words[1].decode().split(":"), words[2].decode().strip()
                if len(name) == 1:
                    general[name[0]] = value
                elif len(name) == 2:
                    slabs.setdefault(int(name[0]), {})[name[1]] = value
                elif len(name) == 3:
                    items.setdefault(int(name[1]), {})[name[2]] = value
        connection.send(b"stats settings\r\n")
        settings = {}
        while (line := connection.read_line()) != b"END\r\n":
            start, name, value = line.split(b" ", 2)
            assert start == b"STAT", line
            settings[name.decode()] = value.decode().strip()

    samples = {}

    def sample(metric, value, *labels):
        assert (metric, *labels) not in samples, f"{metric}{labels} was collected before"
        assert math.isfinite(value)
        samples[metric, *labels] = value

    def take(figures, names, prefix="", labels=()):
        for name in names:
            if name in figures:
                sample(prefix + name, float(figures[name]), *labels)

    def stored(figures, others):
        """Storage commands that are no `cas`: what `cmd_set` counts less those. The answer has to have all of them."""
        return float(figures["cmd_set"]) - sum(float(figures[name]) for name in others)

    def commands(metric, figures, outcomes, *labels):
        for operation in OPERATIONS:
            for outcome, name in outcomes.items():
                if operation + name in figures:
                    sample(metric, float(figures[operation + name]), *labels, operation, outcome)
        if "cas_badval" in figures:
            sample(metric, float(figures["cas_badval"]), *labels, "cas", "badval")

    commands("commands_total", general, {"hit": "_hits", "miss": "_misses"})
    sample("commands_total", stored(general, ["cas_misses", "cas_hits", "cas_badval"]), "set", "hit")
    take(general, EXPORTER_GENERAL)
    for name in ("rusage_user", "rusage_system"):
        seconds, microseconds = general[name].split(".")
        sample(name, float(seconds) + float(microseconds) / 1e6)
    if "extstore_limit_maxbytes" in general:
        take(general, ["extstore_" + name for name in EXPORTER_EXTSTORE])
    for slab, figures in items.items():
        take(figures, EXPORTER_ITEMS, "slab_", (slab,))
    for slab, figures in slabs.items():
        commands("slab_commands_total", figures, {"hit": "_hits"}, slab)
        sample("slab_commands_total", stored(figures, ["cas_hits", "cas_badval"]), slab, "set", "hit")
        take(figures, EXPORTER_SLABS, "slab_", (slab,))
    take(settings, ["maxconns"])
    if settings.get("lru_crawler") == "yes":
        for name in ("lru_crawler", "lru_maintainer_thread"):
            assert settings.get(name, "no") in ("yes", "no")
    return samples


def memcached_tool_display(server):
    """The rows of `memcached-tool HOST:PORT display`, by class; a field that it prints and does not find raises."""
    classes, last = {}, 0
    answer = server.ask(b"stats items\r\n").decode()
    for number, name, value in re.findall(r"^STAT items:(\d+):(\w+) (\d+)", answer, re.MULTILINE):
        classes.setdefault(int(number), {})[name] = int(value)
    answer = server.ask(b"stats slabs\r\n").decode()
    for number, name, value in re.findall(r"^STAT (\d+):(\w+) (\d+)", answer, re.MULTILINE):
        classes.setdefault(int(number), {})[name] = int(value)
        last = int(number)
    rows = {}
    for number in range(1, last + 1):
        figures = classes.get(number, {})
        if figures.get("total_pages", 0) == 0:
            continue
        rows[number] = {
            "Item_Size": figures["chunk_size"],
            "Max_age": figures["age"],
            "Pages": figures["total_pages"],
            "Count": figures["number"],
            "Full?": figures["used_chunks"] == figures["total_chunks"],
            "Evicted": figures["evicted"],
            "Evict_Time": figures["evicted_time"],
            "OOM": figures["outofmemory"],
        }
    return rows
