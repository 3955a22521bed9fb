"""Clients that are slow, greedy, broken or too many: they may hurt themselves, nobody else."""

import os
import random
import select
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from servers import MIB, wait_until
from wire import Closed

# Of a process with --memory 64MiB: the bound, and what the allocator may be behind by.
MEMORY_MIB = 64
MEMORY_SLACK = 1.10


@pytest.fixture
def server(make_server):
    return make_server(memory_mib=MEMORY_MIB).start()


def assert_serves(server, key=b"healthy"):
    answer = server.ask(b"set %s 0 0 2\r\nok\r\nget %s\r\n" % (key, key))
    assert answer == b"STORED\r\nVALUE %s 0 2\r\nok\r\nEND\r\n" % key


def assert_memory_bounded(server):
    if server.is_flowstone:
        used, bound = server.status_bytes("VmHWM"), MEMORY_MIB * MIB * MEMORY_SLACK
        assert used <= bound, f"{used / MIB:.1f} MiB resident at its highest, {bound / MIB:.1f} allowed"


def connections_of(server):
    return int(server.stats()["curr_connections"])


def push(connection, data):
    """Sends what the kernel takes at once. Returns how much that was."""
    connection.sock.setblocking(False)
    try:
        return connection.sock.send(data)
    except BlockingIOError:
        return 0
    finally:
        connection.sock.settimeout(connection.timeout_s)


def test_clients_that_send_a_byte_at_a_time(server):
    clients = [server.connect() for _ in range(200)]
    scripts = [b"set slow%d 3 0 5\r\nvalue\r\nget slow%d\r\n" % (n, n) for n in range(len(clients))]
    for at in range(max(map(len, scripts))):
        for client, script in zip(clients, scripts):
            client.send(script[at : at + 1])
        assert_serves(server)
    for n, client in enumerate(clients):
        assert client.read_until(b"END\r\n") == b"STORED\r\nVALUE slow%d 3 5\r\nvalue\r\nEND\r\n" % n
        client.close()


def test_clients_that_never_read(server):
    value = bytes(100_000)
    assert server.ask(b"set big 0 0 %d\r\n%s\r\n" % (len(value), value)) == b"STORED\r\n"
    greedy = [server.connect() for _ in range(16)]
    sent = [0] * len(greedy)
    request = b"get big\r\n" * 1000
    # 200 rounds ask for 320 GB of answers, unless the server stops listening to such a client first.
    for round_ in range(200):
        for n, client in enumerate(greedy):
            sent[n] += push(client, request)
        if round_ % 10 == 0:
            assert_serves(server)
    assert_serves(server)
    assert_memory_bounded(server)
    # Who starts to read again gets what it asked for.
    answer = greedy[0].read_until(b"END\r\n")
    assert answer == b"VALUE big 0 %d\r\n%s\r\nEND\r\n" % (len(value), value)
    for client in greedy:
        client.close()
    wait_until(lambda: connections_of(server) <= 2, "the connections to be gone")
    assert_serves(server)


