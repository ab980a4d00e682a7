"""A fresh database with the newest tables, of each kind that Cotenant runs on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import sqlalchemy as sa

from advisor.store import migrate
from advisor.store.engine import Database
from tests.servers.fixtures import empty_url, kind, postgres_server, sqlite_with_tables
from tests.servers.postgres import Postgres

__all__ = ["empty_url", "kind", "postgres_server"]


@pytest.fixture
def url(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database with the newest tables and nothing in them."""
    if kind == "sqlite":
        yield sqlite_with_tables(tmp_path / "cotenant.sqlite3")
        return
    kept = request.getfixturevalue("kept_database")
    yield kept.url
    kept.empty()


class _Kept:
    """A database on a server that tests use one after the other: making one takes ten times as long as emptying it."""

    def __init__(self, url: str) -> None:
        self.url = url
        _upgrade(url)
        tables = sa.MetaData()
        with self._opened() as connection:
            tables.reflect(connection)
            self._first = {
                table: connection.execute(sa.select(table)).mappings().all() for table in tables.sorted_tables
            }
        self._names = ", ".join(table.name for table in self._first)

    def empty(self) -> None:
        """Leave what the migrations put there: tests also make tables, of the days of their samples."""
        with self._opened() as connection:
            for name in {*sa.inspect(connection).get_table_names()} - {table.name for table in self._first}:
                connection.execute(sa.text(f'DROP TABLE "{name}"'))
            connection.execute(sa.text(f"TRUNCATE {self._names} RESTART IDENTITY"))
            for table, rows in self._first.items():
                if rows:
                    connection.execute(sa.insert(table), [dict(row) for row in rows])

    def _opened(self) -> AbstractContextManager[sa.Connection]:
        return sa.create_engine(self.url, poolclass=sa.NullPool).begin()


@pytest.fixture(scope="session")
def kept_database(postgres_server: Postgres) -> _Kept:
    return _Kept(postgres_server.url(postgres_server.new_database()))


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    database = Database(url)
    yield database
    database.close()


def _upgrade(url: str) -> None:
    database = Database(url)
    migrate.upgrade(database)
    database.close()
