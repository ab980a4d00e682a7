"""Colocations: the table of observed outcomes, which later models learn from; the only SQL about them."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from advisor.domain import codec
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
)


def add(connection: sa.Connection, colocation: Colocation, now: datetime) -> bool:
    """Insert it; False when its run, platform and repeat are there already."""
    key = {"run": colocation.run, "platform": colocation.platform, "repeat": colocation.repeat}
    row = {**key, "observed": colocation, "recorded_at": now}
    return insert_new(connection, colocations, [row]) == 1


def get(connection: sa.Connection, run: str, platform: str, repeat: str) -> Colocation | None:
    here = sa.and_(colocations.c.run == run, colocations.c.platform == platform, colocations.c.repeat == repeat)
    observed = connection.scalar(sa.select(colocations.c.observed).where(here))
    return None if observed is None else codec.decode(Colocation, observed)
