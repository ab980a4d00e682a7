"""Statements that several tables need, written once and portably: upserts, inserts of what is new, pages; no tables."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from advisor.domain import Page
from advisor.errors import InvalidInput

MAX_PAGE = 1000
CHUNK = 500  # values in one IN list, far below every database's limit
T = TypeVar("T")
Row = Mapping[str, Any]


def upsert(connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> None:
    """Insert rows or, where their primary key is there already, set every other column that they name."""
    if not rows:
        return
    keys = [column.name for column in table.primary_key]
    statement = _insert(connection, table)
    changed = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    statement = (
        statement.on_conflict_do_update(index_elements=keys, set_=changed)
        if changed
        else statement.on_conflict_do_nothing(index_elements=keys)
    )
    # In the order of keys: two writers that lock the same rows in different orders would wait for each other.
    connection.execute(statement, sorted((dict(row) for row in rows), key=lambda row: [row[name] for name in keys]))


def insert_new(connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> int:
    """Insert the rows that break no uniqueness, leave the others out; returns how many were inserted."""
    if not rows:
        return 0
    statement = _insert(connection, table).on_conflict_do_nothing()
    counted = connection.execution_options(preserve_rowcount=True)
    return counted.execute(statement, [dict(row) for row in rows]).rowcount


def keep_only(connection: sa.Connection, column: sa.Column[str], kept: Iterable[str]) -> None:
    """Delete the rows whose `column` is not among `kept`."""
    gone = set(connection.scalars(sa.select(column))) - set(kept)
    for some in chunks(sorted(gone)):
        connection.execute(sa.delete(column.table).where(column.in_(some)))


def existing(connection: sa.Connection, column: sa.Column[str], values: Iterable[str]) -> set[str]:
    """Those of `values` that stand in `column`."""
    wanted = sorted(set(values))
    return {found for some in chunks(wanted) for found in connection.scalars(sa.select(column).where(column.in_(some)))}


def among(connection: sa.Connection, column: sa.Column[str], values: Iterable[str]) -> Iterator[sa.RowMapping]:
    """Whole rows of the table whose `column` is one of `values`, in no order."""
    for some in chunks(sorted(set(values))):
        yield from connection.execute(sa.select(column.table).where(column.in_(some))).mappings()


def chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut values into pieces of at most CHUNK."""
    return (values[start : start + CHUNK] for start in range(0, len(values), CHUNK))


def page(
    connection: sa.Connection,
    query: sa.Select[Any],
    keys: Sequence[sa.Column[str]],
    read: Callable[[sa.RowMapping], T],
    *,
    cursor: str | None,
    limit: int,
    newest_first: bool = False,
) -> Page[T]:
    """One page of `query` in the order of `keys`, columns of one table which together are unique.

    The cursor names that table and says where the last page ended, so that one of another list is refused. Raises
    InvalidInput on a cursor that was not handed out here and on a limit outside 1-1000.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(f"limit {limit} is outside 1-{MAX_PAGE}", field="limit")
    name = keys[0].table.name
    if cursor is not None:
        last = sa.tuple_(*(sa.literal(part, sa.String) for part in _read_cursor(cursor, name, len(keys))))
        here = sa.tuple_(*keys)
        query = query.where(here < last if newest_first else here > last)
    query = query.order_by(*(key.desc() if newest_first else key for key in keys)).limit(limit + 1)
    rows = connection.execute(query).mappings().all()
    items = tuple(read(row) for row in rows[:limit])
    if len(rows) <= limit:
        return Page(items)
    return Page(items, _write_cursor([name, *(rows[limit - 1][key.name] for key in keys)]))


def _insert(connection: sa.Connection, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    """The two supported databases spell ON CONFLICT alike, SQLAlchemy has one class for each."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def _write_cursor(parts: Sequence[str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts, separators=(",", ":")).encode()).decode().rstrip("=")


def _read_cursor(cursor: str, name: str, length: int) -> list[str]:
    try:
        parts = json.loads(base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise _bad_cursor() from error
    if not isinstance(parts, list) or len(parts) != 1 + length or not all(_is_storable(part) for part in parts):
        raise _bad_cursor()
    if parts[0] != name:
        raise _bad_cursor()
    return parts[1:]


def _is_storable(part: object) -> bool:
    """Whether a database takes it as text: JSON can spell half a character, and NUL, which PostgreSQL does not take."""
    return isinstance(part, str) and "\0" not in part and not any("\ud800" <= char <= "\udfff" for char in part)


def _bad_cursor() -> InvalidInput:
    return InvalidInput("cursor was not handed out by this list; leave it out to start over", field="cursor")
