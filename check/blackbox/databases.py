"""Databases behind the cache: private instances, each in a temporary directory on a free port.

Nothing that the system runs is touched. Database servers refuse to run as root, so when the tests do,
they run as the users that Debian's packages made for them. Their directories are in the system's
temporary directory, because those users may not look into the tests' own.
"""

import os
import pwd
import shutil
import sqlite3
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

from servers import HOST, PATIENCE_S, Server

PASSWORD = "not/for@eyes:#?%"
USER = "bench"
NAME = "items"


def tool(*arguments, **options):
    """Runs a program to its end and returns what it wrote; its complaints are the test's."""
    done = subprocess.run(
        arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **options
    )
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


class Sqlite:
    """A file."""

    name = "sqlite"

    def __init__(self, directory):
        self.path = Path(directory) / "items.sqlite"
        self.url = f"sqlite:{self.path}"

    def sql(self, statement):
        """Carries out a statement; returns its rows as lines of columns divided by tabs."""
        connection = sqlite3.connect(self.path)
        with connection:
            rows = ["\t".join(str(column) for column in row) for row in connection.execute(statement)]
        connection.close()
        return rows

    def close(self):
        pass


class DatabaseServer(Server):
    """One database server, as an unprivileged user."""

    system_user = None

    def __init__(self):
        self.home = tempfile.mkdtemp(prefix=f"flowstone-{self.name}-")
        super().__init__(self.home)
        if os.geteuid() == 0:
            account = pwd.getpwnam(self.system_user)
            os.chown(self.home, account.pw_uid, account.pw_gid)
            self.identity = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        self.data = Path(self.home) / "data"

    def url_with(self, password):
        return f"{self.scheme}://{USER}:{quote(password, safe='')}@{HOST}:{self.port}/{NAME}"

    @property
    def url(self):
        return self.url_with(PASSWORD)

    def as_its_user(self, *arguments):
        return tool(*arguments, cwd=self.home, **self.identity)

    def _accepts(self):
        try:
            return self.sql("SELECT 1") == ["1"]
        except AssertionError:
            return False

    def close(self):
        super().close()
        shutil.rmtree(self.home)


class MariaDb(DatabaseServer):
    """MariaDB, for MySQL's protocol."""

    name = "mariadb"
    scheme = "mysql"
    system_user = "mysql"

    def start(self):
        self.as_its_user(
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={self.data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        )
        (Path(self.home) / "init.sql").write_text(
            f"CREATE DATABASE {NAME};\n"
            f"CREATE USER '{USER}'@'{HOST}' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON {NAME}.* TO '{USER}'@'{HOST}';\n"
        )
        return super().start()

    def command(self):
        return [
            "mariadbd",
            "--no-defaults",
            f"--datadir={self.data}",
            f"--init-file={self.home}/init.sql",
            f"--bind-address={HOST}",
            f"--port={self.port}",
            f"--socket={self.home}/socket",
            f"--pid-file={self.home}/pid",
            "--skip-name-resolve",
            "--skip-log-bin",
            "--innodb-buffer-pool-size=32M",
            "--innodb-flush-log-at-trx-commit=2",
        ]

    def sql(self, statement):
        client = ["mariadb", "--no-defaults", f"--host={HOST}", f"--port={self.port}", f"--user={USER}"]
        options = ["--batch", "--skip-column-names", f"--execute={statement}", NAME]
        return tool(*client, *options, env={**os.environ, "MYSQL_PWD": PASSWORD}).splitlines()


class Postgres(DatabaseServer):
    """PostgreSQL."""

    name = "postgres"
    scheme = "postgres"
    system_user = "postgres"

    @staticmethod
    def program(name):
        """Debian keeps the server's programs out of PATH, a directory for each release."""
        found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[4]))
        return str(found[-1]) if found else name

    def start(self):
        password = Path(self.home) / "password"
        password.write_text(PASSWORD + "\n")
        self.as_its_user(
            self.program("initdb"),
            f"--pgdata={self.data}",
            f"--username={USER}",
            f"--pwfile={password}",
            "--auth=scram-sha-256",
            "--no-sync",
        )
        return super().start()

    def command(self):
        options = {
            "listen_addresses": HOST,
            "port": self.port,
            "unix_socket_directories": "",
            "fsync": "off",
            "shared_buffers": "32MB",
        }
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return [self.program("postgres"), "-D", str(self.data), *settings]

    def _accepts(self):
        try:
            names = self.sql("SELECT datname FROM pg_database", database="postgres")
            if NAME not in names:
                self.sql(f"CREATE DATABASE {NAME}", database="postgres")
        except AssertionError:
            return False
        return True

    def sql(self, statement, database=NAME):
        client = ["psql", "--no-psqlrc", f"--host={HOST}", f"--port={self.port}", f"--username={USER}"]
        options = ["--no-align", "--tuples-only", "--field-separator=\t", f"--command={statement}", database]
        return tool(*client, *options, env={**os.environ, "PGPASSWORD": PASSWORD}).splitlines()
