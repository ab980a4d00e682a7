"""Days of samples in PostgreSQL, each a partition of its own: what retention emptied goes back to the disk at once.

`sample_packs_20261129` has the samples of that day (UTC). SQLite has one table.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy import exc

from advisor.store import engine

DAY_S = 86_400
TABLE = "sample_packs"
_FORMER = "samples"  # had a row for each sample, and `samples_before_...`; backups may be of then
_PATIENCE = "200ms"  # that all who read and write samples wait for a partition to go
_PRESENT = sa.text(
    "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = to_regclass(:table)"
)
_PARTITIONED = sa.text("SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass(:table)")  # a backup's may not be


def is_one(table: str) -> bool:
    """Whether a table of this name is such a partition: no table of its own for backups."""
    day = next((table.removeprefix(f"{name}_") for name in (TABLE, _FORMER) if table.startswith(f"{name}_")), "")
    return day.removeprefix("before_").isdecimal()


def make(connection: sa.Connection, times: Iterable[float], table: str = TABLE) -> None:
    """See that samples of these times (s since the epoch) have a partition; several writers may at once."""
    if connection.dialect.name != "postgresql":
        return
    days = {int(time_s // DAY_S) for time_s in times}
    if days and _missing(connection, days, table) and connection.scalar(_PARTITIONED, {"table": table}):
        engine.alone_with(connection, "partitions")
        for day in sorted(_missing(connection, days, table)):
            name = _name(day, table)
            connection.exec_driver_sql(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)")
            # unlike CREATE TABLE ... PARTITION OF, this lets others read and write meanwhile
            bounds = f"FROM ({day * DAY_S}) TO ({(day + 1) * DAY_S})"
            connection.exec_driver_sql(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES {bounds}")


def over(connection: sa.Connection, before_s: float) -> list[str]:
    """The partitions of which everything is from before a time, the oldest first."""
    if connection.dialect.name != "postgresql":
        return []
    present = connection.scalars(_PRESENT, {"table": TABLE})
    return sorted(name for name in present if _ends_s(name) <= before_s)


def is_empty(connection: sa.Connection, name: str) -> bool:
    """Whether it has no row."""
    return connection.scalar(sa.select(sa.literal(1)).select_from(sa.table(name)).limit(1)) is None


def drop(connection: sa.Connection, name: str) -> bool:
    """Give its space back; False = others are at it, and it is left for the next time."""
    try:
        with connection.begin_nested():
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_PATIENCE}'")
            connection.execute(sa.schema.DropTable(sa.Table(name, sa.MetaData())))
    except exc.OperationalError:
        return False
    return True


def _missing(connection: sa.Connection, days: set[int], table: str) -> set[int]:
    present = set(connection.scalars(_PRESENT, {"table": table}))
    return {day for day in days if _name(day, table) not in present}


def _name(day: int, table: str) -> str:
    return f"{table}_{datetime.fromtimestamp(day * DAY_S, UTC):%Y%m%d}"


def _ends_s(name: str) -> float:
    """The end of what a partition holds."""
    return datetime.strptime(name.removeprefix(f"{TABLE}_"), "%Y%m%d").replace(tzinfo=UTC).timestamp() + DAY_S