@pytest.mark.parametrize(
    "request_, head, end",
    [
        (b"get %s\r\n", b"VALUE %s 0 %d\r\n", b"END\r\n"),
        (b"gets %s\r\n", b"VALUE %s 0 %d *\r\n", b"END\r\n"),
        (b"gat 0 %s\r\n", b"VALUE %s 0 %d\r\n", b"END\r\n"),
        (b"gats 0 %s\r\n", b"VALUE %s 0 %d *\r\n", b"END\r\n"),
        (b"mg %s v k\r\nmn\r\n", b"VA %(len)d k%(key)s\r\n", b"MN\r\n"),
        (b"mg %s v k T0\r\nmn\r\n", b"VA %(len)d k%(key)s\r\n", b"MN\r\n"),
    ],
    ids=["get", "gets", "gat", "gats", "mg", "mg-touch"],
)
@pytest.mark.parametrize("where", ["memory", "flash"])
def test_long_values_wait_for_slow_readers_within_the_bound(server, where, request_, head, end):
    """All ask before any reads, for more than twice the memory together; then all are served."""
    len_, count, clients = 1_000_000, 8, 160
    values = {b"long%d" % n: b"%d:" % n + random.Random(n).randbytes(len_ - 2) for n in range(count)}
    for key, value in values.items():
        assert server.ask(b"set %s 0 0 %d\r\n%s\r\n" % (key, len_, value)) == b"STORED\r\n"
    if where == "flash":
        server.spill()
    asking = []
    for n in range(clients):
        client, key = server.connect(), b"long%d" % (n % count)
        client.send(request_ % key)
        asking.append((client, key))
    assert_serves(server)
    for client, key in asking:
        head_ = head % ({b"key": key, b"len": len_} if b"%(" in head else (key, len_))
        start, star, _ = head_.partition(b"*")
        got = client.read_until(b"\r\n")
        assert got.startswith(start) and (star or got == start), got
        assert client.read_exactly(len_ + 2) == values[key] + b"\r\n"
        assert client.read_until(b"\r\n") == end
        client.close()
    assert_memory_bounded(server)


def in_threads(work, count):
    """What `work` returns for each number below `count`, all at once."""
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(work, range(count)))


@pytest.mark.parametrize("len_", [3000, 100_000, 1_000_000])
def test_readers_of_many_values_do_not_wait_for_each_other(server, len_):
    """Each of them holds some of what the others wait for."""
    count, clients, each = 60, 12, 40 if len_ < MIB // 2 else 10
    values = {b"many%d" % n: random.Random(n).randbytes(len_) for n in range(count)}
    for key, value in values.items():
        assert server.ask(b"set %s 0 0 %d\r\n%s\r\n" % (key, len_, value)) == b"STORED\r\n"
    server.spill()

    def read(number):
        keys = [b"many%d" % ((number * 7 + n) % count) for n in range(each)]
        expected = b"".join(b"VALUE %s 0 %d\r\n%s\r\n" % (key, len_, values[key]) for key in keys) + b"END\r\n"
        with server.connect() as client:
            client.send(b"get %s\r\n" % b" ".join(keys))
            return client.read_exactly(len(expected)) == expected

    assert all(in_threads(read, clients))
    assert_memory_bounded(server)


def test_large_sets_that_come_together_are_all_stored(server):
    """Clients that send as fast as they can: none has to be refused for want of memory."""
    rng = random.Random(1)
    lengths = [[rng.choice([10, 1000, 100_000, 524_288, 1_000_000]) for _ in range(15)] for _ in range(20)]

    def store(number):
        with server.connect() as client:
            for n, length in enumerate(lengths[number]):
                client.send(b"set big%d.%d 0 0 %d noreply\r\n%s\r\n" % (number, n, length, b"v" * length))
            client.send(b"mn\r\n")
            return client.read_until(b"\r\n")

    assert set(in_threads(store, len(lengths))) == {b"MN\r\n"}
    assert server.stats()["store_no_memory"] == "0"
    for number, row in enumerate(lengths):
        for n, length in enumerate(row):
            head = b"VALUE big%d.%d 0 %d\r\n" % (number, n, length)
            assert server.ask(b"get big%d.%d\r\n" % (number, n)).startswith(head)
    assert_memory_bounded(server)


def test_the_longest_line_of_keys_is_answered_and_holds_nobody_up(server):
    for n in range(40):
        server.ask(b"set %s%08d 0 0 10\r\n0123456789\r\n" % (b"k" * 240, n))
    for keys in [1000, 2000, 4000]:
        client = server.connect()
        client.send(b"get " + b" ".join(b"%s%08d" % (b"k" * 240, n % 40) for n in range(keys)) + b"\r\n")
        answer = client.read_until(b"END\r\n")
        assert answer.count(b"\r\n0123456789\r\n") == keys
        assert_serves(server)
        client.close()


