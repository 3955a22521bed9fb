"""The tail of GETs while SETs are written and segments reclaimed.

Two Flowstones with the same memory: one on a flash that is full, so that every segment written costs
another one reclaimed, and one on a flash with room. The row compares GETs beside SETs and reclaim on
the first with GETs alone on the second, at the same rate of GETs; GETs beside SETs without reclaim are
among the figures, and so is the device's own tail with and without such a stream of writes.
"""

from .. import generator, storage
from ..servers import Flowstone

NAME = "tail"
ROWS = ["tail-open", "tail-closed"]
SET_SHARE = 0.1
RATIO = "9:1"
# Of what the closed loop reaches: well under saturation.
OPEN_SHARE = 0.4


def run(bench, wanted):
    """Measures the rows in `wanted`."""
    scale = bench.scale
    full = Flowstone(bench, "full", scale.limit, scale.reclaim_flash).start()
    roomy = Flowstone(bench, "roomy", scale.limit, scale.flash).start()
    fill(bench, full)
    bench.say("loading the roomy one")
    generator.load(roomy, scale.items)
    for server in (full, roomy):
        server.settle()
        storage.read_through(server.flash_path(), server.written_bytes())
        server.process.pause()
    with bench.awake(roomy):
        saturated = generator.measure(roomy, scale.items, scale.measure_s, scale.settle_s)
    rate = OPEN_SHARE * saturated["ops_per_s"]
    faults, values = [], {}
    for number in range(bench.rounds):
        for row, total in (("tail-open", rate), ("tail-closed", None)):
            if row not in wanted:
                continue
            bench.say(f"round {number + 1}: {row}")
            gets_rate = total and total * (1 - SET_SHARE)
            alone = one(bench, row, roomy, "1:0", gets_rate)
            beside = one(bench, row, full, RATIO, total)
            without = one(bench, row, roomy, RATIO, total)
            if beside["reclaimed"] == 0:
                faults.append(f"{row}: nothing was reclaimed")
            values.setdefault(row, []).append(beside["p999_us"] / alone["p999_us"])
            bench.table.keep(f"{row}, ratios", {
                "reclaim_over_gets_only": beside["p999_us"] / alone["p999_us"],
                "reclaim_over_sets_only": beside["p999_us"] / without["p999_us"]})
    for row, ratios in values.items():
        bench.table.record(row, ratios, [fault for fault in faults if fault.startswith(row)])
    full.close()
    roomy.close()
    own_tail(bench, rate, beside)


def fill(bench, server):
    """SETs until segments are being reclaimed."""
    passes = 0
    while server.stats("reclaim")["segments_reclaimed"] < 8:
        passes += 1
        if passes > 6:
            raise generator.GeneratorError("the small flash does not fill up: nothing is reclaimed")
        bench.say(f"filling the small flash, pass {passes}")
        generator.load(server, bench.scale.items)


def one(bench, row, server, ratio, rate):
    """One run: its tail, and what was reclaimed meanwhile."""
    scale = bench.scale
    with bench.awake(server):
        before = server.stats("reclaim", "flash")
        report = generator.measure(server, scale.items, scale.tail_s, scale.warmup_s, ratio=ratio, rate=rate)
        after = server.stats("reclaim", "flash")
    figures = {"gets_per_s": report["gets"] / report["duration_s"], "hit_ratio": report["hit_ratio"],
               "flash_share": report["flash_share"], "p50_us": report["get"]["p50_us"],
               "p99_us": report["get"]["p99_us"], "p999_us": report["get"]["p999_us"],
               "max_us": report["get"]["max_us"], "unsent": report.get("unsent"),
               "reclaimed": after["segments_reclaimed"] - before["segments_reclaimed"],
               "written_per_s": (after["flash_bytes_written"] - before["flash_bytes_written"])
               / (scale.tail_s + scale.warmup_s)}
    bench.table.keep(f"{row}, {server.label}, {ratio}", figures)
    return figures


def own_tail(bench, rate, beside):
    """The device's tail at that rate of reads, alone and beside such writes."""
    scale = bench.scale
    path = bench.folder / "tail.dat"
    storage.write_random(path, scale.reclaim_flash // 2)
    storage.read_through(path)
    device = storage.reads_beside_writes(path, scale.reclaim_flash // 2, rate * (1 - SET_SHARE) * beside["flash_share"],
                                         beside["written_per_s"], scale.fio_s * 2)
    for name, figures in device.items():
        bench.table.keep(f"fio, the same reads {name}", figures)
    path.unlink()
