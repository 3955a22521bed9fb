"""The servers under test, each in a memory cgroup of its own."""

import math
import shutil
from pathlib import Path

from . import client
from .cgroup import Cgroup
from .process import Process, ProcessError, wait_until

MIB = 1 << 20
START_PATIENCE_S = 120
SETTLE_PATIENCE_S = 120
# Longer than extstore's background threads sleep, and than items must be idle before they go to flash.
SETTLE_INTERVAL_S = 3

# What a good operator gives extstore when items are small and the flash is to be read, not spared.
EXTSTORE_OPTIONS = "ext_item_size=64,ext_item_age=1,ext_threads=8,ext_wbuf_size=8,ext_recache_rate=0"
EXTSTORE_WRITE_BUFFER_BYTES = 8 * MIB
# Memory of extstore outside its slabs beside hash table and write buffers: threads, I/O and
# connection buffers, allocator, and the page cache that no file I/O can do without.
# `run --only tune-memory` measures the neighbours of what follows from it.
EXTSTORE_OTHER_BYTES = 28 * MIB
# Slab space an item on extstore needs in memory: header, CAS, 30-byte key, place on flash.
EXTSTORE_ITEM_BYTES = 120

# Share of a cgroup's limit that Flowstone may use as its --memory. The rest is what the kernel
# charges to the group for it: sockets, rings, page tables; and 5 % by which its resident memory
# may pass --memory (a row of the table).
FLOWSTONE_SHARE = 0.93
FLOWSTONE_KERNEL_BYTES = 6 * MIB


def hash_table_bytes(items):
    """memcached doubles its table at 1.5 items a bucket; it starts with 2^16 buckets."""
    return 8 << max(16, math.ceil(math.log2(max(1, items) / 1.5)))


