"""Fixtures: the reference server, the server under test, and servers of a test's own."""

import os
import resource
from pathlib import Path

import pytest

pytest.register_assert_rewrite("cases", "servers")

from servers import Memcached, subject_class  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "flowstone: holds for Flowstone only; skipped when memcached is under test")
    # Flash files belong on a disk, and /tmp often is memory.
    if not config.option.basetemp:
        root = Path(__file__).resolve().parents[2]
        config.option.basetemp = str(Path(os.environ.get("CARGO_TARGET_DIR", root / "target")) / "blackbox")
        Path(config.option.basetemp).parent.mkdir(parents=True, exist_ok=True)
    # Thousands of client sockets, and as many in the servers, which inherit the limit.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else 65536, hard))


def pytest_collection_modifyitems(items):
    if subject_class().is_flowstone:
        return
    for item in items:
        if item.get_closest_marker("flowstone"):
            item.add_marker(pytest.mark.skip(reason="holds for Flowstone only"))


@pytest.fixture(scope="session")
def oracle(tmp_path_factory):
    """memcached, whose answers are right by definition."""
    server = Memcached(tmp_path_factory.mktemp("oracle"), memory_mib=1024)
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture(scope="session")
def subject(tmp_path_factory):
    """The server under test, shared by tests that do not disturb one another."""
    server = subject_class()(tmp_path_factory.mktemp("subject"))
    try:
        yield server.start()
        assert server.alive(), f"the server died during the tests:\n{server.log()}"
    finally:
        server.close()


@pytest.fixture
def make_server(tmp_path):
    """Makes servers of a test's own; whatever of them runs at its end is killed."""
    made = []

    def make(cls=None, directory=None, **options):
        server = (cls or subject_class())(directory or tmp_path, **options)
        made.append(server)
        return server

    yield make
    for server in made:
        server.close()
