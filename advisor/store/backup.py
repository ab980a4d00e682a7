"""Backups: a database as one compressed file of JSON lines, the same for SQLite and PostgreSQL, and back."""

from __future__ import annotations

import base64
import errno
import fcntl
import gzip
import hashlib
import json
import os
import re
import secrets
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

import sqlalchemy as sa
from sqlalchemy import Connection

from advisor.errors import Conflict, InvalidInput, OutOfSpace
from advisor.settings import Settings
from advisor.store import counters, engine, migrate
from advisor.store import samples as partitions
from advisor.store.engine import Database
from advisor.store.schema import add_new, is_plain
from advisor.validation import check_writable
from profiler import files
from profiler.files import sync

# Whole databases as rows of plain values, out of one and into another of either kind; the tables are of that time.

AT_ONCE = 5_000  # rows
MEASURED = frozenset({"series", "sample_packs", "mean_packs"})  # a backup may be without; most of the bytes
_KEPT_BY_ALEMBIC = "alembic_version"

PARTITIONED = frozenset({"sample_packs", "samples"})  # the latter before revision 0048
Row = Sequence[Any]


def tables_of(connection: sa.Connection) -> dict[str, sa.Table]:
    """The tables as this database has them, whatever this code knows; a table comes after those that it refers to."""
    reflected = _reflected(connection)
    return {table.name: table for table in reflected.sorted_tables if table.name != _KEPT_BY_ALEMBIC}


def _reflected(connection: sa.Connection) -> sa.MetaData:
    """All tables but partitions, which come and go with the table that they are of."""
    reflected = sa.MetaData()
    reflected.reflect(connection, only=lambda name, _: not partitions.is_one(name))
    return reflected


def read(connection: sa.Connection, table: sa.Table) -> Iterator[Row]:
    """Every row as values that JSON has, in the order of the columns; times are ISO 8601 in UTC, bytes base64."""
    result = connection.execution_options(yield_per=AT_ONCE).execute(sa.select(table))
    for row in result:
        yield [_as_text(value) for value in row]


def begin(connection: sa.Connection, revision: str) -> Mapping[str, int]:
    """Make the tables of a revision anew and empty; returns the former values of the counters."""
    former = _reflected(connection)
    counter_rows = connection.execute(sa.select(counters.counters)).all() if "counters" in former.tables else []
    counter_values = {row.name: int(row.value) for row in counter_rows}
    former.drop_all(connection)
    migrate.bring_to(connection, revision)
    for table in reversed(tables_of(connection).values()):
        connection.execute(sa.delete(table))
    return counter_values