def test_a_set_of_the_largest_size_behind_a_long_line_of_keys_is_stored(server):
    client = server.connect()
    line = b"get " + b" ".join(b"%s%08d" % (b"k" * 240, n) for n in range(70)) + b"\r\n"
    client.send(line + b"set large 0 0 %d\r\n%s\r\n" % (MIB, b"x" * MIB))
    assert client.read_until(b"STORED\r\n") == b"END\r\nSTORED\r\n"
    client.close()


def test_a_large_set_that_has_lent_its_memory_goes_on(server):
    first, second = server.connect(), server.connect()
    first.send(b"set first 0 0 %d\r\n%s" % (MIB, b"x" * 3000))
    assert_serves(server)
    # Has to wait until it is lent what the first one does not use.
    second.send(b"set second 0 0 900000\r\n" + b"y" * 100)
    first.send(b"x" * 1000)
    second.send(b"y" * 899_900 + b"\r\n")
    assert second.read_until(b"\r\n") == b"STORED\r\n"
    first.send(b"x" * (MIB - 4000) + b"\r\n")
    assert first.read_until(b"\r\n") == b"STORED\r\n"
    assert_serves(server)


def test_statistics_ahead_of_a_long_value_are_not_held_for_it(server):
    server.ask(b"set large 0 0 %d\r\n%s\r\n" % (MIB - 1000, b"x" * (MIB - 1000)))
    clients = [server.connect() for _ in range(1000)]
    for client in clients:
        client.send(b"stats\r\n" * 6 + b"get large\r\n")
    assert_serves(server)
    assert_memory_bounded(server)
    for client in clients:
        client.close()


def test_half_written_sets_then_close(server):
    for n in range(500):
        with server.connect() as client:
            client.send(b"set half%d 0 0 1000\r\nonly this much" % n)
    wait_until(lambda: connections_of(server) <= 2, "the connections to be gone")
    assert server.ask(b"get half0 half499\r\n") == b"END\r\n"
    assert_serves(server)


def test_half_written_large_sets_hold_bounded_memory(server):
    body = b"x" * (MIB - 1000)
    clients = [server.connect() for _ in range(100)]
    left = []
    for n, client in enumerate(clients):
        data = b"set large%d 0 0 %d\r\n%s" % (n, len(body), body[:-1])
        left.append(data)
    for _ in range(50):
        for n, client in enumerate(clients):
            if left[n]:
                try:
                    left[n] = left[n][push(client, left[n]) :]
                except (ConnectionResetError, BrokenPipeError):
                    left[n] = b""
        assert_serves(server)
    assert_memory_bounded(server)
    for client in clients:
        client.close()
    wait_until(lambda: connections_of(server) <= 2, "the connections to be gone")
    assert_serves(server)


def test_reset_in_the_middle(server):
    for n in range(200):
        client = server.connect()
        client.send(b"get a b c\r\nset x%d 0 0 10\r\nabc" % n)
        # Closing with SO_LINGER 0 sends a reset instead of an end.
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
    wait_until(lambda: connections_of(server) <= 2, "the connections to be gone")
    assert_serves(server)


def test_two_thousand_connections(server):
    clients = [server.connect() for _ in range(2000)]
    wait_until(lambda: connections_of(server) >= 2000, "the server to have taken all of them")
    for n, client in enumerate(clients):
        client.send(b"set many%d 0 0 4\r\n%04d\r\nget many%d\r\n" % (n, n, n))
    for n, client in enumerate(clients):
        assert client.read_until(b"END\r\n") == b"STORED\r\nVALUE many%d 0 4\r\n%04d\r\nEND\r\n" % (n, n)
    assert_memory_bounded(server)
    for client in clients:
        client.close()
    wait_until(lambda: connections_of(server) <= 2, "the connections to be gone")
    assert_serves(server)


