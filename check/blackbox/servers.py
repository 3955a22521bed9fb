"""Server processes under test: start, wait for the port, stop, kill.

Every server dies with the test process, however that ends (the kernel sends it SIGKILL), and each
start picks a port below the range the kernel hands to clients, so that thousands of test
connections cannot take it.
"""

import ctypes
import os
import random
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import refused
from wire import Connection

MIB = 1 << 20
HOST = "127.0.0.1"

# How long anything may take before the test calls it hung. Nothing waits this long when all is well.
PATIENCE_S = 60.0

# Which of the test processes that run at once this is, and of how many: each has ports of its own.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))

_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def free_port():
    """A TCP port nobody listens on now, and no other test process tries."""
    while True:
        port = random.randrange(20_000 + WORKER, 32_000, WORKERS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port


def wait_until(condition, what, patience_s=PATIENCE_S):
    """Polls `condition` until it returns something true, and returns that."""
    deadline = time.monotonic() + patience_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience_s} s in vain for {what}")
        time.sleep(0.002)


class Server:
    """One server process. Subclasses give the command line."""

    name = "server"
    is_flowstone = False

    def __init__(self, directory, unix=None, limits=None, env=None, refused=None):
        self.directory = Path(directory)
        self.port = free_port()
        self.unix = unix
        self.limits = limits or {}
        self.env = env or {}
        # System calls that fail, with the names of their errors.
        self.refused = refused or {}
        # As whom it runs, if not as the tests do: `user`, `group` and the like of Popen.
        self.identity = {}
        self.process = None
        self.log_path = self.directory / f"{self.name}-{self.port}.log"

    def command(self):
        raise NotImplementedError

    def launch(self):
        """Starts the process and does not wait for it to serve."""

        def in_child():
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            # Whatever started the tests: what is ignored is inherited.
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            import resource

            for which, limit in self.limits.items():
                resource.setrlimit(which, (limit, limit))
                if which == resource.RLIMIT_FSIZE:
                    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            if self.refused:
                refused.refuse(self.refused)

        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, **self.env},
                preexec_fn=in_child,
                **self.identity,
            )
        return self

    def start(self):
        """Starts the process and returns once it accepts connections."""
        self.launch()
        wait_until(self._accepts_or_died, f"{self.name} to accept connections")
        return self

    def _accepts_or_died(self):
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} ended with {self.process.returncode} at start:\n{self.log()}")
        return self._accepts()

    def _accepts(self):
        try:
            self.connect(timeout_s=5).close()
        except OSError:
            return False
        return True

    def connect(self, timeout_s=PATIENCE_S):
        if self.unix:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(timeout_s)
            sock.connect(str(self.unix))
        else:
            sock = socket.create_connection((HOST, self.port), timeout=timeout_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Connection(sock)

    def ask(self, request):
        """The whole answer to `request` on a connection of its own."""
        with self.connect() as connection:
            return connection.exchange(request)

    def stats(self, group=b""):
        request = b"stats " + group if group else b"stats"
        answer = self.ask(request + b"\r\n")
        return {
            name.decode(): value.decode()
            for name, value in re.findall(rb"^STAT (\S+) ?(.*?)\r\n", answer, re.MULTILINE)
        }

    def version(self):
        answer = self.ask(b"version\r\n")
        return tuple(int(part) for part in re.findall(rb"\d+", answer)[:3])

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def terminate(self, sig=signal.SIGTERM):
        """An orderly stop. Returns the exit status."""
        self.process.send_signal(sig)
        return self.wait()

    def kill(self):
        self.process.kill()
        self.wait()
        # The kernel may take a moment to end what the process had asked of it, its accept included.
        wait_until(lambda: not self._accepts(), "the port of a killed process to close")

    def wait(self, patience_s=PATIENCE_S):
        try:
            return self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {patience_s} s:\n{self.log()}") from None

    def close(self):
        """Ends the process if it still runs."""
        if self.alive():
            self.process.kill()
        if self.process is not None:
            self.process.wait()

    def log(self):
        return self.log_path.read_text(errors="replace")

    def status_bytes(self, field):
        """A field of /proc/PID/status that is in kB: VmRSS, RssAnon, VmHWM."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)[1]) * 1024

    def unread_bytes(self, client_port):
        """What the kernel holds for the server on one connection and the server has not yet read.

        None where the kernel does not tell.
        """
        mine, theirs = f":{self.port:04X}", f":{client_port:04X}"
        try:
            with open("/proc/net/tcp", encoding="ascii") as table:
                for line in table:
                    fields = line.split()
                    if fields[1].endswith(mine) and fields[2].endswith(theirs):
                        return int(fields[4].split(":")[1], 16)
        except OSError:
            pass
        return None


class Memcached(Server):
    """The reference: what it answers is right."""

    name = "memcached"
    program = os.environ.get("MEMCACHED", "memcached")

    def __init__(self, directory, memory_mib=256, max_connections=4096, options=(), **kwargs):
        super().__init__(directory, **kwargs)
        self.memory_mib = memory_mib
        self.max_connections = max_connections
        self.options = list(options)

    def command(self):
        command = [self.program, "-m", str(self.memory_mib), "-c", str(self.max_connections), "-t", "2"]
        if os.geteuid() == 0:
            command += ["-u", "root"]
        if self.unix:
            return command + ["-s", str(self.unix)] + self.options
        return command + ["-U", "0", "-l", HOST, "-p", str(self.port)] + self.options

    def spill(self):
        """memcached without extstore has nowhere to spill to."""


class Flowstone(Server):
    """The server under test, with a flash file in the test's own directory."""

    name = "flowstone"
    is_flowstone = True

    # The counter, in `stats flash` or `stats`, of GETs that flash answered.
    FLASH_HITS = "flash_hits"

    def __init__(
        self,
        directory,
        memory_mib=64,
        flash=None,
        flash_size="512MiB",
        max_connections=4096,
        options=(),
        **kwargs,
    ):
        super().__init__(directory, **kwargs)
        self.memory_mib = memory_mib
        self.flash = Path(flash) if flash else self.directory / "cache.flash"
        self.flash_size = flash_size
        self.max_connections = max_connections
        self.options = list(options)
        self._fillers = 0

    @staticmethod
    def binary():
        path = os.environ.get("FLOWSTONE_BIN")
        if not path:
            root = Path(__file__).resolve().parents[2]
            path = Path(os.environ.get("CARGO_TARGET_DIR", root / "target")) / "debug" / "flowstone"
        return str(path)

    def start(self):
        super().start()
        # What the last run has left is found again at once, if there is not much of it.
        if self.process.poll() is None:
            wait_until(lambda: self.stats(b"flash").get("recovery_running", "0") == "0", "the recovery to end")
        return self

    def command(self):
        command = [self.binary(), "serve"]
        command += ["--listen", f"unix:{self.unix}" if self.unix else f"{HOST}:{self.port}"]
        command += ["--memory", f"{self.memory_mib}MiB"]
        command += ["--flash", str(self.flash)]
        if self.flash_size is not None:
            command += ["--flash-size", self.flash_size]
        if self.max_connections is not None:
            command += ["--max-connections", str(self.max_connections)]
        return command + self.options

    def flash_hits(self):
        for group in (b"flash", b""):
            value = self.stats(group).get(self.FLASH_HITS)
            if value is not None:
                return int(value)
        raise AssertionError(f"neither 'stats flash' nor 'stats' has {self.FLASH_HITS}")

    def spill(self):
        """Pushes everything stored so far out of DRAM, and proves it with a few probes.

        Fresh items of twice the process's memory go through, so that two turns of the eviction
        clock pass over every older item.
        """
        self._fillers += 1
        probes = [b"probe.%d.%d" % (self._fillers, n) for n in range(32)]
        for probe in probes:
            assert self.ask(b"set %s 0 0 5\r\nprobe\r\n" % probe) == b"STORED\r\n"

        value_bytes = 8 * 1024
        count = 2 * self.memory_mib * MIB // value_bytes
        value = bytes(value_bytes)
        with self.connect() as connection:
            for first in range(0, count, 128):
                batch = b"".join(
                    b"set filler.%d.%d 0 600 %d noreply\r\n%s\r\n" % (self._fillers, n, value_bytes, value)
                    for n in range(first, min(first + 128, count))
                )
                assert connection.roundtrip(batch) == b"", "a filler item was refused"

        before = self.flash_hits()
        answer = self.ask(b"get " + b" ".join(probes) + b"\r\n")
        assert answer.count(b"VALUE ") == len(probes), "items were lost on their way to flash"
        on_flash = self.flash_hits() - before
        assert on_flash >= len(probes) * 3 // 4, f"only {on_flash} of {len(probes)} older items lie on flash"


def subject_class():
    """What the suite tests: Flowstone, or a memcached (a name or a path) to prove the cases on."""
    subject = os.environ.get("BLACKBOX_SUBJECT", "flowstone")
    if subject == "flowstone":
        return Flowstone
    return type("SubjectMemcached", (Memcached,), {"program": subject})
