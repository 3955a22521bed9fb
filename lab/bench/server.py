"""A server on a unix socket, and connections to it, for the measurements that start servers of their own."""

import signal
import socket
import subprocess
import sys
import time


class Server:
    """A server process on a unix socket in `folder`."""

    def __init__(self, program, folder, memory, flash):
        self.socket = folder / "socket"
        self.words = [program, "serve", "--listen", f"unix:{self.socket}", "--memory", str(memory),
                      "--flash", str(folder / "flash"), "--flash-size", str(flash)]
        self.log = folder / "log"
        self.process = None

    def start(self, before=None):
        """Starts it, and calls `before` in the process first; returns the seconds until a connection is answered."""
        began = time.monotonic()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=before)
        while True:
            if self.process.poll() is not None:
                sys.exit(f"the server ended at its start: {self.log.read_text()}")
            try:
                with Client(self.socket) as client:
                    client.ask(b"version\r\n")
                return time.monotonic() - began
            except OSError:
                time.sleep(0.001)

    def stats(self, of="flash"):
        """All of `stats flash`, or of another part, and its own of the process."""
        with Client(self.socket) as client:
            lines = client.ask(f"stats {of}\r\n".encode(), b"END\r\n") + client.ask(b"stats\r\n", b"END\r\n")
        words = (line.split() for line in lines.decode().splitlines())
        return {w[1]: w[2] for w in words if len(w) == 3 and w[0] == "STAT"}

    def settle(self):
        """Waits until it writes no more."""
        last = None
        while last != (last := self.stats()["flash_bytes_written"]):
            time.sleep(1)

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class Client:
    """One connection."""

    def __init__(self, path):
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.settimeout(60)
        self.stream.connect(str(path))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()

    def ask(self, request, end=b"\r\n"):
        """Sends a request and reads to the end of its answer."""
        self.stream.sendall(request)
        answer = bytearray()
        while not answer.endswith(end):
            part = self.stream.recv(1 << 20)
            if not part:
                raise ConnectionError("the server closed the connection")
            answer += part
        return bytes(answer)
