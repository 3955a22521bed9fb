"""Clients that store, overwrite, get and delete, and know which answers are right."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

from wire import Closed

CLIENTS = 4
KEYS = 3_500
VALUE_BYTES = 3000
# After so many rounds a client connects again.
ROUNDS_OF_CONNECTION = 20
MOST_KEYS_AT_ONCE = 200


def value(key, version):
    return (b"%s %d;" % (key, version)).ljust(VALUE_BYTES, b"v")


class Client:
    """A client that has keys of its own: what is there is what it has stored."""

    def __init__(self, server, number):
        self.server = server
        self.keys = [b"k%d.%d" % (number, n) for n in range(KEYS)]
        self.random = random.Random(number)
        self.version = 0
        # The version of each key that is stored for sure; none of a key that is deleted for sure.
        self.stored = {}
        # Versions that may be there as well: a request without an answer may be carried out at any later time.
        self.perhaps = {key: set() for key in self.keys}
        self.rounds = self.hits = self.refused = self.syncs = 0
        self.wrong = []

    def fill(self):
        """Stores each key: all clients together, more than memory holds."""
        with self.server.connect() as connection:
            for first in range(0, KEYS, 500):
                keys = self.keys[first : first + 500]
                requests = (b"set %s 0 0 %d noreply\r\n%s\r\n" % (key, VALUE_BYTES, value(key, 0)) for key in keys)
                assert connection.roundtrip(b"".join(requests)) == b""
        self.stored = dict.fromkeys(self.keys, 0)

    def run(self, is_over):
        """Goes on until the load is over, whatever becomes of the connections."""
        while not is_over():
            try:
                with self.server.connect(timeout_s=3) as connection:
                    self.sync(connection)
                    self.get(connection, self.random.sample(self.keys, self.random.randrange(2, MOST_KEYS_AT_ONCE)))
                    for _ in range(ROUNDS_OF_CONNECTION):
                        if not is_over():
                            self.round(connection)
            except (OSError, Closed):  # what matters is what is answered
                time.sleep(0.01)

    def run_whole(self, rounds):
        """Goes on for so many rounds, each of which is answered, and gets each key."""
        with self.server.connect() as connection:
            for _ in range(rounds):
                self.round(connection)
            self.hits = 0
            for first in range(0, KEYS, MOST_KEYS_AT_ONCE):
                self.get(connection, self.keys[first : first + MOST_KEYS_AT_ONCE])

    def sync(self, connection):
        connection.send(b"flowstone sync\r\n")
        self.syncs += self.is_done(connection.read_line(), b"OK\r\n")

    def get(self, connection, keys):
        """Gets keys in one go: the answer is long."""
        connection.send(b"".join(b"get %s\r\n" % key for key in keys))
        for key in keys:
            self.read_value(connection, key)

    def round(self, connection):
        """Stores a key, gets another and deletes a third."""
        stored, asked, deleted = self.random.sample(self.keys, 3)
        self.version += 1
        version, new = self.version, value(stored, self.version)
        self.perhaps[stored].add(version)
        request = b"set %s 0 0 %d\r\n%s\r\nget %s\r\ndelete %s\r\n"
        connection.send(request % (stored, VALUE_BYTES, new, asked, deleted))
        if self.is_done(connection.read_line(), b"STORED\r\n"):
            self.stored[stored] = version
            self.perhaps[stored].remove(version)
        self.read_value(connection, asked)
        if self.is_done(connection.read_line(), b"DELETED\r\n", b"NOT_FOUND\r\n"):
            self.stored[deleted] = None
        self.rounds += 1

    def read_value(self, connection, key):
        line = connection.read_line()
        if line != b"VALUE %s 0 %d\r\n" % (key, VALUE_BYTES):
            self.is_done(line, b"END\r\n")
            return
        answer = connection.read_exactly(VALUE_BYTES + len(b"\r\nEND\r\n"))
        right = {self.stored[key], *self.perhaps[key]} - {None}
        if all(answer != value(key, version) + b"\r\nEND\r\n" for version in right):
            self.wrong.append((key, answer[:40], right))
        self.hits += 1

    def is_done(self, answer, *expected):
        """Whether an answer is as `expected`. It may be a refusal as well, and nothing else."""
        if answer.startswith(b"SERVER_ERROR "):
            self.refused += 1
        elif answer not in expected:
            self.wrong.append((answer[:60], expected))
        return answer in expected


class Load:
    """The clients of a server, which has been filled by them."""

    def __init__(self, server):
        self.clients = [Client(server, number) for number in range(CLIENTS)]
        self._each(Client.fill)

    def _each(self, act):
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(act, self.clients))

    def run(self, is_over):
        self._each(lambda client: client.run(is_over))

    def run_whole(self, rounds):
        self._each(lambda client: client.run_whole(rounds))

    def sum(self, field):
        return sum(getattr(client, field) for client in self.clients)

    def wrong(self):
        return [answer for client in self.clients for answer in client.wrong]
