"""Databases: engine, connections, transactions, and the locks that PostgreSQL needs."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import URL, make_url

from advisor.domain import codec
from advisor.errors import Conflict, InvalidInput, OutOfSpace, StorageDamaged, StorageLocked, StorageUnavailable
from advisor.plug_ins import require
from advisor.settings import DATABASE

# Locks that PostgreSQL needs and SQLite, which has one writer at a time, does not; held until the transaction ends.

What = Literal["tables", "series", "observed", "border", "rollups", "held", "stays", "controls", "partitions"]

# Keys of advisory locks are the database's own: these are ours, one for each thing that no row stands for.
_KEYS: dict[What, int] = {
    "tables": 0x636F7401,
    "series": 0x636F7402,
    "observed": 0x636F7403,
    "border": 0x636F7404,
    "rollups": 0x636F7405,
    "held": 0x636F7406,
    "stays": 0x636F7407,
    "controls": 0x636F7408,
    "partitions": 0x636F7409,
}


def alone_with(connection: sa.Connection, name: What) -> None:
    """Wait until no other process holds this, alone or shared, and keep all others out."""
    _lock(connection, sa.func.pg_advisory_xact_lock(_KEYS[name]))


def shared_with(connection: sa.Connection, name: What) -> None:
    """Hold this together with others that share it; one that takes it alone waits."""
    _lock(connection, sa.func.pg_advisory_xact_lock_shared(_KEYS[name]))


def is_alone(connection: sa.Connection) -> bool:
    """Whether no other transaction writes while this one does, as on SQLite."""
    return connection.dialect.name == "sqlite"


def _lock(connection: sa.Connection, function: sa.Function[None]) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(function))


BUSY_S = 10.0  # how long a writer waits for another one before it gives up
POOL = 40  # connections: as many as the threads that a server runs calls in (anyio's default)
SERVER_POOL = 15  # connections to PostgreSQL, per process: it takes 100 in all unless configured otherwise
CONNECT_S = 5  # until a server that does not answer counts as away
SILENCE_S = 60  # how long a process that hangs in a transaction may hold what others wait for
LONGEST_LOG = 64 * 2**20  # bytes of SQLite's write-ahead log, beyond which one of its writers waits for readers
LOG_LOOK_S, LOG_WAIT_S = 10.0, 0.5  # how often, and for how long: who comes meanwhile waits as long
# SQLite moves what was written from its log into the file once that has 1000 pages, within the commit that made it so
# many, and waits for the disk: one of 55 answers did. Here a thread beside them does, after so many transactions; a
# commit only where they were so large that the log would have this many pages (LONGEST_LOG).
MOVED_AFTER, MOST_PAGES = 400, 16_000
_WRITES = "cotenant_writes"  # marks connections that are going to write
_UNSYNCED = "cotenant_unsynced"  # … and need not wait for the disk
_WAIT_MS = "cotenant_wait_ms"  # … and for how long they wait for another writer


class Database:
    """One database, reached by URL; thread-safe. `read` and `write` open the one transaction of a request.

    Raises InvalidInput when the URL makes no sense, StorageUnavailable when its folder is not there: a new database in
    a new folder is more often a typing error than meant, so only that of the default is made.
    """

    def __init__(self, url: str, *, busy_s: float = BUSY_S) -> None:
        self.url = _checked(url)
        self._turn, self._busy_s = _Line(), busy_s
        self._away: tuple[type[Exception], ...] = (exc.DBAPIError, exc.TimeoutError)
        if self.is_sqlite:
            _check_folder(self.url, make=url == DATABASE)
        options = _sqlite_options(busy_s) if self.is_sqlite else _postgresql_options(self.url, busy_s)
        options |= {"json_serializer": codec.text, "json_deserializer": codec.parsed}
        try:
            self._engine = sa.create_engine(self.url, max_overflow=0, pool_timeout=busy_s, **options)
        except (exc.ArgumentError, ImportError) as error:
            message = f"database {self.name} needs a driver that is not installed ({error}); leave it to postgresql://"
            raise InvalidInput(message, field="database") from error
        self._file = Path(str(self.url.database))  # of SQLite
        self._written, self._mover = 0, threading.Thread()  # transactions since a thread moved the log into the file
        self._file_id: tuple[int, int] | None = None  # of the file that was opened first, by device and inode
        self._look_at_log_s = 0.0  # of the monotonic clock
        if self.is_sqlite:
            self._away = (*self._away, sqlite3.Error)  # from the beginning of a transaction
            sa.event.listen(self._engine, "do_connect", self._find_file)
            sa.event.listen(self._engine, "connect", _prepare_sqlite)
            sa.event.listen(self._engine, "begin", _begin_sqlite)
            self._reader = self._engine
        else:
            import psycopg

            self._away = (*self._away, psycopg.OperationalError)  # from a COPY
            # a read of several tables sees one moment, as it does on SQLite
            self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ")

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
        with self._speaking():
            self._check_file()
            with self._reader.begin() as connection:
                yield connection

    @contextmanager
    def write(self, *, synced: bool = True, wait_s: float | None = None) -> Iterator[sa.Connection]:
        """A transaction that is committed at the end, rolled back on any exception; OutOfSpace on a full disk.

        StorageLocked where another writer keeps it waiting for longer than `wait_s`, None = BUSY_S: for a row of
        PostgreSQL, or for the one turn of SQLite, there at most BUSY_S. Without `synced` a power cut may undo it, and
        what else was written so since the last one that was synced. The database stays whole, and a process that dies
        loses nothing.
        """
        turn_s = self._busy_s if wait_s is None else min(wait_s, self._busy_s)
        options: dict[str, Any] = {_WRITES: True, _UNSYNCED: not synced, _WAIT_MS: int(turn_s * 1000)}
        with self._speaking(), self._in_line(turn_s):
            self._check_file()
            with self._engine.connect() as connection, connection.execution_options(**options).begin():
                if not self.is_sqlite and (asked := _asked_of_postgresql(synced, wait_s)):
                    connection.exec_driver_sql(asked)
                yield connection
            self._check_file()  # nothing is reported as stored that cannot be found
            if self.is_sqlite:
                self._move_when_due()
            if self.is_sqlite and time.monotonic() >= self._look_at_log_s:
                self._look_at_log_s = time.monotonic() + LOG_LOOK_S
                self._begin_log_anew()

    def _begin_log_anew(self) -> None:
        """SQLite does so by itself where it finds no reader at work; where there is always one the log grows for ever
        (https://www.sqlite.org/wal.html, "Avoiding Excessively Large WAL Files")."""
        try:
            if Path(f"{self._file}-wal").stat().st_size <= LONGEST_LOG:
                return
            with self._engine.connect() as connection:
                driver = connection.connection.driver_connection
                assert isinstance(driver, sqlite3.Connection)  # noqa: S101 - see Database
                driver.execute(f"PRAGMA busy_timeout={int(LOG_WAIT_S * 1000)}")
                driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                driver.execute(f"PRAGMA busy_timeout={int(self._busy_s * 1000)}")
        except OSError:  # there is no log
            return
        except self._away:  # what was written is written; the next look tries again
            return

    @contextmanager
    def _in_line(self, wait_s: float) -> Iterator[None]:
        """Writers of this process in turn: SQLite lets those that wait sleep and has whichever tries first."""
        if not self.is_sqlite:
            yield
            return
        if not self._turn.enter(wait_s):
            raise StorageLocked(f"database {self.name} is locked by another writer; try again")
        try:
            yield
        finally:
            self._turn.leave()

    def _move_when_due(self) -> None:
        """By the writer whose turn it is."""
        self._written += 1
        if self._written >= MOVED_AFTER and not self._mover.is_alive():
            self._written = 0
            self._mover = threading.Thread(target=self._move, name="checkpoint", daemon=True)
            self._mover.start()

    def _move(self) -> None:
        """Move what is in SQLite's log into its file as far as no reader needs it; no writer waits for that."""
        with suppress(StorageUnavailable, *self._away), closing(self._engine.raw_connection()) as connection:
            connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _find_file(self, *_: object) -> None:
        """Before SQLite opens it: a new file is its owner's alone, and so are those that SQLite puts beside it."""
        self._check_file()
        with suppress(OSError):  # it is there, or SQLite will say what is wrong
            os.mknod(self._file, 0o600 | stat.S_IFREG)
        self._file_id = self._file_id or _file_id(self._file)

    def _check_file(self) -> None:
        """SQLite goes on with a file that has no name any more: what it writes there is lost once it is closed."""
        if self._file_id is not None and _file_id(self._file) != self._file_id:
            message = f"the file of database {self.name} was deleted or replaced while it was in use: put it back, or"
            raise StorageUnavailable(f"{message} stop the service before you put another one there")

    def close(self) -> None:
        """Close every idle connection."""
        if self._mover.is_alive():
            self._mover.join()
        self._engine.dispose()

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except exc.IntegrityError as error:
            raise Conflict(f"the change conflicts with what is stored: {_one_line(error.orig)}") from error
        except exc.ProgrammingError as error:
            if getattr(error.orig, "sqlstate", None) != "42501":
                raise  # a mistake of this program, not a state of the storage
            message = f"database {self.name} does not let its user do that: {_one_line(error.orig)}"
            raise StorageUnavailable(message) from error
        except (codec.Unreadable, UnicodeDecodeError) as error:  # the latter: SQLite names damaged tables
            raise self._damaged(error) from error
        except (exc.DataError, exc.NotSupportedError):
            raise
        except self._away as error:
            raise self._unavailable(error) from error

    def _damaged(self, cause: object) -> StorageDamaged:
        message = (
            f"database {self.name} is damaged ({_one_line(cause)[:200]}): stop the service, move it away, and restore "
            "a backup with cotenant db restore FILE"
        )
        return StorageDamaged(message)

    def _unavailable(self, error: Exception) -> StorageUnavailable:
        cause = getattr(error, "orig", None) or error
        code = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None) or ""
        if code in _DAMAGED or code.startswith("SQLITE_CORRUPT") or str(cause).startswith(_GARBLED):
            return self._damaged(cause)
        if code in _FULL:
            return OutOfSpace(f"no space left for database {self.name}: nothing was written; free some and try again")
        if code in _BUSY or code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return StorageLocked(f"database {self.name} is locked by another writer; try again")
        return StorageUnavailable(f"database {self.name} does not answer: {_one_line(cause)}")


