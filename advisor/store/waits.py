"""Waits: what samples say of who ran while who waited, and of how much each ran and waited; the only SQL that asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from advisor.store.rollups import rollups
from advisor.store.samples import samples, series
from advisor.store.statements import chunks
from profiler.metrics import WAITED_FOR


@dataclass(frozen=True, slots=True)
class WaitSums:
    """One metric of one instance: the sum of its samples' values, in %, and how many there are."""

    instance: str
    metric: str
    total: float
    number: int


def sums(connection: sa.Connection, host: str, instances: Sequence[str], since_s: float) -> tuple[WaitSums, ...]:
    """Of these instances on a host, since a time: CPU use, waiting, and the instances that they waited for, with the
    host."""
    plain = series.c.metric.in_(["cpu", "waiting", "waited_for_host"])
    wanted_metrics = plain | series.c.metric.startswith(WAITED_FOR, autoescape=True)
    results: list[WaitSums] = []
    for part in chunks(sorted(instances)):
        here = (series.c.host == host, series.c.scope == "instance", wanted_metrics, series.c.instance.in_(part))
        fresh = sa.select(
            samples.c.series, sa.func.sum(samples.c.value).label("total"), sa.func.count().label("number")
        ).where(samples.c.time_s >= since_s)
        old = sa.select(
            rollups.c.series, sa.func.sum(rollups.c.mean * rollups.c.number), sa.func.sum(rollups.c.number)
        ).where(rollups.c.time_s > since_s)
        ids = sa.select(series.c.id).where(*here).scalar_subquery()
        both = sa.union_all(
            fresh.where(samples.c.series.in_(ids)).group_by(samples.c.series),
            old.where(rollups.c.series.in_(ids)).group_by(rollups.c.series),
        ).subquery()
        query = sa.select(
            series.c.instance, series.c.metric, sa.func.sum(both.c.total), sa.func.sum(both.c.number)
        ).join(both, both.c.series == series.c.id)
        for instance, metric, total, number in connection.execute(query.group_by(series.c.instance, series.c.metric)):
            results.append(WaitSums(instance, metric, float(total), int(number)))
    return tuple(results)
