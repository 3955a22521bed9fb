"""SETs at full speed, and how many of the items are still there afterwards."""

from .. import generator
from ..servers import Flowstone, extstore

NAME = "writes"
ROWS = ["set-pipeline", "kept"]


def run(bench, _wanted):
    """Each round loads both servers anew and reads all keys back."""
    scale = bench.scale
    ratios, kept = [], []
    for number in range(bench.rounds):
        rates = {}
        for label in ("extstore", "flowstone"):
            if label == "extstore":
                server = extstore(bench)
            else:
                server = Flowstone(bench, label, scale.limit, scale.flash)
            server.start()
            bench.say(f"round {number + 1}: {label}, {scale.items} SETs at full speed, then every key read")
            report = generator.load(server, scale.items)
            server.settle()
            share = 100 * generator.scan(server, scale.items) / scale.items
            rates[label] = report["load_ops_per_s"]
            bench.table.keep(f"{label} at full speed", {
                "sets_per_s": report["load_ops_per_s"], "p99_us": report["load_p99_us"],
                "cpu_us_per_set": report["load_cpu_us_per_op"], "errors": report["errors"], "kept_percent": share})
            server.close()
        ratios.append(rates["flowstone"] / rates["extstore"])
        kept.append(share)
    bench.table.record("set-pipeline", ratios)
    # Not the median: no round may lose an item.
    bench.table.record("kept", min(kept))