def test_one_connection_too_many(make_server):
    server = make_server(max_connections=24).start()
    admin = server.connect()

    def counts(*names):
        stats = dict(line.split()[1:3] for line in admin.roundtrip(b"stats\r\n").splitlines() if line.count(b" ") == 2)
        return [int(stats[name]) for name in names]

    # Else the one that found the server started may still hold a place.
    wait_until(lambda: counts(b"curr_connections") == [1], "the first connection to be gone")

    def settled():
        return counts(b"total_connections", b"rejected_connections")

    # memcached counts some descriptors of its own: the limit is met somewhere up to 24.
    clients = []
    while settled()[1] == 0:
        assert len(clients) < 24, "nobody was refused"
        before = settled()
        # Says nothing yet: what a refused client had sent could cost it the answer.
        clients.append(server.connect())
        wait_until(lambda before=before: settled() != before, "the connection to be taken or refused")
    refused = clients.pop()
    assert refused.read_rest() == b"ERROR Too many open connections\r\n"
    if server.is_flowstone:
        assert len(clients) == 23

    assert clients[0].roundtrip(b"get x\r\n") == b"END\r\n", "those within the limit are served on"
    clients.pop().close()

    def served_again():
        with server.connect() as late:
            try:
                return late.roundtrip(b"") == b""
            except (Closed, OSError):
                return False

    wait_until(served_again, "room for one more connection")
    for client in clients:
        client.close()


@pytest.mark.flowstone
def test_silent_clients_are_let_go(make_server):
    server = make_server(options=["--idle-timeout", "1"]).start()
    with server.connect() as silent, server.connect() as half:
        half.send(b"set half 0 0 10\r\nabc")
        assert silent.read_rest() == b""
        assert half.read_rest() == b""
    assert_serves(server)


@pytest.mark.flowstone
def test_clients_that_drip_bytes_are_let_go(make_server):
    """A byte now and then is no command: of a line, of a short value, of one that is refused for its length."""
    server = make_server(options=["--idle-timeout", "2"]).start()
    starts = [b"get ", b"set value 0 0 1000\r\n", b"set long 0 0 100000\r\n", b"set refused 0 0 900000000\r\n"]
    clients = [server.connect() for _ in starts]
    for client, start in zip(clients, starts):
        client.send(start)
    deadline = time.monotonic() + 30
    while clients and time.monotonic() < deadline:
        gone, _, _ = select.select([client.sock for client in clients], [], [], 0.3)
        clients = [client for client in clients if client.sock not in gone and push(client, b"k") == 1]
    assert not clients, "some drip for ever"
    assert_serves(server)


@pytest.mark.flowstone
def test_a_slow_long_value_that_makes_progress_is_stored(make_server):
    server = make_server(options=["--idle-timeout", "2"]).start()
    with server.connect() as client:
        client.send(b"set slow 0 0 %d\r\n" % (6 * 10_000))
        for _ in range(6):
            time.sleep(0.8)
            client.send(b"x" * 10_000)
        client.send(b"\r\n")
        assert client.read_line() == b"STORED\r\n"


@pytest.mark.flowstone
def test_requests_sent_during_a_suspension_are_answered(make_server):
    """The process is stopped for longer than the idle timeout, as a suspended machine is."""
    server = make_server(options=["--idle-timeout", "2"]).start()
    clients = [server.connect() for _ in range(20)]
    for client in clients:
        assert client.roundtrip(b"get nothing\r\n") == b"END\r\n"
    server.process.send_signal(signal.SIGSTOP)
    try:
        for client in clients[:10]:
            client.send(b"get nothing\r\n")
        time.sleep(4.5)
    finally:
        server.process.send_signal(signal.SIGCONT)
    for client in clients[:10]:
        assert client.read_line() == b"END\r\n"
    # Those that were silent meanwhile may go on, too, and are let go in the end.
    assert clients[10].roundtrip(b"get nothing\r\n") == b"END\r\n"
    for client in clients:
        assert client.read_rest() == b""


@pytest.mark.flowstone
def test_vanished_hosts_are_asked_for(server):
    """Connections have keepalive: the kernel shows the timer of each."""
    with server.connect() as client:
        client.roundtrip(b"version\r\n")
        shown = subprocess.run(["ss", "-tnoH", f"sport = :{server.port}"], capture_output=True, text=True, check=True).stdout
    assert "keepalive" in shown, shown


