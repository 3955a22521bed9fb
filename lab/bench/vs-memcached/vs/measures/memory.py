"""What Flowstone keeps in memory: all of it under SETs, and what grows with the objects on flash."""

import threading
from statistics import linear_regression

from .. import generator
from ..servers import MIB, Flowstone, flowstone_memory_bytes

NAME = "memory"
ROWS = ["rss", "dram-per-object", "objects"]
INDEX_PERCENT = 75
OBJECTS_LIMIT = 512 * MIB


def run(bench, wanted):
    """Measures the rows in `wanted`."""
    if "rss" in wanted:
        resident(bench)
    if wanted & {"dram-per-object", "objects"}:
        slope(bench)


class Sampler:
    """The most memory a process was seen to have resident."""

    def __init__(self, server, bench):
        self.server = server
        self.bench = bench
        self.most = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self.over.wait(0.25):
            try:
                self.most = max(self.most, self.server.process.resident_bytes()[0])
            except (OSError, KeyError):
                return

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def resident(bench):
    """SETs for minutes over more keys than flash can hold, so that everything that can grow has grown."""
    scale = bench.scale
    server = Flowstone(bench, "flowstone", scale.limit, scale.flash).start()
    bench.say(f"SETs for {scale.rss_s} s")
    with Sampler(server, bench) as sampler:
        report = generator.measure(server, scale.rss_keys, scale.rss_s, pipeline=16, ratio="0:1")
    now, most = server.process.resident_bytes()
    stats = server.stats("", "flash", "reclaim")
    bench.table.keep("resident memory under SETs", {
        "memory": server.memory_bytes, "resident_at_end": now, "most_sampled": sampler.most, "most_ever": most,
        "sets_per_s": report["ops_per_s"], "set_p999_us": report["set"]["p999_us"],
        "objects_on_flash": stats["objects_on_flash"], "segments_reclaimed": stats["segments_reclaimed"],
        "clwa": stats["clwa"], "cgroup_most": server.cgroup.usage()["most"]})
    bench.table.record("rss", most / server.memory_bytes)
    server.close()


def slope(bench):
    """Memory that grows with the number of objects: the index, and whatever else the process has grown
    by beyond its DRAM tier."""
    scale = bench.scale
    points = []
    for items in scale.slope_items:
        server = Flowstone(bench, "flowstone", scale.slope_limit, scale.slope_flash,
                           more=["--set", f"cache.index_percent={INDEX_PERCENT}"]).start()
        bench.say(f"{items} items, for the memory they need")
        generator.load(server, items)
        server.settle()
        stats = server.stats("", "index")
        resident_now = server.process.resident_bytes()[0]
        total = stats["fixed_dram_bytes"] + stats["index_dram_bytes"] + stats["dram_tier_limit_bytes"]
        points.append({"objects": stats["objects_on_flash"], "index": stats["index_dram_bytes"],
                       "resident": resident_now, "tier": stats["dram_tier_bytes"], "fixed": stats["fixed_dram_bytes"],
                       "engine": total, "index_full": stats["index_full"]})
        bench.table.keep(f"memory with {items} items", points[-1])
        server.close()
    objects = [point["objects"] for point in points]
    by_index = linear_regression(objects, [point["index"] for point in points]).slope
    by_process = linear_regression(objects, [point["resident"] - point["tier"] for point in points]).slope
    last = points[-1]
    each = last["index"] / last["objects"]
    # The least favourable of: the slope, and the plain quotient with all that the index starts with.
    worst = max(by_index, each)
    # What the server keeps for itself is the same with more memory.
    engine = flowstone_memory_bytes(OBJECTS_LIMIT) - (flowstone_memory_bytes(scale.slope_limit) - last["engine"])
    room = min(engine * INDEX_PERCENT // 100, engine - last["fixed"])
    bench.table.keep("DRAM per flash object", {
        "index_slope": by_index, "index_quotient": each, "process_slope": by_process, "index_room": room})
    bench.table.record("dram-per-object", worst)
    bench.table.record("objects", room / worst / 1e6)
