"""Days of samples in PostgreSQL, each a partition of its own: what retention emptied goes back to the disk at once.

`samples_20261129` has the samples of that day (UTC), `samples_before_20261129` those of a database that had none, up to
that day. SQLite has one table.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy import exc

from advisor.store import engine

DAY_S = 86_400
_DAY, _BEFORE = "samples_", "samples_before_"
_PATIENCE = "200ms"  # that all who read and write samples wait for a partition to go
_PRESENT = sa.text(
    "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = 'samples'::regclass"
)
_PARTITIONED = sa.text("SELECT relkind = 'p' FROM pg_class WHERE oid = 'samples'::regclass")  # a backup's may not be


def is_one(table: str) -> bool:
    """Whether a table of this name is such a partition: no table of its own for backups."""
    return table.startswith(_DAY) and table.removeprefix(_BEFORE).removeprefix(_DAY).isdecimal()


def make(connection: sa.Connection, times: Iterable[float]) -> None:
    """See that samples of these times (s since the epoch) have a partition; several writers may at once."""
    if connection.dialect.name != "postgresql":
        return
    days = {int(time_s // DAY_S) for time_s in times}
    if days and _missing(connection, days) and connection.scalar(_PARTITIONED):
        engine.alone_with(connection, "partitions")
        for day in sorted(_missing(connection, days)):
            name = _name(day)
            connection.exec_driver_sql(f"CREATE TABLE {name} (LIKE samples INCLUDING ALL)")
            # unlike CREATE TABLE ... PARTITION OF, this lets others read and write meanwhile
            bounds = f"FROM ({day * DAY_S}) TO ({(day + 1) * DAY_S})"
            connection.exec_driver_sql(f"ALTER TABLE samples ATTACH PARTITION {name} FOR VALUES {bounds}")


def over(connection: sa.Connection, before_s: float) -> list[str]:
    """The partitions of which everything is from before a time, the oldest first."""
    if connection.dialect.name != "postgresql":
        return []
    return sorted(name for name in connection.scalars(_PRESENT) if _ends_s(name) <= before_s)


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


def _missing(connection: sa.Connection, days: set[int]) -> set[int]:
    present = set(connection.scalars(_PRESENT))
    first = max((int(_ends_s(name) // DAY_S) for name in present if name.startswith(_BEFORE)), default=0)
    return {day for day in days if day >= first and _name(day) not in present}


def _name(day: int) -> str:
    return f"{_DAY}{datetime.fromtimestamp(day * DAY_S, UTC):%Y%m%d}"


def _ends_s(name: str) -> float:
    """The end of what a partition holds."""
    day = datetime.strptime(name.removeprefix(_BEFORE).removeprefix(_DAY), "%Y%m%d").replace(tzinfo=UTC).timestamp()
    return day if name.startswith(_BEFORE) else day + DAY_S
