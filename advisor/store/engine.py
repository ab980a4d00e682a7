"""Database: connections, transactions and what the two database systems differ in; the only place that names SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import URL, make_url

from advisor.errors import Conflict, InvalidInput, OutOfSpace, StorageUnavailable

BUSY_S = 10.0  # how long a writer waits for another one before it gives up
POOL = 40  # connections: as many as the threads that a server runs calls in (anyio's default)
_WRITES = "cotenant_writes"  # marks connections that are going to write


class Database:
    """One database, reached by URL; thread-safe. `read` and `write` open the one transaction of a request.

    Raises InvalidInput when the URL makes no sense, StorageUnavailable when its folder cannot be made.
    """

    def __init__(self, url: str, *, busy_s: float = BUSY_S) -> None:
        self.url = _checked(url)
        if self.is_sqlite:
            _make_folder(self.url)
        options: dict[str, Any] = {"connect_args": {"timeout": busy_s}} if self.is_sqlite else {"pool_pre_ping": True}
        try:
            self._engine = sa.create_engine(self.url, pool_size=POOL, max_overflow=0, pool_timeout=busy_s, **options)
        except (exc.ArgumentError, ImportError) as error:
            message = f"database {self.name} needs a driver that is not installed ({error}); install psycopg"
            raise InvalidInput(message, field="database") from error
        if self.is_sqlite:
            sa.event.listen(self._engine, "connect", _prepare_sqlite)
            sa.event.listen(self._engine, "begin", _begin_sqlite)
            self._reader = self._engine
        else:  # a read of several tables sees one moment, as it does on SQLite
            self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ")
        self._writer = self._engine.execution_options(**{_WRITES: True})

    @property
    def is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @property
    def name(self) -> str:
        """The URL without its password, for messages."""
        return self.url.render_as_string(hide_password=True)

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A transaction that sees one moment of the database; StorageUnavailable when there is none to be had."""
        with self._speaking(), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A transaction that is committed at the end, rolled back on any exception; OutOfSpace on a full disk."""
        with self._speaking(), self._writer.begin() as connection:
            yield connection

    def close(self) -> None:
        """Close every idle connection."""
        self._engine.dispose()

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except exc.IntegrityError as error:
            raise Conflict(f"the change contradicts what is stored: {error.orig}") from error
        except (exc.ProgrammingError, exc.DataError, exc.NotSupportedError):
            raise  # a mistake of this program, not a state of the storage
        except (exc.DBAPIError, exc.TimeoutError) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: exc.SQLAlchemyError) -> StorageUnavailable:
        cause = getattr(error, "orig", None) or error
        code = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None) or ""
        # 53100 is PostgreSQL's disk_full; SHMSIZE and SHMMAP are SQLite failing to grow its WAL index
        if code in {"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_SHMMAP", "53100"}:
            return OutOfSpace(f"no space left for database {self.name}: nothing was written; free some and try again")
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return StorageUnavailable(f"database {self.name} is locked by another writer; try again")
        return StorageUnavailable(f"database {self.name} does not answer: {cause}")


def _checked(url: str) -> URL:
    try:
        parsed = make_url(url)
    except exc.ArgumentError as error:
        message = f"database URL {url!r} is not understood; write sqlite:///file.sqlite3 or postgresql://..."
        raise InvalidInput(message, field="database") from error
    if parsed.get_backend_name() not in {"sqlite", "postgresql"}:
        message = f"database {parsed.get_backend_name()!r} is not supported; use sqlite or postgresql"
        raise InvalidInput(message, field="database")
    if parsed.get_backend_name() == "sqlite" and parsed.database in {None, "", ":memory:"}:
        raise InvalidInput("a database in memory is not shared by threads; name a file", field="database")
    return parsed


def _make_folder(url: URL) -> None:
    folder = Path(str(url.database)).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageUnavailable(f"cannot make folder {folder} for the database: {error.strerror}") from error


def _prepare_sqlite(connection: Any, record: object) -> None:  # noqa: ARG001 - SQLAlchemy's signature
    connection.isolation_level = None  # the driver begins nothing by itself; see _begin_sqlite
    for pragma in (
        "journal_mode=WAL",  # readers go on while one writes
        "synchronous=NORMAL",  # safe against a killed process; a power cut may lose the last moments, breaks nothing
        "foreign_keys=ON",
        "journal_size_limit=67108864",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    # A writer takes its lock at once: one that read first would fail, not wait, when another commits in between.
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
