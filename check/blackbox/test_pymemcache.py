"""A client library that programs use, every method of it, against the server under test."""

import threading
from contextlib import closing

import pytest
from pymemcache import serde
from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient
from pymemcache.client.retrying import RetryingClient
from pymemcache.exceptions import MemcacheClientError, MemcacheError, MemcacheServerError

from servers import HOST, PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def server(subject):
    return subject


@pytest.fixture
def client(server, request):
    prefix = f"py.{request.node.name}.".encode().replace(b"[", b".").replace(b"]", b"")
    with closing(Client((HOST, server.port), key_prefix=prefix, timeout=PATIENCE_S, no_delay=True, default_noreply=False)) as client:
        yield client


def test_set_get(client):
    assert client.set("greeting", b"hello") is True
    assert client.get("greeting") == b"hello"
    assert client.get("absent") is None
    assert client.get("absent", default=b"none") == b"none"
    assert client.set("greeting", b"", flags=5) is True
    assert client.get("greeting") == b""


def test_set_noreply(client):
    assert client.set("k", b"v", noreply=True) is True
    assert client.get("k") == b"v"


def test_gets_and_cas(client):
    client.set("k", b"one")
    value, cas = client.gets("k")
    assert value == b"one"
    assert client.cas("k", b"two", cas) is True
    assert client.cas("k", b"three", cas) is False
    assert client.cas("absent", b"three", cas) is None
    assert client.gets("absent") == (None, None)
    assert client.get("k") == b"two"


def test_set_many_get_many(client):
    items = {f"item{n}": b"%d" % n * (n % 50) for n in range(1000)}
    assert client.set_many(items) == []
    assert client.get_many(list(items)) == items
    assert client.get_many(["absent", "item3"]) == {"item3": items["item3"]}
    assert client.get_many([]) == {}
    found = client.gets_many(["item1", "item2", "absent"])
    assert {key: value for key, (value, _) in found.items()} == {"item1": items["item1"], "item2": items["item2"]}
    assert client.delete_many(list(items)) is True
    assert client.get_many(list(items)) == {}


def test_add_replace(client):
    assert client.replace("k", b"v") is False
    assert client.add("k", b"v") is True
    assert client.add("k", b"w") is False
    assert client.replace("k", b"w") is True
    assert client.get("k") == b"w"


def test_append_prepend(client):
    assert client.append("k", b"x") is False
    assert client.prepend("k", b"x") is False
    client.set("k", b"mid")
    assert client.append("k", b">") is True
    assert client.prepend("k", b"<") is True
    assert client.get("k") == b"<mid>"


def test_delete(client):
    client.set("k", b"v")
    assert client.delete("k") is True
    assert client.delete("k") is False
    assert client.get("k") is None


def test_incr_decr(client):
    assert client.incr("k", 1) is None
    assert client.decr("k", 1) is None
    client.set("k", b"10")
    assert client.incr("k", 5) == 15
    assert client.decr("k", 20) == 0
    client.set("k", b"text")
    with pytest.raises(MemcacheClientError):
        client.incr("k", 1)


def test_touch(client):
    assert client.touch("k", 100) is False
    client.set("k", b"v")
    assert client.touch("k", 100) is True
    assert client.touch("k", -1) is True
    assert client.get("k") is None


def test_expiry_comes(client):
    client.set("k", b"v", expire=1)
    client.set("stays", b"v", expire=1000)
    wait_until(lambda: client.get("k") is None, "an item of one second to expire", patience_s=10)
    assert client.get("stays") == b"v"


def test_stats_and_version(client):
    assert client.version()
    stats = client.stats()
    assert int(stats[b"pid"]) > 0
    assert client.stats("settings")
    client.set("k", b"v")
    before = int(client.stats()[b"get_hits"])
    client.get("k")
    assert int(client.stats()[b"get_hits"]) >= before + 1


def test_raw_command(client):
    client.set("k", b"v")
    key = client.key_prefix + b"k"
    assert client.raw_command(b"gat 100 " + key, end_tokens=b"END\r\n") == b"VALUE %s 0 1\r\nv\r\n" % key
    assert client.raw_command(b"mn", end_tokens=b"MN\r\n") == b""


def test_quit(client):
    client.quit()
    client.set("k", b"v")
    assert client.get("k") == b"v", "the client connects again after quit"


