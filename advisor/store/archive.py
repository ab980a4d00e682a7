"""Whole databases as rows of plain values, out of one and into another of either kind; the tables are of that time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from advisor.store import changes, counters, migrate
from advisor.store.bulk import add_new, is_plain

AT_ONCE = 5_000  # rows
MEASURED = frozenset({"series", "samples", "rollups"})  # what a backup may leave out, for it is most of the bytes
_KEPT_BY_ALEMBIC = "alembic_version"

Row = Sequence[Any]


def tables_of(connection: sa.Connection) -> dict[str, sa.Table]:
    """The tables as this database has them, whatever this code knows; a table comes after those that it refers to."""
    reflected = sa.MetaData()
    reflected.reflect(connection)
    return {table.name: table for table in reflected.sorted_tables if table.name != _KEPT_BY_ALEMBIC}


def read(connection: sa.Connection, table: sa.Table) -> Iterator[Row]:
    """Every row as values that JSON has, in the order of the columns; times are ISO 8601 in UTC."""
    result = connection.execution_options(yield_per=AT_ONCE).execute(sa.select(table))
    for row in result:
        yield [_as_text(value) if isinstance(value, datetime) else value for value in row]


def begin(connection: sa.Connection, revision: str) -> Mapping[str, int]:
    """Make the tables of a revision anew and empty; returns the former values of the counters."""
    former = sa.MetaData()
    former.reflect(connection)
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
    if is_plain(table) and written == list(table.columns):
        add_new(connection, table, [tuple(row) for row in rows])
        return
    times = {column.name for column in written if isinstance(column.type, sa.DateTime)}
    values = [dict(zip(columns, row, strict=True)) for row in rows]
    for row in values:
        row |= {name: datetime.fromisoformat(row[name]) for name in times if row[name] is not None}
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
    changes.begin_anew(connection, counters.read(connection).inventory)


def is_used(connection: sa.Connection) -> bool:
    """Whether anybody ever wrote: a counter moved, or a token, a sample or an answer is there."""
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


def _as_text(value: datetime) -> str:
    return (value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)).isoformat()
