"""The rows, their targets, and how they are shown."""

import json
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Row:
    """One measure. `bound` is ">=", "<=" or "<"."""

    name: str
    words: str
    bound: str
    target: float
    unit: str = ""


ROWS = [
    Row("get-64", "GET hits/s, 64 connections, same memory, Flowstone / extstore", ">=", 1.6),
    Row("get-64-p99", "same, 99th percentile latency", "<=", 0.7),
    Row("get-128", "GET hits/s, Flowstone at a quarter of the memory / extstore", ">=", 1.25),
    Row("limit-throughput", "same Flowstone run / bare loop, throughput", ">=", 0.9),
    Row("limit-cpu", "same, server CPU per hit", "<=", 1.2),
    Row("flash-cpu", "server CPU per flash hit, same memory, Flowstone / extstore", "<=", 0.5),
    Row("flash-cpu-128", "same, Flowstone at a quarter of the memory", "<=", 0.5),
    Row("latency-1", "GET from flash, 1 connection: mean / (device + loopback)", "<=", 1.15),
    Row("dram-64", "DRAM-hit GETs, 64 connections, Flowstone / memcached", ">=", 1.0),
    Row("dram-8x16", "DRAM-hit GETs, 8 connections x pipeline 16", ">=", 1.0),
    Row("set-pipeline", "SETs at pipeline 16, full speed, Flowstone / extstore", ">=", 1.0),
    Row("kept", "items kept after loading at full speed", ">=", 100.0, "%"),
    Row("rss", "resident memory / --memory under SETs, the most seen", "<=", 1.05),
    Row("dram-per-object", "DRAM per flash object (slope)", "<=", 12.0, "B"),
    Row("objects", "objects that 512 MiB can serve from flash (computed)", ">=", 30.0, "million"),
    Row("tail-open", "p99.9 of GETs, 10 % SETs and reclaim / GETs only, open loop", "<=", 2.0),
    Row("tail-closed", "same, closed loop", "<=", 2.0),
    Row("cold-key", "flash reads when many connections ask for one cold key", "<=", 1.0),
    Row("idle-cpu", "processor use when idle", "<", 1.0, "%"),
    Row("connections", "10,000 idle + 64 busy connections: resident / --memory", "<=", 1.05),
    Row("flashield-dram", "mean latency of a DRAM hit, 1 connection, preset flashield / memcached", "<=", 1.05),
    Row("flashield-miss", "mean latency of a miss, 1 connection, preset flashield with a full index / memcached", "<=", 1.05),
]
BY_NAME = {row.name: row for row in ROWS}


@dataclass
class Result:
    """Values of one row, one a round, and what else is needed to pass."""

    row: Row
    values: list
    faults: list

    @property
    def value(self):
        """The median."""
        return median(self.values)

    def passed(self):
        """Whether the target is met."""
        if self.faults:
            return False
        value, target = self.value, self.row.target
        return {">=": value >= target, "<=": value <= target, "<": value < target}[self.row.bound]


class Table:
    """Results as they come, and the figures behind them."""

    def __init__(self):
        self.results = {}
        self.raw = {}

    def record(self, name, values, faults=()):
        """The values of a row, one a round. `faults`: why the row fails whatever its value."""
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        self.results[name] = Result(BY_NAME[name], values, list(faults))

    def keep(self, name, figures):
        """Figures that explain rows."""
        self.raw.setdefault(name, []).append(figures)

    def rows_shown(self):
        """(name, words, value, spread, target, verdict) in the order of the table."""
        for row in ROWS:
            result = self.results.get(row.name)
            if result is None:
                continue
            unit = f" {row.unit}" if row.unit else ""
            spread = "" if len(result.values) < 2 else f"{_n(min(result.values))} to {_n(max(result.values))}"
            verdict = "pass" if result.passed() else "FAIL"
            if result.faults:
                verdict += ": " + "; ".join(result.faults)
            yield (row.name, row.words, _n(result.value) + unit, spread, f"{row.bound} {row.target:g}{unit}", verdict)

    def text(self):
        """The table as Markdown."""
        head = ("row", "measure", "median", "rounds", "target", "")
        lines = [head, *self.rows_shown()]
        widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
        widths[-1] = 0
        shown = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() + " |" for line in lines]
        shown.insert(1, "|" + "|".join("-" * (width + 2) for width in widths[:-1]) + "|---|")
        return "\n".join(shown)

    def raw_text(self):
        """The figures, one line each."""
        lines = []
        for name, entries in self.raw.items():
            for figures in entries:
                shown = "  ".join(f"{key}={_n(value)}" for key, value in figures.items())
                lines.append(f"{name}: {shown}")
        return "\n".join(lines)

    def json(self, more):
        """Everything, as one object."""
        rows = [{"row": name, "measure": result.row.words, "median": result.value, "values": result.values,
                 "bound": result.row.bound, "target": result.row.target, "passed": result.passed(),
                 "faults": result.faults} for name, result in self.results.items()]
        return json.dumps({**more, "rows": rows, "raw": self.raw}, indent=1)

    def passed(self):
        """Whether all that was measured met its target."""
        return all(result.passed() for result in self.results.values())


def _n(value):
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)
