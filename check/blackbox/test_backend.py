"""`flowstone bench --backend`: the look-aside loop, with a real database behind a real server."""

import json
import os
import signal
import subprocess

import pytest

from databases import NAME, PASSWORD, MariaDb, Postgres, Sqlite
from servers import HOST, PATIENCE_S, Flowstone, wait_until
from test_cli import one_line

pytestmark = pytest.mark.flowstone

KEYS = 3000
REQUESTS = 6000
CLIENTS = 8


@pytest.fixture(scope="module", params=[Sqlite, MariaDb, Postgres], ids=lambda kind: kind.name)
def database(request, tmp_path_factory):
    if request.param is Sqlite:
        made = Sqlite(tmp_path_factory.mktemp("sqlite"))
    else:
        made = request.param()
    try:
        yield made if request.param is Sqlite else made.start()
    finally:
        made.close()


def command(port, backend, *options):
    server = ["bench", "--server", f"{HOST}:{port}", "--backend", backend]
    return [Flowstone.binary(), *server, "--keys", str(KEYS), "--clients", str(CLIENTS), *options]


def bench(server, backend, *options, **popen):
    return subprocess.run(
        command(server.port, backend, *options),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        **popen,
    )


def rows(done):
    """The rows of a run that went well, by phase."""
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert done.stderr == "" and PASSWORD not in done.stdout
    read = {}
    for line in done.stdout.splitlines():
        row = json.loads(line)
        read[row["phase"]] = row
    return read


def check_figures(read, requests=REQUESTS):
    without, cached = read["database"], read["cache"]
    for row in (without, cached):
        assert row["requests"] == requests and row["errors"] == 0, row
        assert row["ops_per_s"] > 0 and row["p50_us"] <= row["p99_us"] <= row["p999_us"], row
    assert without["gets"] == cached["gets"], "both phases ask for the same"
    assert "hits" not in without and "hit" not in without
    assert cached["hits"] + cached["misses"] == cached["gets"] and cached["ops_ratio"] > 0
    assert cached["hit"]["p50_us"] > 0 and cached["miss"]["p50_us"] > 0


def test_the_look_aside_loop(database, make_server):
    server = make_server().start()
    reads = ["--requests", str(REQUESTS), "--verify", "--json"]

    refused = one_line(bench(server, database.url, *reads))
    assert "--load" in refused or "unable to open" in refused

    read = rows(bench(server, database.url, "--load", *reads))
    check_figures(read)
    assert read["load"]["load_keys"] == KEYS
    assert database.sql("SELECT count(*) FROM flowstone") == [str(KEYS)]
    assert read["cache"]["absent"] == 0
    # The cache was empty, so every key that was read was missed once, and by clients that met, more often.
    seen = int(server.stats()["curr_items"])
    assert seen <= read["cache"]["misses"] < 2 * seen
    assert int(server.stats()["get_hits"]) == read["cache"]["hits"]

    # Writes too, in a database that is filled already, with the other protocol.
    writes = ["--workload", "zipfian", "--ratio", "8:1:1", "--meta"]
    read = rows(bench(server, database.url, *writes, *reads))
    check_figures(read)
    assert read.keys() == {"database", "cache"}
    cached = read["cache"]
    assert cached["sets"] > 0 and cached["deletes"] > 0 and cached["absent"] > 0
    left = int(database.sql("SELECT count(*) FROM flowstone")[0])
    assert KEYS - 2 * cached["deletes"] <= left < KEYS
    if isinstance(database, Sqlite):
        assert [file.name for file in database.path.parent.iterdir()] == [database.path.name]

    # A trace, whose keys nobody has listed.
    trace = server.directory / "requests.csv"
    lines = [f"0,page-{n % 40:09},14,{100 + n % 40},1,{'set' if n % 7 == 3 else 'get'},0\n" for n in range(900)]
    trace.write_text("".join(lines))
    read = rows(bench(server, database.url, "--workload", f"trace:{trace}", "--load", "--verify", "--json"))
    check_figures(read, requests=900)
    assert read["load"]["load_keys"] == 40 and read["cache"]["absent"] == 0