def write(connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Insert rows that `read` gave, into the table of the same revision; KeyError when it has no such column."""
    written = [table.c[name] for name in columns]
    if table.name in PARTITIONED:
        partitions.make(connection, (row[columns.index("time_s")] for row in rows), table.name)
    if is_plain(table) and written == list(table.columns):
        add_new(connection, table, [tuple(row) for row in rows])
        return
    times = {column.name for column in written if isinstance(column.type, sa.DateTime)}
    packed = {column.name for column in written if isinstance(column.type, sa.LargeBinary)}
    values = [dict(zip(columns, row, strict=True)) for row in rows]
    for row in values:
        row |= {name: datetime.fromisoformat(row[name]) for name in times if row[name] is not None}
        row |= {name: base64.b64decode(row[name], validate=True) for name in packed if row[name] is not None}
    connection.execute(sa.insert(table), values)


def finish(connection: sa.Connection, former_values: Mapping[str, int]) -> None:
    """Bring the tables to the newest revision, and move every counter beyond its former value, so that all who watch
    them read everything anew."""
    migrate.bring_to(connection, "head")
    _number_on(connection)
    for name, value in former_values.items():
        here = sa.and_(counters.counters.c.name == name, counters.counters.c.value <= value)
        connection.execute(sa.update(counters.counters).where(here).values(value=value))
        present = connection.scalar(sa.select(counters.counters.c.value).where(counters.counters.c.name == name))
        if present is None:
            connection.execute(sa.insert(counters.counters).values(name=name, value=value))
    connection.execute(sa.update(counters.counters).values(value=counters.counters.c.value + 1))
    counters.begin_changes_anew(connection, counters.read(connection).inventory)


def is_used(connection: sa.Connection) -> bool:
    """Whether there ever was a write: a counter moved, or a token, a sample or an answer is there."""
    return any(
        connection.execute(sa.select(table).limit(1)).first() is not None
        for name, table in tables_of(connection).items()
        if name not in {"changes", "retention"}  # migrations put rows there
    )


def _number_on(connection: sa.Connection) -> None:
    """PostgreSQL's sequences know nothing of numbers that came with the rows."""
    if connection.dialect.name != "postgresql":
        return
    for table in tables_of(connection).values():
        for column in table.primary_key:
            owner = sa.func.pg_get_serial_sequence(table.name, column.name)
            if isinstance(column.type, sa.Integer) and connection.scalar(sa.select(owner)) is not None:
                most = sa.select(sa.func.max(column)).scalar_subquery()
                connection.execute(sa.select(sa.func.setval(owner, sa.func.coalesce(most, 1), most.is_not(None))))


def _as_text(value: Any) -> Any:
    """As JSON has it: times as ISO 8601, bytes as base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if not isinstance(value, datetime):
        return value
    return (value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)).isoformat()


FORMAT = 1
MAX_LINE = 64 * files.MEGABYTE  # the longest row of all is a model's card or an answer
MOST_WAITING = 64 * files.MEGABYTE  # of lines whose rows are written at once
_LEVEL = 4  # of gzip: half the time of the usual 9 for a tenth more bytes on samples
_LEFTOVER = re.compile(r"\..*\.[0-9a-f]{8}\.backup-partial", re.DOTALL)
_OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class Backup:
    """What is in a backup: the revision of its tables, when it was made, rows by table."""

    revision: str
    made_at: str
    rows: Mapping[str, int]


def backup_database(settings: Settings, path: Path, *, samples: bool = True) -> Mapping[str, Any]:
    """`make` of the database that the settings name, as plain values."""
    with closing(Database(settings.database)) as database:
        return asdict(make(database, path, samples=samples))


def restore_database(settings: Settings, path: Path, *, replace: bool = False) -> Mapping[str, Any]:
    """`restore` into the database that the settings name, as plain values."""
    with closing(Database(settings.database)) as database:
        return asdict(restore(database, path, replace=replace))


def make(database: Database, path: Path, *, samples: bool = True) -> Backup:
    """Write everything as it is at one moment, while others go on; the file is there whole or not at all.

    Without `samples` what was measured is left out, by far the most. Raises OutOfSpace, InvalidInput when `path` cannot
    be written, SchemaMismatch on tables of another version.
    """
    check_writable(path, "backup")
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    counts: dict[str, int] = {}
    with database.read() as connection, _whole(path) as file:
        migrate.refuse(database, migrate.fit(connection))
        revision = migrate.revision(connection)
        lines = _DigestingWriter(file)
        lines.write({"cotenant_backup": FORMAT, "revision": revision, "made_at": made_at})
        for name, table in tables_of(connection).items():
            if not samples and name in MEASURED:
                continue
            lines.write({"table": name, "columns": [column.name for column in table.columns]})
            counts[name] = 0
            for row in read(connection, table):
                lines.write(row)
                counts[name] += 1
        lines.write({"end": counts, "sha256": lines.digest()})
    return Backup(revision, made_at, counts)


def restore(database: Database, path: Path, *, replace: bool = False) -> Backup:
    """Make the database what it was when the backup was made, and bring its tables to the newest; all of it or nothing.

    Its tables may be older, and of the other kind of database. Conflict when something is stored already, unless
    `replace`; InvalidInput when the file is none, cut off or damaged, or was written by a newer Cotenant;
    SchemaMismatch on a database of another program.
    """
    backup = _checked(path)
    with database.write() as connection:
        engine.alone_with(connection, "tables")
        tables_fit = migrate.fit(connection)
        if tables_fit == "foreign":
            migrate.refuse(database, tables_fit)
        if tables_fit != "empty" and not replace and is_used(connection):
            raise Conflict(f"database {database.name} is not empty; name another one, or replace all that it holds")
        counter_values = begin(connection, backup.revision)
        try:
            _load(connection, path)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise _no_backup(path, f"its rows do not fit its tables ({type(error).__name__})") from error
        finish(connection, counter_values)
    return backup


def _load(connection: Connection, path: Path) -> None:
    tables = tables_of(connection)
    name: str = ""
    columns: list[str] = []
    rows: list[Row] = []
    waiting = 0

    def flush() -> None:
        if rows:
            write(connection, tables[name], columns, rows)
            rows.clear()

    for line in _lines(path):
        entry = json.loads(line)
        if isinstance(entry, list):
            rows.append(entry)
            waiting += len(line)
            if len(rows) >= AT_ONCE or waiting >= MOST_WAITING:
                flush()
                waiting = 0
        else:
            flush()
            name, columns = entry.get("table", ""), entry.get("columns", [])


def _checked(path: Path) -> Backup:
    """Read the whole file once and compare its digest, before anything is deleted for it."""
    digest = hashlib.sha256()
    last = b""
    head: Any = None
    for line in _lines(path):
        if head is None:
            head = _entry(path, line)
        digest.update(last)
        last = line
    end = _entry(path, last)
    if "cotenant_backup" not in (head or {}):
        raise _no_backup(path, "it does not begin as one")
    if end.get("sha256") != digest.hexdigest() or not isinstance(end.get("end"), dict):
        raise _no_backup(path, "it is cut off or damaged")
    if isinstance(head["revision"], str) and head["revision"] < min(migrate.revisions()):
        raise _no_backup(path, "it was written before version 0.1.0; CHANGELOG.md says how to bring it on")
    if head["cotenant_backup"] != FORMAT or head["revision"] not in migrate.revisions():
        raise _no_backup(path, "another version of Cotenant wrote it; install that one")
    return Backup(head["revision"], head["made_at"], end["end"])


def _entry(path: Path, line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _no_backup(path, "it holds something else than JSON lines") from error
    return entry if isinstance(entry, dict) else {}


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path, "rb") as file:
            for line in files.lines(cast("BinaryIO", file), MAX_LINE):
                if not line.endswith(b"\n"):
                    raise _no_backup(path, "it is cut off or damaged")
                yield line
    except files.TooLargeError as error:
        raise _no_backup(path, str(error)) from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is not compressed, cut off or damaged"
        raise _no_backup(path, reason) from error


def _no_backup(path: Path, reason: str) -> InvalidInput:
    return InvalidInput(f"{path} cannot be restored: {reason}; nothing was changed", field="backup")


class _DigestingWriter:
    """Lines of JSON on their way into a file, and their digest."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def write(self, entry: Any) -> None:
        line = json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        self._digest.update(line)
        self._file.write(line)

    def digest(self) -> str:
        return self._digest.hexdigest()


@contextmanager
def _whole(path: Path) -> Iterator[BinaryIO]:
    """A compressed file that takes its place when it is complete and on disk; only its owner may read it."""
    target = path.resolve()
    try:
        _drop_leftovers(target.parent)
        partial, handle = _begun(target)
        try:
            with os.fdopen(handle, "wb") as raw:
                with gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as file:
                    yield cast(BinaryIO, file)
                raw.flush()
                os.fsync(raw.fileno())
                partial.replace(target)
            sync(target.parent)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in _OUT_OF_SPACE:
            raise OutOfSpace(f"no space left for the backup {path}: free some and try again", field="backup") from error
        message = f"the backup cannot be written to {path}: {error.strerror or error}"
        raise InvalidInput(message, field="backup") from error


def _begun(target: Path) -> tuple[Path, int]:
    """A new file beside the target, open and locked for as long as it is: what is not locked is a leftover."""
    while True:
        partial = target.with_name(f".{target.name[:80]}.{secrets.token_hex(4)}.backup-partial")
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with suppress(OSError):  # on a file system without locks nothing is taken for a leftover
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return partial, handle
        os.close(handle)  # another backup took it for a leftover before it was locked


def _drop_leftovers(folder: Path) -> None:
    """Delete what backups left that were killed: files of this user under such a name which are not locked."""
    for leftover in folder.glob(".*.backup-partial"):
        if _LEFTOVER.fullmatch(leftover.name):
            with suppress(OSError):
                _drop_if_unlocked(leftover)


def _drop_if_unlocked(leftover: Path) -> None:
    handle = os.open(leftover, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            leftover.unlink()
    finally:
        os.close(handle)
