"""`flowstone bench` as the one load generator, and what it has seen."""

import json

from .process import command


class GeneratorError(Exception):
    """A run whose figures cannot be used."""


def _run(server, words, timeout_s):
    bench = server.bench
    # The same seed twice asks for the same keys twice, and they would be in memory the second time.
    # Counted for each server, so that the first run of each asks for the same keys, the second...
    server.runs += 1
    server.process.check()
    output = command([str(bench.flowstone), "bench", "--server", f"127.0.0.1:{server.port}", "--json",
                      "--seed", str(server.runs), "--threads", str(bench.options.generator_threads), *map(str, words)], timeout_s)
    server.process.check()
    report = json.loads(output)
    if report.get("errors"):
        bench.note(f"{server.label}: {report['errors']} errors, the first: {report.get('first_error')}")
        wrong = report.get("corrupt_values")
        if wrong:
            raise GeneratorError(f"{server.label} returned {wrong} wrong values")
    return report


def load(server, keys, rate=None, pipeline=16):
    """Stores every key once; returns the report."""
    words = ["--keys", keys, "--load-only", "--load-pipeline", pipeline]
    if rate:
        words += ["--load-rate", rate]
    before = server.process.cpu_s()
    report = _run(server, words, 3600)
    report["load_cpu_us_per_op"] = (server.process.cpu_s() - before) * 1e6 / max(1, report["load_keys"])
    return report


def scan(server, keys):
    """Reads every key once, checking each value's bytes; returns how many there are."""
    return _run(server, ["--keys", keys, "--scan", "--verify", "--pipeline", 4], 3600)["hits"]


def measure(server, keys, seconds, warmup=0.0, clients=64, pipeline=1, ratio="1:0", rate=None, more=()):
    """One measured run: the generator's report, with what came from flash added."""
    words = ["--keys", keys, "--clients", clients, "--pipeline", pipeline, "--ratio", ratio,
             "--server-pid", server.process.pid, *more]
    if rate:
        words += ["--rate", rate]
    if warmup:
        _run(server, [*words, "--duration", warmup], 3600)
    hits_before = server.flash_hits()
    report = _run(server, [*words, "--duration", seconds], 3600)
    if hits_before is not None:
        report["flash_hits"] = server.flash_hits() - hits_before
        report["flash_share"] = report["flash_hits"] / max(1, report["hits"])
    else:
        report["flash_hits"] = report["hits"]
        report["flash_share"] = 1.0
    cpu_s = report.get("cpu_us_per_op", 0) * report["requests"] / 1e6
    report["server_cores"] = cpu_s / report["duration_s"]
    report["cpu_us_per_flash_hit"] = cpu_s * 1e6 / max(1, report["flash_hits"])
    return report