def extstore_memory_mib(limit_bytes, items):
    """`-m` for extstore such that everything fits `limit_bytes`."""
    others = hash_table_bytes(items) + 4 * EXTSTORE_WRITE_BUFFER_BYTES + EXTSTORE_OTHER_BYTES
    return max(64, (limit_bytes - others) // MIB)


def flowstone_memory_bytes(limit_bytes):
    """`--memory` such that the process and what the kernel holds for it fit `limit_bytes`."""
    return int(limit_bytes * FLOWSTONE_SHARE) - FLOWSTONE_KERNEL_BYTES


class Server:
    """A process that speaks memcached on a port, its cgroup and its folder."""

    # What it is asked until it is ready, and how the answer begins and ends.
    probe = b"version\r\n", b"VERSION", b"\r\n"

    def __init__(self, bench, label, limit_bytes):
        self.bench = bench
        self.label = label
        self.limit_bytes = limit_bytes
        self.port = bench.take_port()
        self.folder = bench.folder / label
        self.folder.mkdir(exist_ok=True)
        self.log = self.folder / "log"
        self.cgroup = Cgroup(label, limit_bytes)
        self.process = None
        self.runs = 0
        # Before the start: whatever happens from here on is cleaned up.
        bench.servers.append(self)

    def words(self):
        """The command line."""
        raise NotImplementedError

    def start(self):
        """Starts it and waits until it answers."""
        self.process = Process(self.words(), self.cgroup, self.log)

        def ready():
            self.process.check()
            return client.answers(self.port, *self.probe)

        wait_until(ready, START_PATIENCE_S, f"{self.label} does not answer: {self.process.last_words()}")
        return self

    def stats(self, *arguments):
        """Its statistics."""
        try:
            return client.stats(self.port, *arguments)
        except OSError as error:
            raise ProcessError(f"{self.label} does not answer `stats`: {error}") from error

    def flash_hits(self):
        """GETs answered from flash so far."""
        raise NotImplementedError

    def written_so_far(self):
        """What changes as long as it writes to flash."""
        raise NotImplementedError

    def settle(self):
        """Waits until it writes no more: both write in the background what they have taken."""
        last = None

        def quiet():
            nonlocal last
            before, last = last, self.written_so_far()
            return last == before

        wait_until(quiet, SETTLE_PATIENCE_S, f"{self.label} does not stop writing", SETTLE_INTERVAL_S)

    def flash_path(self):
        """The file it keeps its items in."""
        return self.folder / "flash"

    def close(self):
        """Ends the process, removes its group and its files."""
        if self.process is not None:
            self.process.kill()
        self.cgroup.remove()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.bench.give_port(self.port)
        if self in self.bench.servers:
            self.bench.servers.remove(self)


class Flowstone(Server):
    """`flowstone serve`."""

    def __init__(self, bench, label, limit_bytes, flash_bytes, memory_bytes=None, more=()):
        super().__init__(bench, label, limit_bytes)
        self.flash_bytes = flash_bytes
        self.memory_bytes = memory_bytes or flowstone_memory_bytes(limit_bytes)
        self.more = list(more)
        # Of the flash, once it is loaded.
        self.loaded_bytes = 0

    def words(self):
        return [str(self.bench.flowstone), "serve", "--listen", f"127.0.0.1:{self.port}",
                "--memory", str(self.memory_bytes), "--flash", str(self.flash_path()),
                "--flash-size", str(self.flash_bytes), "--threads", str(self.bench.cores), *self.more]

    def flash_hits(self):
        return self.stats()["flash_hits"]

    def written_so_far(self):
        flash = self.stats("flash")
        return flash["flash_bytes_written"], flash["segments_waiting"]

    def written_bytes(self):
        """Bytes at the start of the file that have been written, if no segment was used twice."""
        flash = self.stats("flash")
        return min(self.flash_bytes, flash["flash_bytes_written"])

    def restart(self):
        """An orderly stop and a start on the same flash."""
        code = self.process.end()
        if code != 0:
            raise ProcessError(f"{self.label} ended with {code}: {self.process.last_words()}")
        return self.start()


class Memcached(Server):
    """memcached, with extstore if `flash_bytes` is given."""

    def __init__(self, bench, label, limit_bytes, memory_mib, flash_bytes=None):
        super().__init__(bench, label, limit_bytes)
        self.memory_mib = memory_mib
        self.flash_bytes = flash_bytes

    def words(self):
        words = [self.bench.memcached, "-u", "root", "-l", "127.0.0.1", "-p", str(self.port), "-U", "0",
                 "-t", str(self.bench.cores), "-c", "4096", "-m", str(self.memory_mib)]
        if self.flash_bytes is not None:
            size = f"{max(1, self.flash_bytes // (1 << 30))}G"
            words += ["-o", f"ext_path={self.flash_path()}:{size},{EXTSTORE_OPTIONS}"]
            words += self.bench.options.memcached_options.split()
        return words

    def flash_hits(self):
        return self.stats().get("get_extstore", 0)

    def written_so_far(self):
        return self.stats().get("extstore_bytes_written", 0)


def extstore(bench, memory_mib=None):
    """memcached with extstore at the scale of `bench`, with the memory the operator gives it or that is computed."""
    scale = bench.scale
    memory_mib = memory_mib or bench.options.memcached_memory or extstore_memory_mib(scale.limit, scale.items)
    return Memcached(bench, "extstore", scale.limit, memory_mib, scale.flash)


class BareLoop(Server):
    """lab/bench/limit: every GET is one direct read of 4 KiB at a random place of a file."""

    probe = b"get probe\r\n", b"VALUE", b"END\r\n"

    def __init__(self, bench, label, limit_bytes, file):
        super().__init__(bench, label, limit_bytes)
        self.file = Path(file)

    def words(self):
        return [str(self.bench.bare_loop), "--file", str(self.file), "--listen", f"127.0.0.1:{self.port}",
                "--threads", str(self.bench.cores)]

    def flash_hits(self):
        return None
