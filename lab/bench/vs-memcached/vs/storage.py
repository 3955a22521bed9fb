"""Files on the device under test: written once, read through, and what `fio` makes of them."""

import json
import mmap
import os

from .process import command

CHUNK_BYTES = 1 << 20


def write_random(path, size_bytes):
    """A file of `size_bytes` that no layer below can shorten, on the device."""
    block = os.urandom(CHUNK_BYTES)
    with open(path, "wb") as file:
        for number in range(size_bytes // CHUNK_BYTES):
            # Each chunk differs in each of its pages.
            stamp = number.to_bytes(8, "little")
            file.write(b"".join(stamp + block[at + 8:at + 4096] for at in range(0, CHUNK_BYTES, 4096)))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_through(path, size_bytes=None):
    """Reads a file once, past the page cache; returns how many bytes.

    On some disks (virtual ones above all) blocks are slower to read the first time after they were
    written. Whichever server came later would gain; so every file is read once before it counts.
    """
    buffer = mmap.mmap(-1, CHUNK_BYTES)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    done = 0
    try:
        while size_bytes is None or done < size_bytes:
            count = os.preadv(descriptor, [buffer], done)
            if count == 0:
                break
            done += count
    finally:
        os.close(descriptor)
        buffer.close()
    return done


def random_reads(path, size_bytes, depth, seconds):
    """`fio`: random direct 4 KiB reads of the first `size_bytes`, `depth` at a time."""
    return _reads(["fio", "--name=limit", f"--filename={path}", f"--size={size_bytes // 4096 * 4096}",
                   "--readonly", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=io_uring",
                   f"--iodepth={depth}", "--time_based", f"--runtime={seconds}", "--norandommap",
                   "--randrepeat=0", "--output-format=json"])


def reads_beside_writes(path, size_bytes, read_rate, write_rate, seconds):
    """`fio`: random reads at a rate, with and without a stream of sequential 1 MiB writes beside.

    The file is overwritten. Says how much of a server's tail under writes is the device's own.
    """
    common = ["fio", f"--filename={path}", f"--size={size_bytes // CHUNK_BYTES * CHUNK_BYTES}", "--direct=1",
              "--ioengine=io_uring", "--time_based", f"--runtime={seconds}", "--output-format=json"]
    reads = ["--name=reads", "--rw=randread", "--bs=4k", "--iodepth=64", "--norandommap", "--randrepeat=0",
             f"--rate_iops={max(1, int(read_rate))}", "--rate_process=poisson"]
    writes = ["--name=writes", "--rw=write", "--bs=1m", "--iodepth=1", f"--rate={max(4096, int(write_rate))}"]
    return {"alone": _reads(common + reads), "beside_writes": _reads(common + reads + writes)}


def _reads(words):
    output = command(words)
    read = json.loads(output[output.index("{"):])["jobs"][0]["read"]
    percentile = {float(name): value / 1e3 for name, value in read["clat_ns"]["percentile"].items()}
    return {"iops": read["iops"], "mean_us": read["lat_ns"]["mean"] / 1e3,
            "p99_us": percentile[99.0], "p999_us": percentile[99.9]}
