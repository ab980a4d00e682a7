"""What every table shares: the metadata, the column types, and statements written once and portably."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import JSON, DateTime, Dialect, MetaData, String
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeDecorator

from advisor.domain import NAMES, Page, codec, spellings
from advisor.errors import InvalidInput
from advisor.validation import is_storable

metadata = MetaData(
    naming_convention={  # names that later migrations can count on, on every database
        "ix": "ix_%(column_0_N_label)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

ID = String(255)  # the contract's longest id
VALUE = JSON(none_as_null=True)  # a value object, written by `store.codec`


class UtcTime(TypeDecorator[datetime]):
    """An aware time in UTC; SQLite keeps no zone, so it is taken off on the way in and put back on the way out."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """Unreadable where a file was damaged: the text is no time."""
        read = super().result_processor(dialect, coltype)
        if read is None:
            return None

        def checked(value: Any) -> Any:
            try:
                return read(value)
            except (ValueError, TypeError) as error:
                raise codec.Unreadable(f"no time: {error}") from error

        return checked

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


# Statements that several tables need, written once and portably: upserts, inserts of what is new, pages; no tables.

MAX_PAGE = 1000
CHUNK = 500  # values in one IN list, far below every database's limit
AT_ONCE = 5_000  # rows that are written, or fetched, at once: while 300,000 are, PostgreSQL ends the silent session
T = TypeVar("T")
Row = Mapping[str, Any]


def called(connection: sa.Connection, table: sa.Table, name: str) -> tuple[str, ...]:
    """Ids of at most 20 rows of which a label of `NAMES` holds this name, in order."""
    texts = spellings(name)
    holds = sa.or_(*(table.c.labels[label].as_string().in_(texts) for label in NAMES))
    query = sa.select(table.c.id).where(holds).order_by(table.c.id).limit(20)
    return tuple(row.id for row in connection.execute(query))


def upsert(connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> None:
    """Insert rows or, where their primary key is there already, set every other column that they name.

    All name the same columns; of several with one key the last counts.
    """
    if not rows:
        return
    keys, names = [column.name for column in table.primary_key], tuple(rows[0])
    # In the order of keys: two writers that lock the same rows in different orders would wait for each other.
    by_key = {tuple(row[name] for name in keys): row for row in rows}
    ordered = [by_key[key] for key in sorted(by_key)]
    if connection.dialect.name == "sqlite" and (text := _upsert_text(table, names)):
        statement_text, places = text
        if written := [name for name in names if _is_json(table.columns[name])]:
            texts = (
                {name: row[name] if row[name] is None else codec.text(row[name]) for name in written} for row in ordered
            )
            ordered = [{**row, **of_row} for row, of_row in zip(ordered, texts, strict=True)]
        connection.exec_driver_sql(statement_text, [tuple(row[name] for name in places) for row in ordered])
        return
    statement = _upsert(connection.dialect.name, table, names)
    for part in chunks(ordered, AT_ONCE):
        connection.execute(statement, parameters(connection, table, part))


@cache
def _upsert(dialect: str, table: sa.Table, names: Sequence[str]) -> postgresql.Insert | sqlite.Insert:
    """The statement of `upsert`, made once: to make and compile it takes as long as some dozen rows."""
    keys = [column.name for column in table.primary_key]
    statement = _insert(dialect, table, names)
    changed = {name: statement.excluded[name] for name in names if name not in keys}
    if not changed:
        return statement.on_conflict_do_nothing(index_elements=keys)
    return statement.on_conflict_do_update(index_elements=keys, set_=changed)


@cache
def _upsert_text(table: sa.Table, names: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """The same as SQLite's driver takes it, which is a third of the time, and the columns in the order of its values;
    None where a column needs more than JSON."""
    plain = (sa.Integer, sa.Double, sa.String, sa.LargeBinary, sa.JSON)
    if any(not isinstance(table.columns[name].type, plain) for name in names):
        return None
    compiled = _upsert("sqlite", table, names).values(dict.fromkeys(names)).compile(dialect=sqlite.dialect())
    return str(compiled), tuple(compiled.positiontup or ())


def insert_new(connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> int:
    """Insert the rows that break no uniqueness, leave the others out; returns how many were inserted."""
    if not rows:
        return 0
    statement = _insert_new(connection.dialect.name, table, tuple(rows[0]))
    counted = connection.execution_options(preserve_rowcount=True)
    parts = chunks(rows, AT_ONCE)
    return sum(counted.execute(statement, parameters(connection, table, part)).rowcount for part in parts)


@cache
def _insert_new(dialect: str, table: sa.Table, names: Sequence[str]) -> postgresql.Insert | sqlite.Insert:
    return _insert(dialect, table, names).on_conflict_do_nothing()


def keep_only(connection: sa.Connection, column: sa.Column[str], kept: Iterable[str]) -> None:
    """Delete the rows whose `column` is not among `kept`."""
    surplus = set(connection.scalars(sa.select(column))) - set(kept)
    for part in chunks(sorted(surplus)):
        connection.execute(sa.delete(column.table).where(column.in_(part)))


def existing(connection: sa.Connection, column: sa.Column[str], values: Iterable[str]) -> set[str]:
    """Those of `values` that stand in `column`."""
    return {value for (value,) in selected(connection, sa.select(column), column, values)}


def among(connection: sa.Connection, column: sa.Column[str], values: Iterable[str]) -> Iterator[sa.RowMapping]:
    """Whole rows of the table whose `column` is one of `values`, in no order."""
    return (row._mapping for row in selected(connection, sa.select(column.table), column, values))


def selected(
    connection: sa.Connection, query: sa.Select[Any], column: sa.Column[Any], values: Iterable[Any]
) -> Iterator[Any]:
    """The rows of `query` whose `column` is one of `values`, which go by CHUNK in their order; each part is ordered as
    the query says."""
    for part in chunks(sorted(set(values))):
        yield from connection.execute(query.where(column.in_(part)))


def one_of(dialect: str, column: sa.Column[str], name: str) -> sa.ColumnElement[bool]:
    """That a column of text is one of those that are sent as `name`, one value of `list_of`: a statement that is made
    once takes any number."""
    if dialect == "postgresql":
        return column == sa.any_(sa.bindparam(name, type_=postgresql.ARRAY(sa.Text)))
    listed = sa.func.json_each(sa.bindparam(name, type_=sa.Text)).table_valued("value")
    return column.in_(sa.select(listed.c.value))


def list_of(connection: sa.Connection, values: Iterable[str]) -> object:
    """What a statement with `one_of` is executed with."""
    ordered = sorted(set(values))
    return ordered if connection.dialect.name == "postgresql" else codec.text(ordered)


def every(connection: sa.Connection, query: sa.Select[Any]) -> Iterator[sa.RowMapping]:
    """The rows of a query of a whole table, fetched as they are read: hundreds of thousands at once would be kept in
    memory, and take so long to read that PostgreSQL ends the silent session."""
    return iter(connection.execute(query.execution_options(yield_per=AT_ONCE)).mappings())


def chunks(values: Sequence[T], most: int = CHUNK) -> Iterator[Sequence[T]]:
    """Cut values into pieces of at most so many."""
    return (values[start : start + most] for start in range(0, len(values), most))


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


def insert(connection: sa.Connection, table: sa.Table, names: Sequence[str]) -> postgresql.Insert | sqlite.Insert:
    """An INSERT of these columns, to which ON CONFLICT may be added; executed with `parameters`.

    PostgreSQL takes all rows in one statement, an array for each column: row by row each costs a message, and a second
    of its CPU for 10,000. For two rows of one key an UPDATE on conflict is an error there.
    """
    return _insert(connection.dialect.name, table, names)


def _insert(dialect: str, table: sa.Table, names: Sequence[str]) -> postgresql.Insert | sqlite.Insert:
    if dialect != "postgresql":
        return sqlite.insert(table)
    columns = [table.columns[name] for name in names]
    arrays = [sa.bindparam(column.name, type_=postgresql.ARRAY(_sent(column))) for column in columns]
    sent = (sa.column(column.name, _sent(column)) for column in columns)
    rows = sa.func.unnest(*arrays).table_valued(*sent).render_derived()
    values = [
        sa.cast(rows.c[column.name], column.type) if _is_json(column) else rows.c[column.name] for column in columns
    ]
    return postgresql.insert(table).from_select(names, sa.select(*values), include_defaults=False)


def parameters(connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> Any:
    """What an `insert` of these rows, which all name the same columns, is executed with."""
    if connection.dialect.name != "postgresql":
        return [dict(row) for row in rows]
    return {name: _to_send(table.columns[name], [row[name] for row in rows]) for name in rows[0]}


def _is_json(column: sa.ColumnElement[Any]) -> bool:
    return isinstance(column.type, sa.JSON)


def _sent(column: sa.ColumnElement[Any]) -> sa.types.TypeEngine[Any]:
    """Text without its limit: what is cast to VARCHAR(255) is cut off, what is stored in one is refused."""
    return sa.Text() if isinstance(column.type, sa.JSON | sa.String) else column.type


def _to_send(column: sa.ColumnElement[Any], values: list[Any]) -> list[Any]:
    """The elements of an array, which are of one type; JSON goes as text."""
    if _is_json(column):
        return [None if value is None else codec.text(value) for value in values]
    if isinstance(column.type, sa.Double):
        return [None if value is None else float(value) for value in values]
    return values


def with_pairs(
    connection: sa.Connection, columns: tuple[sa.Column[str], sa.Column[str]], pairs: Sequence[tuple[str, str]]
) -> sa.Select[Any]:
    """Whole rows of a table of which two columns of text hold one of these pairs, no pair twice and at most CHUNK, and
    some with the first of one pair and the second of another.

    PostgreSQL plans a list of pairs as so many conditions: 80 ms for 480 of four columns, which are found in 1 ms. And
    where it has no statistics yet it would read the whole table, so each pair is looked up by itself. SQLite would read
    the whole table for a list of pairs, and uses an index for a list of each column.
    """
    table = columns[0].table
    if connection.dialect.name != "postgresql":
        firsts, seconds = (sorted(set(texts)) for texts in zip(*pairs, strict=True))
        return sa.select(table).where(columns[0].in_(firsts), columns[1].in_(seconds))
    arrays = [sa.literal(list(texts), postgresql.ARRAY(sa.Text)) for texts in zip(*pairs, strict=True)]
    names = [sa.column(column.name, sa.Text) for column in columns]
    wanted = sa.func.unnest(*arrays).table_valued(*names).render_derived("wanted")
    here = [column == wanted.c[column.name] for column in columns]
    return sa.select(sa.select(table).where(*here).offset(0).lateral("found")).select_from(wanted)


def _write_cursor(parts: Sequence[str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts, separators=(",", ":")).encode()).decode().rstrip("=")


def _read_cursor(cursor: str, name: str, length: int) -> list[str]:
    try:
        parts = json.loads(base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise _bad_cursor() from error
    if not isinstance(parts, list) or len(parts) != 1 + length or parts[0] != name:
        raise _bad_cursor()
    if not all(isinstance(part, str) and is_storable(part) for part in parts):
        raise _bad_cursor()
    return parts[1:]


def _bad_cursor() -> InvalidInput:
    return InvalidInput("cursor was not handed out by this list; leave it out to start over", field="cursor")


# Thousands of rows at once, each database's fastest way: what insert_new does, for tables of plain numbers.


def is_plain(table: sa.Table) -> bool:
    """Whether `add_new` takes its rows."""
    return all(
        isinstance(column.type, sa.Integer | sa.Double) and not isinstance(column.type, sa.BigInteger)
        for column in table.columns
    )


def add_new(connection: sa.Connection, table: sa.Table, rows: Sequence[tuple[float, ...]]) -> int:
    """Insert rows, values in the order of the columns, but those whose key is there; returns how many were new.

    Columns are Integer or Double, see `is_plain`. PostgreSQL takes them by COPY into a temporary table and from there:
    1.4-1.7 times as fast as arrays that are unnested, 3 times as fast as executemany (batches of 10,000, PostgreSQL
    15). SQLite takes tuples without SQLAlchemy in between, 3 times as fast.
    """
    if not rows:
        return 0
    if connection.dialect.name != "postgresql":
        marks = ", ".join("?" * len(table.columns))
        counted = connection.execution_options(preserve_rowcount=True)
        return counted.exec_driver_sql(f"INSERT OR IGNORE INTO {table.name} VALUES ({marks})", list(rows)).rowcount  # noqa: S608
    coming = f"coming_{table.name}"  # stays with its connection, so that each makes it once
    connection.exec_driver_sql(f"CREATE TEMP TABLE IF NOT EXISTS {coming} (LIKE {table.name}) ON COMMIT DELETE ROWS")
    names = ", ".join(column.name for column in table.columns)
    wire = connection.connection.cursor()
    with wire.copy(f"COPY {coming} ({names}) FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(["int4" if isinstance(column.type, sa.Integer) else "float8" for column in table.columns])
        for row in rows:
            copy.write_row(row)
    wire.close()
    statement = f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {coming} ON CONFLICT DO NOTHING"  # noqa: S608
    return connection.exec_driver_sql(statement).rowcount  # rows of a former call in this transaction are no new ones
