"""What all measurements share: options, folder, ports, servers, the table; and cleaning up."""

import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from . import client
from .table import Table

PORTS = 16


class Bench:
    """One run of the command. Leaving it ends all servers and removes groups and files."""

    def __init__(self, options, scale, programs):
        self.options = options
        self.scale = scale
        self.rounds = options.rounds or scale.rounds
        self.cores = options.cores
        self.flowstone = programs["flowstone"]
        self.bare_loop = programs["bare_loop"]
        self.memcached = programs["memcached"]
        self.table = Table()
        self.servers = []
        self.notes = []
        self.folder = None
        self.started = time.monotonic()
        self.ports = list(range(options.port, options.port + PORTS))

    def __enter__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="flowstone-vs-", dir=self.options.dir))
        return self

    def __exit__(self, *_):
        self.close_servers()
        shutil.rmtree(self.folder, ignore_errors=True)

    def close_servers(self):
        """Ends whatever runs."""
        for server in list(self.servers):
            server.close()

    def take_port(self):
        """A port nobody listens on."""
        port = self.ports.pop(0)
        if client.is_taken(port):
            raise OSError(f"port {port} is taken: choose others with --port")
        return port

    def give_port(self, port):
        """Puts a port at the end of the queue: the latest one may still be held by the kernel."""
        self.ports.append(port)

    @contextmanager
    def awake(self, server):
        """Lets a stopped server run for as long as it is measured."""
        server.process.resume()
        try:
            yield server
        finally:
            server.process.pause()

    def say(self, words):
        """Progress, on standard error."""
        print(f"[{time.monotonic() - self.started:6.0f} s] {words}", file=sys.stderr, flush=True)

    def note(self, words):
        """Something the reader of the table must know."""
        self.notes.append(words)
        self.say(f"note: {words}")