def test_a_table_of_somebody_else_is_left_alone(database, make_server):
    server = make_server().start()
    database.sql("DROP TABLE IF EXISTS flowstone")
    database.sql("CREATE TABLE flowstone (id INTEGER PRIMARY KEY, quarry VARCHAR(80))")
    database.sql("INSERT INTO flowstone VALUES (1, 'Carrara')")
    try:
        line = one_line(bench(server, database.url, "--load", "--requests", "10"))
        assert "quarry" in line and "name" in line and PASSWORD not in line
        assert database.sql("SELECT * FROM flowstone") == ["1\tCarrara"]
    finally:
        database.sql("DROP TABLE flowstone")


def test_what_cannot_be_opened(database, make_server, tmp_path):
    server = make_server().start()
    if isinstance(database, Sqlite):
        urls = [f"sqlite:{tmp_path}/nowhere/items.sqlite", f"sqlite:{tmp_path}"]
    else:
        urls = [
            database.url_with("wrong-secret"),
            database.url.replace(f"/{NAME}", "/elsewhere"),
            database.url.replace(f":{database.port}/", ":1/"),
        ]
    for url in urls:
        line = one_line(bench(server, url, "--load", "--requests", "10"))
        assert "cannot use the database" in line
        assert "secret" not in line and PASSWORD not in line


@pytest.mark.parametrize(
    "url, word",
    [
        ("redis://shop:secret@localhost/items", "redis"),
        ("secret", "no such kind"),
        ("mysql://shop:secret@localhost:port/items", "invalid port"),
        ("postgres://shop:12/secret@localhost/items", "%2F"),
        ("sqlite::memory:", "temporary"),
    ],
)
def test_wrong_urls(url, word, tmp_path):
    done = subprocess.run(command(1, url), cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    line = one_line(done)
    assert word in line and "secret" not in line
    assert list(tmp_path.iterdir()) == []


class Running:
    """A bench at work, in the phase with the cache."""

    def __init__(self, server, backend, **popen):
        # Sets go to the database whatever the cache holds.
        options = ["--load", "--ratio", "1:1", "--duration", "2", "--json"]
        self.process = subprocess.Popen(
            command(server.port, backend, *options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **popen,
        )
        phases = [json.loads(self.process.stdout.readline())["phase"] for _ in range(2)]
        assert phases == ["load", "database"]
        wait_until(lambda: int(server.stats()["cmd_get"]) > 0, "the cache to be asked")

    def end(self):
        try:
            output, errors = self.process.communicate(timeout=PATIENCE_S)
        finally:
            self.process.kill()
        assert output == "" and len(errors.splitlines()) == 1, (output, errors)
        return self.process.returncode, errors


def test_a_cache_that_goes_away(make_server, tmp_path):
    server = make_server().start()
    running = Running(server, f"sqlite:{tmp_path}/items.sqlite")
    server.kill()
    status, line = running.end()
    assert status == 1 and "the cache at" in line and str(server.port) in line


def test_no_cache_at_all(make_server, tmp_path):
    server = make_server()
    done = bench(server, "sqlite", "--requests", "10", "--json")
    assert done.returncode == 1 and "cannot connect to" in done.stderr


@pytest.mark.parametrize("kind", [MariaDb, Postgres], ids=lambda kind: kind.name)
def test_a_database_that_goes_away(kind, make_server):
    server = make_server().start()
    database = kind()
    try:
        running = Running(server, database.start().url)
        database.kill()
        status, line = running.end()
    finally:
        database.close()
    assert status == 1 and "went away" in line and PASSWORD not in line


def test_a_temporary_database_leaves_nothing_behind(make_server, tmp_path):
    server = make_server().start()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    read = rows(bench(server, "sqlite", "--requests", "2000", "--json", env=environment))
    check_figures(read, requests=2000)
    assert list(temporary.iterdir()) == []

    server.ask(b"flush_all\r\n")
    running = Running(server, "sqlite", env=environment)
    assert len(list(temporary.iterdir())) == 1
    running.process.send_signal(signal.SIGTERM)
    status, line = running.end()
    assert status == 1 and "interrupted" in line
    assert list(temporary.iterdir()) == []