# PostgreSQL: XX001 and XX002 are its words for damaged rows and indexes; 58P01 is a file that is gone.
_DAMAGED = {"SQLITE_NOTADB", "XX001", "XX002", "58P01"}
_GARBLED = ("Could not decode to UTF-8", "malformed database schema")  # these have no code of their own
# SHMSIZE and SHMMAP are SQLite failing to grow its WAL index. PostgreSQL: appendix A of its manual, error codes.
_FULL = {"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_SHMMAP", "53100"}
_BUSY = {"55P03", "40P01", "40001"}  # waited too long for a lock, deadlock, serialization


class _Line:
    """One at a time, in the order in which they came. A plain lock has whoever asks first when it is free: two writers
    that go on at once would keep a third one waiting for as long as they are at it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # over what is below
        self._taken = False
        self._waiting: deque[threading.Event] = deque()

    def enter(self, wait_s: float) -> bool:
        """Wait for the turn; False = it did not come within this time."""
        with self._lock:
            if not self._taken:
                self._taken = True
                return True
            mine = threading.Event()
            self._waiting.append(mine)
        try:
            return mine.wait(wait_s) or not self._withdrawn(mine)
        except BaseException:  # a signal's: the turn of a waiter that is gone would never end
            if not self._withdrawn(mine):
                self.leave()
            raise

    def _withdrawn(self, mine: threading.Event) -> bool:
        """Wait no longer; False = the turn came in this very moment."""
        with self._lock:
            if mine.is_set():
                return False
            self._waiting.remove(mine)
            return True

    def leave(self) -> None:
        """Give the turn to the next."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._taken = False


