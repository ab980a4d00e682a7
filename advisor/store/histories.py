"""Histories: stored samples and roll-ups as means of equal steps, for drawings and profiles; the only SQL on both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import sqlalchemy as sa

from advisor.store.rollups import bucket, rollups
from advisor.store.samples import samples, series
from advisor.store.statements import chunks

Key = tuple[str, str | None, str]  # host, instance (None = the host's own), metric
Means = tuple[Sequence[float], Sequence[float]]  # ends of steps in s, means
K = TypeVar("K")


def of_host(
    connection: sa.Connection, host: str, instances: Sequence[str], metrics: Sequence[tuple[str, str]]
) -> dict[int, Key]:
    """The series of a host and of these instances on it, by number; `metrics` are pairs of scope and name."""
    return _series(connection, metrics, series.c.host == host, instances)


def of_instance(
    connection: sa.Connection, instance: str, hosts: Sequence[str], metrics: Sequence[tuple[str, str]]
) -> dict[int, Key]:
    """The series of an instance wherever it was, and the own ones of these hosts."""
    return _series(connection, metrics, (series.c.instance == instance) | series.c.host.in_(hosts), [instance])


def _series(
    connection: sa.Connection,
    metrics: Sequence[tuple[str, str]],
    where: sa.ColumnElement[bool],
    instances: Sequence[str],
) -> dict[int, Key]:
    keys: dict[int, Key] = {}
    for part in chunks([*instances, ""]):
        query = sa.select(series).where(
            where, series.c.instance.in_(part), sa.tuple_(series.c.scope, series.c.metric).in_(metrics)
        )
        for row in connection.execute(query):
            if row.instance or row.scope == "host":
                keys[row.id] = (row.host, row.instance or None, row.metric)
    return keys


def means(
    connection: sa.Connection, keys: Mapping[int, K], begin_s: float, end_s: float, step_s: float
) -> dict[K, Means]:
    """Means of samples and, from before, of roll-ups in steps that end at multiples of `step_s`; `keys` are series by
    number."""
    ends = bucket(connection, samples.c.time_s, step_s).label("ends")
    by_key: dict[K, dict[float, tuple[float, int]]] = {}
    for part in chunks(sorted(keys)):
        here = (samples.c.series.in_(part), samples.c.time_s >= begin_s, samples.c.time_s < end_s)
        fresh = sa.select(samples.c.series, ends, sa.func.avg(samples.c.value), sa.func.count()).where(*here)
        old = sa.select(
            rollups.c.series, bucket(connection, rollups.c.time_s - 1.0, step_s), rollups.c.mean, rollups.c.number
        ).where(rollups.c.series.in_(part), rollups.c.time_s > begin_s, rollups.c.time_s <= end_s)
        both = sa.union_all(fresh.group_by(samples.c.series, ends), old)
        for number, time_s, mean, count in connection.execute(both):
            steps = by_key.setdefault(keys[number], {})
            before, former = steps.get(time_s, (0.0, 0))
            steps[time_s] = (before * former + mean * count) / (former + count), former + count
    return {key: (sorted(steps), [steps[at][0] for at in sorted(steps)]) for key, steps in by_key.items()}
