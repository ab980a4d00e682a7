"""Colocations: outcomes that users posted, which move answers and later models learn from; the only SQL about them."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from advisor.domain import PostedColocation, codec
from advisor.store.schema import ID, VALUE, UtcTime, metadata
from advisor.store.statements import insert_new
from profiler.observed import Colocation

colocations = sa.Table(
    "colocations",
    metadata,
    sa.Column("run", ID, primary_key=True),
    sa.Column("platform", ID, primary_key=True),
    sa.Column("repeat", ID, primary_key=True),
    sa.Column("observed", VALUE, nullable=False),  # the whole Colocation
    sa.Column("recorded_at", UtcTime, nullable=False, index=True),
    sa.Column("sender", sa.String(200), nullable=False, server_default=""),  # of the audit log
)


def add(connection: sa.Connection, colocation: Colocation, now: datetime, sender: str = "") -> bool:
    """Insert it; False when its run, platform and repeat are there already."""
    key = {"run": colocation.run, "platform": colocation.platform, "repeat": colocation.repeat}
    row = {**key, "observed": colocation, "recorded_at": now, "sender": sender[:200]}
    return insert_new(connection, colocations, [row]) == 1


def forget(connection: sa.Connection, run: str) -> int:
    """Delete everything that was stored of a run; returns how much that was."""
    return connection.execute(sa.delete(colocations).where(colocations.c.run == run)).rowcount


def get(connection: sa.Connection, run: str, platform: str, repeat: str) -> Colocation | None:
    here = sa.and_(colocations.c.run == run, colocations.c.platform == platform, colocations.c.repeat == repeat)
    observed = connection.scalar(sa.select(colocations.c.observed).where(here))
    return None if observed is None else codec.decode(Colocation, observed)


def newest(connection: sa.Connection, most: int, most_outcomes: int) -> tuple[PostedColocation, ...]:
    """Those that were recorded last, the newest first, as long as they have at most so many outcomes together."""
    keys = (colocations.c.run, colocations.c.platform, colocations.c.repeat)
    query = sa.select(colocations.c.observed, colocations.c.sender)
    query = query.order_by(colocations.c.recorded_at.desc(), *keys).limit(most)
    found, outcomes = [], 0
    for observed, sender in connection.execute(query):
        found.append(PostedColocation(codec.decode(Colocation, observed), sender))
        outcomes += len(found[-1].colocation.outcomes)
        if outcomes > most_outcomes:
            return tuple(found[:-1])
    return tuple(found)
