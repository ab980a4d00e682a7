"""A real PostgreSQL of the test's own: its programs are those of the system, its data lies in a temporary folder."""

from __future__ import annotations

import itertools
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql

from tests.servers.running import Running, as_child, found, free_port, hand_over, own_folder

SUPERUSER = "cotenant"
# Orders names unlike Python does, as most installations do: an order that code takes for granted shows here.
LOCALE = ["--encoding=UTF8", "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"]


class Postgres:
    """One server; every database on it is a new one. `durable` = with fsync, for measurements."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        """Raises NotInstalled where there is no PostgreSQL."""
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))[::-1]
        initdb, server = found("initdb", *programs), found("postgres", *programs)
        self.port = free_port()
        self.password = secrets.token_hex(16)
        self._numbers = itertools.count()
        self._folder, data = folder, folder / "data"
        words = folder / "password"
        words.write_text(self.password, encoding="utf-8")
        hand_over(words)
        argv = [initdb, "-D", str(data), "-U", SUPERUSER, "-A", "scram-sha-256", f"--pwfile={words}", "-N", *LOCALE]
        made = subprocess.run([*as_child(True), *argv], capture_output=True, text=True, check=False, cwd=folder)
        if made.returncode != 0:
            raise RuntimeError(f"initdb: {made.stderr[-2000:]}")
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": "on" if durable else "off",
            "max_connections": "100",  # PostgreSQL's default
            "jit": "off",
        }
        argv = [server, "-D", str(data), *(f"--{name}={value}" for name, value in settings.items())]
        # SIGINT is its fast shutdown: sessions are ended, nothing is lost (pg_ctl(1))
        self.running = Running(argv, self._ready, folder / "log", drop=True, stop_by=signal.SIGINT)
        self.running.start()

    def url(self, database: str = "postgres") -> str:
        """The URL that Cotenant takes, with its password."""
        return f"postgresql://{SUPERUSER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def new_database(self, *, template: str = "template0", tablespace: str = "pg_default") -> str:
        """Make an empty database, or a copy of one without connections, and return its name."""
        name = f"d{next(self._numbers)}"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} TABLESPACE {}")
        self.execute(statement.format(*map(sql.Identifier, (name, template, tablespace))))
        return name

    def drop(self, name: str) -> None:
        """Drop a database with whoever is still connected."""
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def execute(self, statement: sql.Composed | sql.SQL) -> None:
        """Run a statement of administration, outside of any transaction."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def restart(self) -> None:
        """End every session and come back."""
        self.running.stop()
        self.running.start()

    def _ready(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def postgres(*, durable: bool = False) -> Iterator[Postgres]:
    """A running server, stopped and removed at the end; NotInstalled where there is none."""
    folder = own_folder("postgres")
    server = None
    try:
        server = Postgres(folder, durable=durable)
        yield server
    finally:
        if server is not None:
            server.running.stop()
        shutil.rmtree(folder)
