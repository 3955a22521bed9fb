"""Flashield's table 8: a hit in memory, a hit on flash and a miss of the preset `flashield`, against memcached without
extstore.

One server has few items, all in memory; one has them on flash, with everything admitted, so that its index is full when
keys are asked for that nobody has stored. Latencies are those of one connection, throughput is that of 64.
"""

from .. import generator
from ..servers import MIB, Flowstone, Memcached

NAME = "table8"
ROWS = ["flashield-dram", "flashield-miss"]
# Shapes of the load: connections, and which of its figures is kept for a ratio.
CLIENTS = (1, 64)
# Longer than the keys that are stored: such a key is none of them.
ABSENT = ["--key-size", "31"]


def run(bench, wanted):
    """Measures the rows in `wanted`."""
    scale = bench.scale
    preset = ["--preset", "flashield"]
    memcached = Memcached(bench, "memcached", scale.limit, scale.limit * 3 // 4 // MIB).start()
    memory = Flowstone(bench, "flashield", scale.limit, scale.flash, more=preset).start()
    flash = Flowstone(bench, "flashield-flash", scale.small_limit, scale.flash,
                      more=[*preset, "--set", "cache.admission=all"]).start()
    for server, keys in ((memcached, scale.dram_items), (memory, scale.dram_items), (flash, scale.items)):
        generator.load(server, keys)
        if server is flash:
            server.settle()
        server.process.pause()

    # What is asked of whom, how often it is there, and with which it is compared.
    asked = {
        "memcached, hits": (memcached, scale.dram_items, [], 1.0),
        "flashield, hits in memory": (memory, scale.dram_items, [], 1.0),
        "flashield, hits on flash": (flash, scale.items, [], 0.9),
        "memcached, misses": (memcached, scale.dram_items, ABSENT, 0.0),
        "flashield, misses": (flash, scale.items, ABSENT, 0.0),
    }
    compared = {
        "flashield-dram": ("flashield, hits in memory", "memcached, hits"),
        "flashield-miss": ("flashield, misses", "memcached, misses"),
    }
    ratios = {name: [] for name in compared if name in wanted}
    faults = set()
    for number in range(bench.rounds):
        means = {}
        for label, (server, keys, more, least) in asked.items():
            for clients in CLIENTS:
                bench.say(f"round {number + 1}: {label}, {clients} connections")
                reads = flash_reads(server)
                with bench.awake(server):
                    report = generator.measure(server, keys, scale.measure_s, scale.warmup_s, clients=clients, more=more)
                    reads = flash_reads(server) - reads
                found = report["hits"] / report["requests"]
                if found < least or least == 0.0 < found:
                    faults.add(f"{label}: {found:.1%} found")
                if clients == 1:
                    means[label] = report["get"]["mean_us"]
                bench.table.keep(f"{label}, {clients} connections", {
                    "gets_per_s": report["requests"] / report["duration_s"], "hit_ratio": found,
                    "mean_us": report["get"]["mean_us"], "p50_us": report["get"]["p50_us"],
                    "p99_us": report["get"]["p99_us"], "cpu_us_per_op": report["cpu_us_per_op"],
                    "flash_reads": reads, "flash_share": report["flash_share"]})
        for name in ratios:
            ours, other = compared[name]
            ratios[name].append(means[ours] / means[other])
    for name, values in ratios.items():
        bench.table.record(name, values, sorted(faults))
    for server in (flash, memory, memcached):
        server.close()


def flash_reads(server):
    """Reads of flash so far; none of memcached."""
    if isinstance(server, Memcached):
        return 0
    server.process.resume()
    return server.stats("flash")["flash_reads"]
