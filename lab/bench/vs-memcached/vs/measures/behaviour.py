"""One cold key asked for by many, no work at all, and very many connections."""

import time

from .. import client, generator
from ..servers import MIB, Flowstone
from .memory import Sampler

NAME = "behaviour"
ROWS = ["cold-key", "idle-cpu", "connections"]
BUSY_CLIENTS = 64
BUSY_RATIO = "9:1"


def run(bench, wanted):
    """Measures the rows in `wanted`."""
    if "cold-key" in wanted:
        cold_key(bench)
    if "idle-cpu" in wanted:
        idle(bench)
    if "connections" in wanted:
        connections(bench)


def cold_key(bench):
    """The requests of all connections wait in their sockets before the server sees the first: it is
    stopped by signal while they are sent."""
    scale = bench.scale
    server = Flowstone(bench, "flowstone", scale.limit, scale.flash, more=["--max-connections", str(scale.cold_clients + 24)])
    server.start()
    key, value = b"the-one-key", b"v" * 270
    client.store(server.port, key, value)
    generator.load(server, scale.dram_items)
    reads, faults = [], []
    for _ in range(bench.rounds):
        bench.say(f"one cold key, {scale.cold_clients} connections")
        server.restart()
        streams = [client.connect(server.port) for _ in range(scale.cold_clients)]
        # Every connection is known to the server before it is stopped.
        for stream in streams:
            stream.sendall(b"version\r\n")
            client.read_answer(stream, b"\r\n")
        before = server.stats("", "flash")
        server.process.pause()
        for stream in streams:
            stream.sendall(b"get " + key + b"\r\n")
        server.process.resume()
        expected = b"VALUE %s 0 %d\r\n%s\r\nEND\r\n" % (key, len(value), value)
        right = sum(client.read_answer(stream) == expected for stream in streams)
        after = server.stats("", "flash")
        for stream in streams:
            stream.close()
        reads.append(after["flash_reads"] - before["flash_reads"])
        if right != scale.cold_clients:
            faults.append(f"{scale.cold_clients - right} wrong answers")
        if reads[-1] == 0:
            faults.append("the key was not cold")
        bench.table.keep("one cold key", {
            "connections": scale.cold_clients, "right_answers": right, "flash_reads": reads[-1],
            "shared_flights": after["shared_flights"] - before["shared_flights"],
            "dram_hits": after["dram_hits"] - before["dram_hits"]})
    # Not the median: once is enough to fail.
    bench.table.record("cold-key", max(reads), faults)
    server.close()


def idle(bench):
    """A loaded server with open connections and nothing to do."""
    scale = bench.scale
    server = Flowstone(bench, "flowstone", scale.limit, scale.flash).start()
    generator.load(server, scale.items)
    server.settle()
    streams = [client.connect(server.port) for _ in range(BUSY_CLIENTS)]
    time.sleep(3)
    bench.say(f"idle for {scale.idle_s} s")
    cpu, clock = server.process.cpu_s(), time.monotonic()
    time.sleep(scale.idle_s)
    share = 100 * (server.process.cpu_s() - cpu) / (time.monotonic() - clock)
    bench.table.record("idle-cpu", share)
    bench.table.keep("idle", {"percent_of_a_core": share, "connections": len(streams)})
    for stream in streams:
        stream.close()
    server.close()


def connections(bench):
    """Busy connections among thousands of silent ones; what they cost in memory and in speed."""
    scale = bench.scale
    # The kernel's memory for so many sockets is not the server's to bound; it is reported.
    server = Flowstone(bench, "flowstone", None, scale.flash, memory_bytes=scale.connections_memory,
                       more=["--max-connections", str(scale.idle_connections + 200)]).start()
    generator.load(server, scale.items)
    server.settle()
    bench.say("64 connections alone")
    alone = generator.measure(server, scale.items, scale.measure_s, scale.warmup_s)
    before = server.process.resident_bytes()[0]
    bench.say(f"64 connections and {scale.idle_connections} silent ones")
    with Sampler(server, bench) as sampler:
        report = generator.measure(server, scale.items, scale.measure_s, clients=BUSY_CLIENTS, ratio=BUSY_RATIO,
                                   more=["--idle-connections", scale.idle_connections])
    most = max(sampler.most, server.process.resident_bytes()[0])
    faults = []
    if report["errors"]:
        faults.append(f"{report['errors']} errors")
    closed = report.get("idle_connections_closed")
    if report.get("idle_connections") != scale.idle_connections or closed:
        faults.append(f"{closed} of {report.get('idle_connections')} silent connections were closed")
    bench.table.keep("connections", {
        "memory": server.memory_bytes, "resident_with_64": before, "most_resident": most,
        "cgroup_most_mib": (server.cgroup.usage()["most"] or 0) / MIB,
        "ops_per_s": report["ops_per_s"], "gets_per_s_alone": alone["ops_per_s"], "p99_us": report["get"]["p99_us"],
        "p99_us_alone": alone["get"]["p99_us"], "errors": report["errors"]})
    bench.table.record("connections", most / server.memory_bytes, faults)
    server.close()
