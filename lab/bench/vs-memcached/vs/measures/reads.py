"""Random GETs of items on flash: extstore, Flowstone with the same memory, Flowstone with a quarter of
it, and the bare loop, in turn.

All servers are loaded once and stay alive, each in its own cgroup, for memcached loses its items when
it ends; all but the one being measured are stopped by signal, so that their background threads take no
processor. A round measures each of them once, always in the same order; a row's ratio is formed within
a round.
"""

from .. import generator, storage
from ..servers import MIB, BareLoop, Flowstone, Memcached, extstore

NAME = "reads"
ROWS = ["get-64", "get-64-p99", "get-128", "limit-throughput", "limit-cpu", "flash-cpu", "flash-cpu-128",
        "latency-1"]
NEED_EXTSTORE = {"get-64", "get-64-p99", "get-128", "flash-cpu", "flash-cpu-128"}
NEED_EQUAL = {"get-64", "get-64-p99", "flash-cpu"}
NEED_SMALL = {"get-128", "limit-throughput", "limit-cpu", "flash-cpu-128", "latency-1"}
NEED_BARE = {"limit-throughput", "limit-cpu"}

BARE_LIMIT = 64 * MIB
ENOUGH_KEPT = 0.99
LOOPBACK_MIB = 64


def run(bench, wanted):
    """Measures the rows in `wanted`."""
    scale = bench.scale
    servers = {}
    if wanted & NEED_EXTSTORE:
        servers["extstore"] = load_extstore(bench)
    if wanted & NEED_EQUAL:
        servers["equal"] = load_flowstone(bench, "flowstone", scale.limit)
    if wanted & NEED_SMALL:
        small = servers["small"] = load_flowstone(bench, "flowstone-small", scale.small_limit)
    if wanted & NEED_BARE:
        bench.say("writing and reading through the bare loop's file")
        limit = bench.folder / "limit.dat"
        storage.write_random(limit, small.loaded_bytes)
        storage.read_through(limit)
        servers["bare"] = BareLoop(bench, "bare", BARE_LIMIT, limit).start()
    if "latency-1" in wanted:
        loopback = Memcached(bench, "loopback", None, LOOPBACK_MIB).start()
        generator.load(loopback, bench.scale.dram_items)
        loopback.process.pause()
    for server in servers.values():
        server.process.pause()

    rounds = []
    for number in range(bench.rounds):
        figures = {}
        for label, server in servers.items():
            bench.say(f"round {number + 1}: {server.label}, 64 connections")
            with bench.awake(server):
                warmup = scale.settle_s if number == 0 else scale.warmup_s
                figures[label] = generator.measure(server, scale.items, scale.measure_s, warmup)
            figures[label]["get_p99_us"] = figures[label]["get"]["p99_us"]
            keep(bench, server, figures[label])
        if "latency-1" in wanted:
            figures["one"] = one_connection(bench, small, loopback, servers.get("bare"))
        if "small" in servers:
            deep = storage.random_reads(small.flash_path(), small.loaded_bytes, 64, scale.fio_s)
            bench.table.keep("fio, queue depth 64, Flowstone's file", deep)
        rounds.append(figures)
    record(bench, wanted, rounds)
    bench.close_servers()


def load_extstore(bench):
    """extstore with its items on flash, loaded at the rate at which it keeps them."""
    scale = bench.scale
    rate = bench.options.extstore_load_rate or scale.extstore_load_rate
    server = extstore(bench).start()
    bench.say(f"loading extstore (-m {server.memory_mib}) with {scale.items} items at {rate}/s")
    generator.load(server, scale.items, rate)
    server.settle()
    storage.read_through(server.flash_path())
    stats = server.stats("", "slabs")
    bench.table.keep("extstore loaded", {
        "m_mib": server.memory_mib, "rate": rate, "items": stats["curr_items"], "evictions": stats["evictions"],
        "objects_on_flash": stats["extstore_objects_used"], "slab_bytes": stats["total_malloced"],
        "hash_bytes": stats.get("hash_bytes"), **cgroup_mib(server)})
    server.process.pause()
    return server


