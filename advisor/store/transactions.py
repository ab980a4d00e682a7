"""Transactions of a service: none on tables of another version, none for a caller whose time is up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from sqlalchemy import Connection

from advisor import deadline
from advisor.errors import SchemaMismatch
from advisor.store import migrate
from advisor.store.engine import Database
from advisor.store.sample_store import STORED, SampleStore

Transaction = Callable[[], AbstractContextManager[Connection]]  # opens one, to read or to write


class Write(Protocol):
    """Opens a transaction that writes; `wait_s` as in Database.write."""

    def __call__(self, *, wait_s: float | None = None) -> AbstractContextManager[Connection]:
        """Open it."""


class Transactions:
    """One per service; thread-safe. `samples` are wherever the service keeps them.

    Brings an empty database to the newest tables. Raises SchemaMismatch on the database of a newer version or another
    program; on one of an older version every transaction does, until `upgrade`.
    """

    def __init__(self, database: Database, samples: SampleStore = STORED) -> None:
        self._database = database
        self.samples = samples
        self._outdated: SchemaMismatch | None = None
        with database.read() as connection:
            tables_fit = migrate.fit(connection)
        if tables_fit == "empty":
            self.upgrade()
            return
        try:
            migrate.refuse(database, tables_fit)
        except SchemaMismatch as error:
            if tables_fit != "older":
                raise
            self._outdated = error

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that writes nothing."""
        self.refuse()
        with self._database.read() as connection:
            yield connection

    @contextmanager
    def write(self, *, synced: bool = True, wait_s: float | None = None) -> Iterator[Connection]:
        """A transaction that is committed at its end, or rolled back when it raises; options as in Database.write."""
        self.refuse()
        with self._database.write(synced=synced, wait_s=wait_s) as connection:
            yield connection

    def refuse(self) -> None:
        """Raise where no transaction may begin: SchemaMismatch, or that the caller's time is up."""
        deadline.check()
        if self._outdated is not None:
            raise SchemaMismatch(self._outdated.message)

    def upgrade(self) -> str:
        """Bring the database to the newest tables; returns the revision."""
        revision = migrate.upgrade(self._database)
        self._outdated = None
        return revision
