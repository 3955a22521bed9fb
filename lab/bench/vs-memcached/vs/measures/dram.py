"""GETs of items in memory, against memcached without extstore."""

from .. import generator
from ..servers import MIB, Flowstone, Memcached

NAME = "dram"
ROWS = ["dram-64", "dram-8x16"]
SHAPES = {"dram-64": (64, 1), "dram-8x16": (8, 16)}


def run(bench, wanted):
    """Measures the rows in `wanted`."""
    scale = bench.scale
    memcached = Memcached(bench, "memcached", scale.limit, scale.limit * 3 // 4 // MIB).start()
    flowstone = Flowstone(bench, "flowstone", scale.limit, scale.flash).start()
    for server in (memcached, flowstone):
        generator.load(server, scale.dram_items)
        server.process.pause()
    ratios = {name: [] for name in SHAPES if name in wanted}
    shares = []
    for number in range(bench.rounds):
        for name in ratios:
            clients, pipeline = SHAPES[name]
            rates = {}
            for server in (memcached, flowstone):
                bench.say(f"round {number + 1}: {server.label}, {clients} connections x {pipeline}, from memory")
                with bench.awake(server):
                    report = generator.measure(server, scale.dram_items, scale.measure_s, scale.warmup_s,
                                               clients=clients, pipeline=pipeline)
                rates[server.label] = report["hits_per_s"]
                bench.table.keep(f"{server.label}, {clients} x {pipeline} from memory", {
                    "hits_per_s": report["hits_per_s"], "hit_ratio": report["hit_ratio"],
                    "p50_us": report["get"]["p50_us"], "p99_us": report["get"]["p99_us"],
                    "cpu_us_per_hit": report["cpu_us_per_hit"], "server_cores": report["server_cores"],
                    "generator_us_per_op": report["generator_cpu_us_per_op"]})
            shares.append(report["flash_share"])
            ratios[name].append(rates["flowstone"] / rates["memcached"])
    faults = [f"{max(shares):.1%} of the hits came from flash"] if max(shares) > 0.01 else []
    for name, values in ratios.items():
        bench.table.record(name, values, faults)
    flowstone.close()
    memcached.close()