def load_flowstone(bench, label, limit):
    """Flowstone with its items on flash."""
    scale = bench.scale
    server = Flowstone(bench, label, limit, scale.flash).start()
    bench.say(f"loading {label} (--memory {server.memory_bytes}) with {scale.items} items")
    report = generator.load(server, scale.items)
    server.settle()
    server.loaded_bytes = server.written_bytes()
    storage.read_through(server.flash_path(), server.loaded_bytes)
    stats = server.stats("", "index", "flash")
    bench.table.keep(f"{label} loaded", {
        "memory": server.memory_bytes, "sets_per_s": report["load_ops_per_s"], "items": stats["curr_items"],
        "objects_on_flash": stats["objects_on_flash"], "dram_items": stats["dram_items"],
        "resident_mib": server.process.resident_bytes()[0] / MIB, **cgroup_mib(server)})
    server.process.pause()
    return server


def one_connection(bench, small, loopback, bare):
    """Mean latency of a hit from flash, the two latencies it is made of, and what the bare loop makes
    of the same, if there is one."""
    scale = bench.scale
    bench.say("one connection: the device, the loopback, Flowstone")
    device = storage.random_reads(small.flash_path(), small.loaded_bytes, 1, scale.fio_s)
    with bench.awake(loopback):
        round_trip = generator.measure(loopback, scale.dram_items, scale.measure_s / 2, 0.5, clients=1)
    with bench.awake(small):
        report = generator.measure(small, scale.items, scale.measure_s / 2, 0.5, clients=1)
    share = report["flash_share"]
    loop_us = round_trip["get"]["mean_us"]
    # The few hits from memory take a round trip; what remains is what hits from flash take.
    flash_us = (report["get"]["mean_us"] - (1 - share) * loop_us) / share
    figures = {"device_us": device["mean_us"], "loopback_us": loop_us, "get_us": report["get"]["mean_us"],
               "flash_share": share, "flash_get_us": flash_us}
    if bare:
        with bench.awake(bare):
            report = generator.measure(bare, scale.items, scale.measure_s / 2, 0.5, clients=1)
        figures["bare_loop_us"] = report["get"]["mean_us"]
    bench.table.keep("one connection", figures)
    return figures


def keep(bench, server, report):
    """The figures of one run, for the record."""
    bench.table.keep(server.label, {
        "hits_per_s": report["hits_per_s"], "hit_ratio": report["hit_ratio"], "flash_share": report["flash_share"],
        "p50_us": report["get"]["p50_us"], "p99_us": report["get"]["p99_us"], "p999_us": report["get"]["p999_us"],
        "cpu_us_per_hit": report["cpu_us_per_hit"], "cpu_us_per_flash_hit": report["cpu_us_per_flash_hit"],
        "server_cores": report["server_cores"], "generator_us_per_op": report["generator_cpu_us_per_op"],
        **cgroup_mib(server)})


def cgroup_mib(server):
    """What the server's group holds, in MiB."""
    return {f"{name}_mib": round(value / MIB, 1) for name, value in server.cgroup.usage().items()
            if value is not None and name != "killed"}


def record(bench, wanted, rounds):
    """Forms each row's ratios, round by round."""
    def ratios(top, bottom, figure):
        return [r[top][figure] / r[bottom][figure] for r in rounds]

    rows = {
        "get-64": lambda: ratios("equal", "extstore", "hits_per_s"),
        "get-64-p99": lambda: ratios("equal", "extstore", "get_p99_us"),
        "get-128": lambda: ratios("small", "extstore", "hits_per_s"),
        "limit-throughput": lambda: ratios("small", "bare", "hits_per_s"),
        "limit-cpu": lambda: ratios("small", "bare", "cpu_us_per_hit"),
        "flash-cpu": lambda: ratios("equal", "extstore", "cpu_us_per_flash_hit"),
        "flash-cpu-128": lambda: ratios("small", "extstore", "cpu_us_per_flash_hit"),
        "latency-1": lambda: [r["one"]["flash_get_us"] / (r["one"]["device_us"] + r["one"]["loopback_us"])
                              for r in rounds],
    }
    # Hits are counted, so an extstore that has lost items would look slower than it is.
    kept = min((r["extstore"]["hit_ratio"] for r in rounds if "extstore" in r), default=1)
    lost = [f"extstore has {kept:.1%} of its items: load it more slowly"] if kept < ENOUGH_KEPT else []
    for name, values in rows.items():
        if name in wanted:
            bench.table.record(name, values(), lost if name in NEED_EXTSTORE else [])
