"""The command line."""

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import traceback
from dataclasses import asdict
from pathlib import Path

from . import cgroup, client
from .bench import Bench
from .generator import GeneratorError
from .measures import behaviour, dram, memory, reads, table8, tail, tune, writes
from .process import ProcessError
from .scale import GIB, SCALES

REPOSITORY = Path(__file__).resolve().parents[4]
MEASURES = [reads, dram, writes, memory, tail, behaviour, table8]
ASKED_FOR = [tune]
USAGE = 2
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Files that exist at the same time, at most, beside the servers' flash.
SPARE_BYTES = 2 * GIB


def options(arguments):
    """Parses the command line."""
    known = ", ".join(f"{module.NAME} ({' '.join(module.ROWS)})" for module in MEASURES + ASKED_FOR)
    parser = argparse.ArgumentParser(
        prog="lab/bench/vs-memcached/run",
        description="Flowstone against memcached with extstore, in one memory cgroup each, with one load "
                    "generator: a table of ratios. Needs root (cgroups), memcached, fio and a Rust toolchain.")
    parser.add_argument("--scale", choices=SCALES, default="full", help="small: fewer items and seconds, to try it")
    parser.add_argument("--only", metavar="NAME,...", help=f"some rows or groups of rows: {known}")
    parser.add_argument("--skip", metavar="NAME,...", default="", help="all but these")
    parser.add_argument("--rounds", type=positive, help="measurements of each server, in turn [default: 3; small: 1]")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all figures there")
    parser.add_argument("--dir", metavar="DIR", default=".", help="where the flash files go [default: here]")
    parser.add_argument("--port", type=int, default=21211, help="first of 16 ports [default: 21211]")
    parser.add_argument("--cores", type=positive, default=os.cpu_count(), help="threads of each server [default: all cores]")
    parser.add_argument("--generator-threads", type=positive, default=max(1, os.cpu_count() // 2),
                        help="threads of the load generator [default: half the cores]")
    parser.add_argument("--memcached-memory", type=positive, metavar="MIB", help="extstore's -m [default: computed]")
    parser.add_argument("--memcached-options", metavar="WORDS", default="", help="more options for memcached with extstore")
    parser.add_argument("--extstore-load-rate", type=positive, metavar="PER_SECOND", help="[default: by scale]")
    parser.add_argument("--bin", type=Path, metavar="DIR", help="where flowstone and flowstone-bench-limit are [default: built]")
    chosen = parser.parse_args(arguments)
    chosen.plan = plan(chosen, parser)
    return chosen


def positive(text):
    """A positive integer."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be positive")
    return number


def plan(chosen, parser):
    """[(module, rows wanted)] in order."""
    names = {row for module in MEASURES + ASKED_FOR for row in (*module.ROWS, module.NAME)}
    only = set(chosen.only.split(",")) if chosen.only else {module.NAME for module in MEASURES}
    skip = set(filter(None, chosen.skip.split(",")))
    unknown = (only | skip) - names
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are: {', '.join(sorted(names))}")
    result = []
    for module in MEASURES + ASKED_FOR:
        rows = set(module.ROWS) if module.NAME in only else set(module.ROWS) & only
        rows -= set(module.ROWS) if module.NAME in skip else skip
        if rows:
            result.append((module, rows))
    if not result:
        parser.error("nothing is left to measure")
    return result


def programs(chosen):
    """Where the programs are; builds ours unless told where they lie."""
    found = {}
    for name in ("memcached", "fio"):
        found[name] = shutil.which(name)
        if found[name] is None:
            raise ProcessError(f"{name} is missing: apt-get install {name}")
    if chosen.bin:
        folder = chosen.bin
    else:
        subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "flowstone", "-p", "flowstone-bench-limit"],
                       cwd=REPOSITORY, check=True)
        folder = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release"
    found["flowstone"] = folder.resolve() / "flowstone"
    found["bare_loop"] = folder.resolve() / "flowstone-bench-limit"
    for name in ("flowstone", "bare_loop"):
        if not os.access(found[name], os.X_OK):
            raise ProcessError(f"{found[name]} is missing: build with `cargo build --release`, or give --bin")
    return found


def check(chosen, bench):
    """Refuses what could not work before anything is started."""
    if os.geteuid() != 0:
        raise ProcessError("must run as root: both servers are bounded by memory cgroups")
    cgroup.remove_abandoned()
    taken = [str(port) for port in bench.ports if client.is_taken(port)]
    if taken:
        raise ProcessError(f"port {' '.join(taken)} is taken: choose others with --port")
    needed = 3 * bench.scale.flash + SPARE_BYTES
    free = shutil.disk_usage(chosen.dir).free
    if free < needed:
        raise ProcessError(f"{chosen.dir} has {free / GIB:.1f} GiB free and {needed / GIB:.1f} are needed: choose another --dir")


def environment(bench):
    """What the figures depend on."""
    version = subprocess.run([bench.memcached, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True,
                            check=False).stdout.strip()
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), "unknown")
    return {"commit": commit, "memcached": version, "kernel": platform.release(), "processor": model,
            "cores": os.cpu_count(), "generator_threads": bench.options.generator_threads, "rounds": bench.rounds,
            "cgroup_version": cgroup.parent()[0], "load_average": os.getloadavg()[0]}


def main(arguments=None):
    """Runs the command; 0 when all targets are met, 1 when not, 2 when it cannot run."""
    chosen = options(arguments)
    for number in ENDING:
        signal.signal(number, interrupt)
    try:
        return measure(chosen)
    except KeyboardInterrupt:
        print("interrupted; everything was removed", file=sys.stderr)
        return 130
    except (ProcessError, cgroup.CgroupError, GeneratorError, OSError, subprocess.CalledProcessError) as error:
        print(f"lab/bench/vs-memcached: {error}", file=sys.stderr)
        return USAGE


def interrupt(*_):
    """Any signal that ends this program leaves through the same door, and no second one disturbs it."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def measure(chosen):
    """Measures what is asked for and prints it."""
    scale = SCALES[chosen.scale]
    with Bench(chosen, scale, programs(chosen)) as bench:
        check(chosen, bench)
        about = environment(bench)
        failed = []
        for module, rows in chosen.plan:
            try:
                module.run(bench, rows)
            except Exception as error:  # Whatever it was, the other groups can still be measured.
                failed.append(f"{module.NAME}: {type(error).__name__}: {error}")
                bench.say(f"failed: {failed[-1]}")
                if not isinstance(error, (ProcessError, GeneratorError, OSError)):
                    traceback.print_exc()
            finally:
                bench.close_servers()
            show(bench, about, failed, chosen)
    print(bench.table.raw_text(), end="\n\n")
    print(bench.table.text())
    for line in failed + bench.notes:
        print(f"note: {line}")
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    return 0 if bench.table.passed() and not failed else 1


def show(bench, about, failed, chosen):
    """Keeps what there is so far: a full run takes long."""
    if chosen.json:
        chosen.json.write_text(bench.table.json({**about, "scale": asdict(bench.scale), "failed": failed,
                                                 "notes": bench.notes}) + "\n")
