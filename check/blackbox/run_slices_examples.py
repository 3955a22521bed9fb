"""Runs the examples of the crate slices on small inputs, and checks what they print: run_slices_examples.py DIRECTORY."""

import math
import random
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

PATIENCE_S = 60
CHUNK = 4096


class Examples:
    def __init__(self, programs, directory):
        self.programs = Path(programs).resolve()
        self.directory = Path(directory)
        self.random = random.Random(1)

    def run(self, name, *arguments, text=None):
        done = subprocess.run(
            [self.programs / name, *map(str, arguments)],
            cwd=self.directory,
            input=text,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.stderr}"
        print(done.stdout, end="")
        return done.stdout

    def deduplicate(self):
        """Ten chunks, the same ten and five of zeros; with an index that is kept, the next run knows them all."""
        files = self.directory / "files"
        files.mkdir()
        some = self.random.randbytes(10 * CHUNK)
        (files / "one").write_bytes(some)
        (files / "two").write_bytes(some)
        (files / "zeros").write_bytes(bytes(5 * CHUNK))
        said = "3 files, 25 chunks of 4096 bytes, {} of them seen before\n"
        assert self.run("deduplicate", files) == said.format(14)
        assert self.run("deduplicate", files, "index") == said.format(14)
        assert self.run("deduplicate", files, "index") == said.format(25)

    def url_filter(self):
        """A tenth of the URLs have been there before. Of what the filter has it denies nothing, on the drive or in memory."""
        urls = [f"https://example.org/{number % 54_000}" for number in range(60_000)]
        said = self.run("url_filter", "urls", "-", "0.01", text="\n".join(urls))
        seen = int(re.search(r"60000 looked up .*; (\d+) may have been there", said)[1])
        assert 6_000 <= seen < 6_100, seen
        assert "60000 of the last 60000 are there" in said and "drive: 0 flushes" not in said
        wrong = float(re.search(r"false positives: ([0-9.]+) measured", said)[1])
        assert wrong < 0.01, wrong
        self.run("url_filter", "urls", 2_000, "paper")

    def near_duplicates(self):
        """Images of waves, unlike each other: of the nearest ten eight are found at least, and a twentieth of all is read at most."""
        count, side = 2_000, 12
        head = struct.pack(">IIII", 0x803, count, side, side)
        pixels = b"".join(self.waves(side) for _ in range(count))
        (self.directory / "images").write_bytes(head + pixels)
        for family in ("cosine", "euclidean"):
            said = self.run("near_duplicates", "images", family)
            recall = float(re.search(r"recall@10 +([0-9.]+)", said)[1])
            assert recall > 0.8, recall
            read = float(re.search(r"vectors read a query ([0-9.]+) %", said)[1])
            assert read < 5.1, read

    def waves(self, side):
        waves = [(self.random.uniform(-0.5, 0.5), self.random.uniform(-0.5, 0.5), self.random.uniform(0, 6.3)) for _ in range(4)]

        def pixel(x, y):
            return sum(math.sin(across * x + down * y + phase) for across, down, phase in waves)

        return bytes(round(127 + 31 * pixel(at % side, at // side)) for at in range(side * side))


def main():
    with tempfile.TemporaryDirectory() as directory:
        examples = Examples(sys.argv[1], directory)
        examples.deduplicate()
        examples.url_filter()
        examples.near_duplicates()


if __name__ == "__main__":
    sys.exit(main())