@pytest.mark.parametrize("seed", range(20))
def test_garbage(subject, seed):
    rng = random.Random(seed)
    words = [b"set", b"get", b"ms", b"mg", b"ma", b"md", b"incr", b" ", b"\r\n", b"\n", b"k", b"0", b"-1", b"99999999999", b"noreply"]
    for _ in range(20):
        if rng.random() < 0.5:
            data = rng.randbytes(rng.randrange(1, 4000))
        else:
            data = b"".join(rng.choice(words) + rng.choice([b"", b" "]) for _ in range(rng.randrange(1, 400)))
        # A flush or a shutdown cannot come of these words; anything else may be answered as it may.
        with subject.connect() as client:
            client.exchange(data)
    assert_serves(subject, b"after.garbage")


@pytest.mark.flowstone
def test_binary_protocol_is_refused(server):
    noop = bytes([0x80, 0x0A]) + bytes(22)
    with server.connect() as client:
        answer = client.exchange(noop)
    assert answer[:2] == bytes([0x81, 0x0A]), "an error in the client's own protocol"
    assert_serves(server)
    lines = [line for line in server.log().splitlines() if "binary protocol" in line.lower()]
    assert len(lines) == 1, lines


@pytest.mark.flowstone
def test_binary_magic_within_a_key_is_a_byte_like_any(server):
    with server.connect() as client:
        assert client.roundtrip(b"version\r\n").startswith(b"VERSION ")
        assert client.roundtrip(b"get \x80\r\n") == b"END\r\n"


@pytest.mark.flowstone
@pytest.mark.parametrize("limit", ["64KiB", "1MiB", "4MiB"])
def test_values_at_and_over_the_limit(make_server, limit):
    server = make_server(options=["--max-item-size", limit], memory_mib=128).start()
    bytes_ = int(limit[:-3]) * {"KiB": 1024, "MiB": MIB}[limit[-3:]]
    fits, too_large = b"f" * bytes_, b"t" * (bytes_ + 1)
    with server.connect() as client:
        assert client.roundtrip(b"set fits 1 0 %d\r\n%s\r\n" % (len(fits), fits)) == b"STORED\r\n"
        assert client.roundtrip(b"get fits\r\n") == b"VALUE fits 1 %d\r\n%s\r\nEND\r\n" % (len(fits), fits)
        assert client.roundtrip(b"set large 0 0 3\r\nold\r\n") == b"STORED\r\n"
        refused = client.roundtrip(b"set large 0 0 %d\r\n%s\r\n" % (len(too_large), too_large))
        assert refused == b"SERVER_ERROR object too large for cache\r\n"
        assert client.roundtrip(b"get large\r\n") == b"END\r\n", "the old value must be gone"
    server.spill()
    assert server.ask(b"get fits\r\n") == b"VALUE fits 1 %d\r\n%s\r\nEND\r\n" % (len(fits), fits)


@pytest.mark.flowstone
def test_memory_stays_bounded_under_writes(server):
    for _ in range(3):
        server.spill()
    assert_memory_bounded(server)


@pytest.mark.flowstone
def test_cold_key_asked_by_many_costs_one_read(server):
    """A thousand clients, one item on flash: nobody gets a wrong answer, and each gets one."""
    assert server.ask(b"set cold 0 0 4\r\ncold\r\n") == b"STORED\r\n"
    server.spill()
    clients = [server.connect() for _ in range(1000)]
    for client in clients:
        client.send(b"get cold\r\n")
    for client in clients:
        assert client.read_until(b"END\r\n") == b"VALUE cold 0 4\r\ncold\r\nEND\r\n"
        client.close()


def test_idle_server_uses_no_processor(server):
    """Measured over processor time, so a busy machine does not matter."""
    def cpu_ticks():
        fields = open(f"/proc/{server.process.pid}/stat", encoding="ascii").read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    assert_serves(server)
    before, started = cpu_ticks(), time.monotonic()
    time.sleep(3)
    used = (cpu_ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - started)
    assert used < 0.02, f"{used:.1%} of a core while idle"