def test_bad_keys_and_values(client):
    with pytest.raises(MemcacheError):
        client.get("x" * 251)
    with pytest.raises(MemcacheServerError):
        client.set("k", bytes(3 << 20))
    assert client.get("k") is None
    client.set("k", b"fits")
    assert client.get("k") == b"fits"


def test_serialized_objects(server):
    with closing(Client((HOST, server.port), serde=serde.pickle_serde, key_prefix=b"py.serde.", timeout=PATIENCE_S)) as client:
        for value in ("text", b"bytes", 42, [1, {"two": 3}], None):
            client.set("k", value, noreply=False)
            assert client.get("k") == value


def test_flush_all(make_server):
    server = make_server().start()
    with closing(Client((HOST, server.port), timeout=PATIENCE_S)) as client:
        client.set("k", b"v", noreply=False)
        assert client.flush_all(noreply=False) is True
        assert client.get("k") is None
        client.set("k", b"w", noreply=False)
        assert client.get("k") == b"w"


def test_unix_socket(make_server, tmp_path):
    server = make_server(unix=tmp_path / "cache.sock").start()
    with closing(Client(str(server.unix), timeout=PATIENCE_S)) as client:
        client.set("k", b"v", noreply=False)
        assert client.get("k") == b"v"


def test_pooled_client_from_many_threads(server):
    pool = PooledClient((HOST, server.port), max_pool_size=8, timeout=PATIENCE_S, key_prefix=b"py.pool.")
    failures = []

    def work(thread):
        try:
            for n in range(200):
                key = f"{thread}.{n}"
                pool.set(key, key.encode(), noreply=False)
                assert pool.get(key) == key.encode()
                pool.incr("absent", 1)
                assert pool.delete(key, noreply=False) is True
        except Exception as error:  # the thread's failure is the test's
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    pool.close()


def test_counter_from_many_clients(server):
    with closing(Client((HOST, server.port), timeout=PATIENCE_S)) as client:
        client.set("py.counter", b"0", noreply=False)

    def work():
        with closing(Client((HOST, server.port), timeout=PATIENCE_S)) as client:
            for _ in range(250):
                client.incr("py.counter", 1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with closing(Client((HOST, server.port), timeout=PATIENCE_S)) as client:
        assert client.get("py.counter") == b"2000"


def test_retrying_client(server):
    base = Client((HOST, server.port), timeout=PATIENCE_S, key_prefix=b"py.retry.")
    client = RetryingClient(base, attempts=2)
    client.set("k", b"v", noreply=False)
    assert client.get("k") == b"v"
    client.close()


def test_hash_client_over_two_servers(make_server, tmp_path):
    servers = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        servers.append(make_server(directory=tmp_path / name).start())
    client = HashClient(
        [(HOST, server.port) for server in servers],
        timeout=PATIENCE_S,
        ignore_exc=True,
        retry_attempts=0,
        dead_timeout=1000,
    )
    items = {f"key{n}": b"value%d" % n for n in range(500)}
    assert client.set_many(items, noreply=False) == []
    assert client.get_many(list(items)) == items
    shares = [int(server.stats()["curr_items"]) for server in servers]
    assert sum(shares) == len(items) and min(shares) > 100, shares

    servers[1].kill()
    still = {key: client.get(key) for key in items}
    kept = {key: value for key, value in still.items() if value is not None}
    assert len(kept) == shares[0]
    assert all(items[key] == value for key, value in kept.items())
    assert client.set("after", b"loss", noreply=False) is True
    assert client.get("after") == b"loss"
    client.close()


@pytest.mark.flowstone
def test_values_of_64_mib(make_server):
    server = make_server(memory_mib=256, flash_size="1GiB", options=["-I", "64m"]).start()
    with closing(Client((HOST, server.port), timeout=PATIENCE_S, default_noreply=False)) as client:
        values = {f"large-{n}": bytes([n]) * ((64 << 20) - n) for n in range(4)}
        for key, value in values.items():
            assert client.set(key, value) is True
            assert client.get(key) == value
        for key, value in values.items():
            assert client.get(key) == value
        with pytest.raises(MemcacheServerError):
            client.set("larger", bytes((64 << 20) + 1))
        assert client.get("larger") is None
    server.terminate()
    server.start()
    with closing(Client((HOST, server.port), timeout=PATIENCE_S)) as client:
        for key, value in values.items():
            assert client.get(key) == value
