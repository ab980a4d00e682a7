"""Which hosts, instances and workloads were touched at which generation, so that a reader need not load all again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sa

from advisor.store.schema import ID, metadata
from advisor.store.statements import upsert

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


def note(connection: sa.Connection, counter: int, noun: Noun, ids: Collection[str]) -> None:
    """Log that these were put or deleted at this generation, in the transaction that does it."""
    if len(ids) > MOST_AT_ONCE or (counter % _CHECKED_EVERY == 0 and _length(connection) > MOST_LOGGED):
        begin_anew(connection, counter)
        return
    upsert(connection, changes, [{"noun": noun, "id": item_id, "counter": counter} for item_id in sorted(set(ids))])


def begin_anew(connection: sa.Connection, counter: int) -> None:
    """Forget what was touched up to this generation: readers from before load everything."""
    connection.execute(sa.delete(changes))
    connection.execute(sa.insert(changes), {"noun": _BEGIN, "id": "", "counter": counter})


def since(connection: sa.Connection, generation: int) -> Changes | None:
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
