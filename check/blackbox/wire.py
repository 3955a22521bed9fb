"""A raw connection, and what of an answer may differ between two right servers."""

import re
import select
import socket
import time


class Closed(Exception):
    """The server closed the connection before the answer was whole."""


class Connection:
    """One client connection that sends and reads bytes as they are."""

    def __init__(self, sock):
        self.sock = sock
        self.timeout_s = sock.gettimeout()
        self.pending = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def local_port(self):
        return self.sock.getsockname()[1]

    def send(self, data):
        self.sock.sendall(data)

    def read_until(self, end):
        """All bytes up to and including `end`."""
        while end not in self.pending:
            chunk = self.sock.recv(1 << 16)
            if not chunk:
                raise Closed(self.pending)
            self.pending += chunk
        at = self.pending.index(end) + len(end)
        answer, self.pending = self.pending[:at], self.pending[at:]
        return answer

    def read_line(self):
        return self.read_until(b"\n")

    def read_rest(self):
        """All bytes until the server closes; a reset counts as a close."""
        chunks = [self.pending]
        self.pending = b""
        try:
            while chunk := self.sock.recv(1 << 16):
                chunks.append(chunk)
        except ConnectionResetError:
            pass
        return b"".join(chunks)

    def read_exactly(self, count):
        """The next `count` bytes."""
        while len(self.pending) < count:
            chunk = self.sock.recv(1 << 16)
            if not chunk:
                raise Closed(self.pending)
            self.pending += chunk
        data, self.pending = self.pending[:count], self.pending[count:]
        return data

    def roundtrip(self, request):
        """The answer to `request`, told from what follows by a meta no-op behind it."""
        self.send(request + b"mn\r\n")
        while not (self.pending == b"MN\r\n" or self.pending.endswith(b"\nMN\r\n")):
            chunk = self.sock.recv(1 << 16)
            if not chunk:
                raise Closed(self.pending)
            self.pending += chunk
        answer, self.pending = self.pending[: -len(b"MN\r\n")], b""
        return answer

    def exchange(self, request, piece=None):
        """Sends `request` (in pieces of `piece` bytes), closes the sending half, reads to the end.

        Sending and reading interleave, so neither side can block the other for good.
        """
        deadline = time.monotonic() + self.timeout_s
        view, sent, answer = memoryview(request), 0, [self.pending]
        self.pending = b""
        sending = True
        self.sock.setblocking(False)
        try:
            while True:
                if sending and sent == len(view):
                    sending = False
                    try:
                        self.sock.shutdown(socket.SHUT_WR)
                    except OSError:
                        pass
                poll = select.poll()
                poll.register(self.sock, select.POLLIN | (select.POLLOUT if sending else 0))
                events = poll.poll(max(0, (deadline - time.monotonic()) * 1000))
                ready = events[0][1] if events else 0
                # An error or a hang-up shows itself in the read.
                readable, writable = ready & ~select.POLLOUT, ready & select.POLLOUT
                if not ready:
                    raise TimeoutError(f"no end of the answer after {b''.join(answer)[-200:]!r}")
                try:
                    if readable:
                        chunk = self.sock.recv(1 << 18)
                        if not chunk:
                            return b"".join(answer)
                        answer.append(chunk)
                    if writable:
                        sent += self.sock.send(view[sent : sent + (piece or 1 << 18)])
                except (ConnectionResetError, BrokenPipeError):
                    # Closed by the server with our bytes unread. What it said first may still be there.
                    try:
                        while chunk := self.sock.recv(1 << 18):
                            answer.append(chunk)
                    except OSError:
                        pass
                    return b"".join(answer)
        finally:
            self.sock.settimeout(self.timeout_s)


class Mask:
    """Makes answers of two servers comparable.

    CAS values become the order of their first appearance, so that equal stays equal and different
    stays different; times are taken out and kept, to be compared with a tolerance; addresses of
    memory layout (slab class, item size, LRU age) are dropped. Values of items are left alone.
    """

    def __init__(self, keep_cas=False):
        self.keep_cas = keep_cas
        self.cas_seen = []
        self.times = []

    def lines(self, answer):
        """The answer as masked lines, values of items as one line each."""
        out = []
        at = 0
        while at < len(answer):
            end = answer.find(b"\n", at)
            end = len(answer) if end < 0 else end + 1
            line = answer[at:end]
            at = end
            out.append(self._line(line))
            length = _value_bytes(line)
            if length is not None:
                out.append(answer[at : at + length + 2])
                at += length + 2
        return out

    def _line(self, line):
        words = line.rstrip(b"\r\n").split(b" ")
        ending = line[len(line.rstrip(b"\r\n")) :]
        head = words[0]
        if head == b"VALUE" and len(words) == 5:
            words[4] = self._cas(words[4])
        elif head in (b"HD", b"VA", b"NF", b"NS", b"EX"):
            words = [self._meta(word) for word in words]
        elif head == b"ME":
            words = [self._debug(word) for word in words]
        elif head.startswith(b"key="):
            words = [self._debug(word) for word in words if not word.startswith(b"ext_")]
        elif head == b"VERSION" and len(words) == 2:
            words[1] = b"~"
        return b" ".join(words) + ending

    def _cas(self, value):
        if value == b"0" or self.keep_cas:
            return value
        if value not in self.cas_seen:
            self.cas_seen.append(value)
        return b"cas%d" % self.cas_seen.index(value)

    def _time(self, prefix, value):
        self.times.append(int(value))
        return prefix + b"~"

    def _meta(self, word):
        if re.fullmatch(rb"c\d+", word):
            return b"c" + self._cas(word[1:])
        if re.fullmatch(rb"t\d+", word):
            return self._time(b"t", word[1:])
        if re.fullmatch(rb"l\d+", word):
            return b"l~"
        return word

    def _debug(self, word):
        name, equals, value = word.partition(b"=")
        if not equals:
            return word
        if name == b"cas":
            return b"cas=" + self._cas(value)
        if name == b"exp" and value not in (b"-1", b"0"):
            # memcached before 1.6.24 shows the seconds left as a negative number.
            return self._time(b"exp=", value.lstrip(b"-"))
        if name in (b"la", b"cls", b"size"):
            return name + b"=~"
        return word


def _value_bytes(line):
    """How many bytes of value follow an answer line, or None."""
    match = re.match(rb"VALUE \S+ \d+ (\d+)(?: \d+)?\r\n$", line) or re.match(rb"VA (\d+)(?: [^\r\n]*)?\r\n$", line)
    return int(match[1]) if match else None


def last_cas(answer):
    """The last CAS value in an answer, as text, or None."""
    found = re.findall(rb"^(?:VALUE \S+ \d+ \d+ (\d+)|(?:HD|VA) (?:[^\r\n]* )?c(\d+)(?=[ \r]))", answer, re.MULTILINE)
    return next((text or meta for text, meta in reversed(found)), None)
