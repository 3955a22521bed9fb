"""How the operator's choices for extstore were made. Not part of the table; asked for by name.

`tune-rate` loads at falling rates until extstore keeps (nearly) everything; `tune-memory` compares
values of `-m` around the default by the hits a second they give.
"""

from .. import generator, storage
from ..servers import extstore, extstore_memory_mib
from .reads import cgroup_mib

NAME = "tune"
ROWS = ["tune-rate", "tune-memory"]
RATES = (200_000, 150_000, 100_000, 80_000, 60_000, 40_000, 25_000, 15_000)
ENOUGH_PERCENT = 99.9
STEPS_MIB = (-64, -32, 0, 16, 32)


def run(bench, wanted):
    """Carries out what is `wanted`."""
    if "tune-rate" in wanted:
        rate(bench)
    if "tune-memory" in wanted:
        memory(bench)


def rate(bench):
    """The largest rate of `RATES` at which extstore keeps its items."""
    scale = bench.scale
    for per_s in RATES:
        server = extstore(bench).start()
        bench.say(f"extstore loaded at {per_s}/s")
        report = generator.load(server, scale.items, per_s)
        server.settle()
        kept = 100 * generator.scan(server, scale.items) / scale.items
        bench.table.keep("tune-rate", {"asked_per_s": per_s, "sets_per_s": report["load_ops_per_s"],
                                       "kept_percent": kept})
        server.close()
        if kept >= ENOUGH_PERCENT:
            return


def memory(bench):
    """Hits a second for several values of `-m`."""
    scale = bench.scale
    default = extstore_memory_mib(scale.limit, scale.items)
    load_rate = bench.options.extstore_load_rate or scale.extstore_load_rate
    for step in STEPS_MIB:
        server = extstore(bench, default + step)
        figures = {"m_mib": default + step}
        try:
            server.start()
            bench.say(f"extstore with -m {default + step}")
            generator.load(server, scale.items, load_rate)
            server.settle()
            storage.read_through(server.flash_path())
            report = generator.measure(server, scale.items, scale.measure_s, scale.settle_s)
            figures |= {"hits_per_s": report["hits_per_s"], "hit_ratio": report["hit_ratio"],
                        "p99_us": report["get"]["p99_us"], **cgroup_mib(server)}
        except Exception as error:  # A value that is too large ends in the kernel's hands.
            figures["failed"] = str(error)
        bench.table.keep("tune-memory", figures)
        server.close()