def _sqlite_options(busy_s: float) -> dict[str, Any]:
    # last in, first out: each connection has a cache of 2 MB, and what is not needed fills none
    return {"pool_size": POOL, "pool_use_lifo": True, "connect_args": {"timeout": busy_s}}


def _postgresql_options(url: URL, busy_s: float) -> dict[str, Any]:
    """What the URL does not say itself: how long to wait for what (libpq, connection control functions)."""
    limits = {"lock_timeout": int(busy_s * 1000), "idle_in_transaction_session_timeout": SILENCE_S * 1000}
    ours = {
        "connect_timeout": CONNECT_S,
        "application_name": "cotenant",
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": SILENCE_S * 1000,
        "options": " ".join(f"-c {name}={value}" for name, value in limits.items()),
    }
    connect_args = {name: value for name, value in ours.items() if name not in url.query}
    # last in, first out: what is not needed stays idle, and is found closed by the server without harm
    return {"pool_size": SERVER_POOL, "pool_pre_ping": True, "pool_use_lifo": True, "connect_args": connect_args}


def _asked_of_postgresql(synced: bool, wait_s: float | None) -> str:
    """What a transaction sets for itself, in one statement; "" = nothing. A limit of 0 would be none."""
    settings = [] if synced else ["SET LOCAL synchronous_commit TO OFF"]
    if wait_s is not None:
        settings.append(f"SET LOCAL lock_timeout TO {max(int(wait_s * 1000), 1)}")
    return "; ".join(settings)


