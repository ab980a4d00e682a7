"""What changed: counters and a list of changes, by which workers follow the database."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sa

from advisor.store.schema import ID, insert_new, metadata, upsert

Counter = Literal["inventory", "sightings", "pending", "models", "demand", "posted", "series"]

counters = sa.Table(
    "counters",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)


_ALL = sa.select(counters.c.name, counters.c.value)  # made once: every question reads them
_HERE = counters.c.name == sa.bindparam("counter")
_HOLD = sa.select(counters.c.value).where(_HERE).with_for_update()
_BUMP = sa.update(counters).where(_HERE).values(value=counters.c.value + 1).returning(counters.c.value)


@dataclass(frozen=True, slots=True)
class Counts:
    """Where each counter stands: `inventory` is the generation that callers see, `sightings` moves when a host that
    had gone stale is heard of again, `demand` when what was measured of an instance's demand is news, `posted` with
    each co-location, `series` when numbers of series of samples are no longer theirs."""

    inventory: int = 0
    sightings: int = 0
    pending: int = 0
    models: int = 0
    demand: int = 0
    posted: int = 0
    series: int = 0


def read(connection: sa.Connection) -> Counts:
    """All counters at once; one that never moved is 0."""
    return Counts(**{name: value for name, value in connection.execute(_ALL)})  # noqa: C416 - a result is no mapping


def hold(connection: sa.Connection, name: Counter) -> None:
    """Let no other writer move a counter until this writing transaction ends, and with it what the counter counts.

    Do this first: what is read after it is what was committed last.
    """
    insert_new(connection, counters, [{"name": name, "value": 0}])
    connection.execute(_HOLD, {"counter": name})


def bump(connection: sa.Connection, name: Counter) -> int:
    """Move a counter and return its new value.

    Do this first in a writing transaction: it takes the row's lock, so that generations have the order of commits.
    """
    insert_new(connection, counters, [{"name": name, "value": 0}])
    return int(connection.execute(_BUMP, {"counter": name}).scalar_one())


def bump_from(connection: sa.Connection, name: Counter, expected: int) -> bool:
    """Move a counter only when it stands at `expected`; False = another writer was faster, nothing was written."""
    insert_new(connection, counters, [{"name": name, "value": 0}])
    here = sa.and_(counters.c.name == name, counters.c.value == expected)
    return connection.execute(sa.update(counters).where(here).values(value=expected + 1)).rowcount == 1


# Which hosts, instances and workloads were touched at which generation, so that a reader need not load all again.

Noun = Literal["host", "instance", "workload"]

MOST_AT_ONCE = 2_000  # who changes more is read whole sooner than one by one
MOST_LOGGED = 20_000  # rows; beyond, the log begins anew, for ids that are gone stay in it
_CHECKED_EVERY = 256  # generations
_BEGIN = "begin"  # the row that says back to which generation the log reaches

changes = sa.Table(
    "changes",
    metadata,
    sa.Column("noun", sa.String(16), primary_key=True),
    sa.Column("id", ID, primary_key=True),
    sa.Column("counter", sa.BigInteger, nullable=False, index=True),
)


@dataclass(frozen=True, slots=True)
class Changes:
    """Names of what was put or deleted; of a workload its name, on whatever platform."""

    hosts: frozenset[str] = frozenset()
    instances: frozenset[str] = frozenset()
    workloads: frozenset[str] = frozenset()


def note_changes(connection: sa.Connection, counter: int, noun: Noun, ids: Collection[str]) -> None:
    """Log that these were put or deleted at this generation, in the transaction that does it."""
    if len(ids) > MOST_AT_ONCE or (counter % _CHECKED_EVERY == 0 and _length(connection) > MOST_LOGGED):
        begin_changes_anew(connection, counter)
        return
    upsert(connection, changes, [{"noun": noun, "id": item_id, "counter": counter} for item_id in sorted(set(ids))])


def begin_changes_anew(connection: sa.Connection, counter: int) -> None:
    """Forget what was touched up to this generation: readers from before load everything."""
    connection.execute(sa.delete(changes))
    connection.execute(sa.insert(changes), {"noun": _BEGIN, "id": "", "counter": counter})


def changes_since(connection: sa.Connection, generation: int) -> Changes | None:
    """What was touched after this generation of the inventory; None = the log does not reach back so far."""
    begin = connection.scalar(sa.select(changes.c.counter).where(changes.c.noun == _BEGIN))
    if begin is None or generation < begin:
        return None
    touched: dict[str, set[str]] = {"host": set(), "instance": set(), "workload": set()}
    for row in connection.execute(sa.select(changes.c.noun, changes.c.id).where(changes.c.counter > generation)):
        touched[row.noun].add(row.id)
    return Changes(*(frozenset(touched[noun]) for noun in ("host", "instance", "workload")))


def _length(connection: sa.Connection) -> int:
    return connection.scalar(sa.select(sa.func.count()).select_from(changes)) or 0
