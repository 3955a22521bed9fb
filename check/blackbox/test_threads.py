"""Threads that cannot be had, as under `docker run --pids-limit`: the server works with those it has."""

import os
import resource
import shutil
import tempfile
import threading

import pytest

from refused import needs_filter
from servers import WORKER
from test_filesystems import serves_flash, small, warnings
from test_restart import fails_to_start

pytestmark = [
    pytest.mark.flowstone,
    needs_filter,
    pytest.mark.skipif(os.geteuid() != 0, reason="the limit counts all processes of a user, and is none for root"),
]

CLIENTS = 40


@pytest.fixture
def limited(make_server):
    """Makes servers of a user of their own, who may have a few threads and no io_uring."""
    home = tempfile.mkdtemp(prefix="flowstone-threads-")
    user = 56_000 + WORKER
    os.chown(home, user, user)

    def make(threads, options=()):
        server = small(
            make_server,
            directory=home,
            limits={resource.RLIMIT_NPROC: threads},
            refused={"io_uring_setup": "EPERM"},
            options=options,
        )
        server.identity = {"user": user, "group": user, "extra_groups": []}
        return server

    yield make
    shutil.rmtree(home)


def hits(server, keys):
    """How many of the keys a client gets."""
    return server.ask(b"get " + b" ".join(b"k%d" % key for key in keys) + b"\r\n").count(b"VALUE ")


# Two are workers, one writes the log, one waits for signals, and the main one waits for the end.
@pytest.mark.parametrize("threads", [5, 10])
def test_few_threads_serve_all_clients(limited, threads):
    server = limited(threads, ["--threads", "2"]).start()
    serves_flash(server)
    found = []

    def read(client):
        found.append(hits(server, range(client * 10, client * 10 + 200)))

    readers = [threading.Thread(target=read, args=(client,)) for client in range(CLIENTS)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert found == [200] * CLIENTS
    told = [line for line in warnings(server) if "pids limit" in line]
    assert len(told) == 1, server.log()
    assert "panicked" not in server.log()
    assert server.terminate() == 0


def test_fewer_workers_than_asked_for_serve(limited):
    server = limited(7, ["--threads", "6"])
    server.memory_mib = 64
    server.start()
    told = [line for line in warnings(server) if "workers serve" in line]
    assert len(told) == 1 and "pids limit" in told[0], server.log()
    clients = [server.connect() for _ in range(CLIENTS)]
    assert all(client.exchange(b"mn\r\n") == b"MN\r\n" for client in clients)
    assert int(server.stats()["threads"]) == 4
    assert server.terminate() == 0


def test_no_worker_at_all_is_one_line(limited):
    assert "pids limit" in fails_to_start(limited(2))