def _one_line(cause: object) -> str:
    return " ".join(str(cause).split())


def _checked(url: str) -> URL:
    try:
        parsed = make_url(url)
    except exc.ArgumentError as error:
        # not repeated: it may hold a password
        message = "the database URL is not understood; write sqlite:///file.sqlite3 or postgresql://user@host/name"
        raise InvalidInput(message, field="database") from error
    if parsed.get_backend_name() not in {"sqlite", "postgresql"}:
        message = f"database {parsed.get_backend_name()!r} is not supported; use sqlite or postgresql"
        raise InvalidInput(message, field="database")
    if parsed.get_backend_name() == "postgresql":
        require("postgresql", "PostgreSQL")
    if parsed.get_backend_name() == "sqlite" and parsed.database in {None, "", ":memory:"}:
        raise InvalidInput("a database in memory is not shared by threads; name a file", field="database")
    if parsed.get_backend_name() == "sqlite" and "uri" in parsed.query:
        raise InvalidInput("a SQLite database is named by the path of its file, not by a URI", field="database")
    return parsed


def _file_id(path: Path) -> tuple[int, int] | None:
    """Which file is there now, None = none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _check_folder(url: URL, *, make: bool) -> None:
    folder = Path(str(url.database)).parent
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        elif not folder.is_dir():
            raise StorageUnavailable(f"there is no folder {folder} for the database; make it, or name another one")
    except OSError as error:
        raise StorageUnavailable(f"folder {folder} for the database cannot be used: {error.strerror}") from error


def _prepare_sqlite(connection: Any, record: object) -> None:  # noqa: ARG001 - SQLAlchemy's signature
    connection.isolation_level = None  # the driver begins nothing by itself; see _begin_sqlite
    for pragma in (
        "journal_mode=WAL",  # readers go on while one writes
        "synchronous=FULL",  # what is committed outlives a power cut: agents delete what was acknowledged
        "foreign_keys=ON",
        f"journal_size_limit={LONGEST_LOG}",
        f"wal_autocheckpoint={MOST_PAGES}",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    # A writer takes its lock at once: one that read first would fail, not wait, when another commits in between.
    # Said to the driver itself: every question begins two transactions, and SQLAlchemy takes ten times as long.
    options, driver = connection.get_execution_options(), connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)  # noqa: S101 - see Database
    writes = options.get(_WRITES)
    if writes:  # with a write-ahead log NORMAL syncs at checkpoints only, and keeps the order of transactions
        driver.execute(f"PRAGMA synchronous={'NORMAL' if options.get(_UNSYNCED) else 'FULL'}")
        driver.execute(f"PRAGMA busy_timeout={options[_WAIT_MS]}")
    driver.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
