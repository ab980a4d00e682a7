"""Counters that move with every change, so that each process notices what the others wrote; nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sa

from advisor.store.schema import metadata
from advisor.store.statements import insert_new

Counter = Literal["inventory", "sightings", "pending", "models", "demand", "posted"]

counters = sa.Table(
    "counters",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)


_ALL = sa.select(counters.c.name, counters.c.value)  # made once: every question reads them


@dataclass(frozen=True, slots=True)
class Counts:
    """Where each counter stands: `inventory` is the generation that callers see, `sightings` moves when a host that
    had gone stale is heard of again, `demand` when what was measured of an instance's demand is news, `posted` with
    each co-location."""

    inventory: int = 0
    sightings: int = 0
    pending: int = 0
    models: int = 0
    demand: int = 0
    posted: int = 0


def read(connection: sa.Connection) -> Counts:
    """All counters at once; one that never moved is 0."""
    return Counts(**{name: value for name, value in connection.execute(_ALL)})  # noqa: C416 - a result is no mapping


def hold(connection: sa.Connection, name: Counter) -> None:
    """Let no other writer move a counter until this writing transaction ends, and with it what the counter counts.

    Do this first: what is read after it is what was committed last.
    """
    insert_new(connection, counters, [{"name": name, "value": 0}])
    connection.execute(sa.select(counters.c.value).where(counters.c.name == name).with_for_update())


def bump(connection: sa.Connection, name: Counter) -> int:
    """Move a counter and return its new value.

    Do this first in a writing transaction: it takes the row's lock, so that generations have the order of commits.
    """
    insert_new(connection, counters, [{"name": name, "value": 0}])
    statement = sa.update(counters).where(counters.c.name == name).values(value=counters.c.value + 1)
    return int(connection.execute(statement.returning(counters.c.value)).scalar_one())


def bump_from(connection: sa.Connection, name: Counter, expected: int) -> bool:
    """Move a counter only when it stands at `expected`; False = another writer was faster, nothing was written."""
    insert_new(connection, counters, [{"name": name, "value": 0}])
    here = sa.and_(counters.c.name == name, counters.c.value == expected)
    return connection.execute(sa.update(counters).where(here).values(value=expected + 1)).rowcount == 1
