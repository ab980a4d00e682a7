"""Histories: stored samples and roll-ups as means of equal steps, for drawings; the only SQL that makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from advisor.store.rollups import bucket, rollups
from advisor.store.samples import samples, series
from advisor.store.statements import chunks

Key = tuple[str, str | None, str]  # host, instance (None = the host's own), metric
Means = tuple[Sequence[float], Sequence[float]]  # ends of steps in s, means


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
    found: dict[int, Key] = {}
    for some in chunks([*instances, ""]):
        wanted = sa.select(series).where(
            where, series.c.instance.in_(some), sa.tuple_(series.c.scope, series.c.metric).in_(metrics)
        )
        for row in connection.execute(wanted):
            if row.instance or row.scope == "host":
                found[row.id] = (row.host, row.instance or None, row.metric)
    return found


def means(
    connection: sa.Connection, keys: Mapping[int, Key], begin_s: float, end_s: float, step_s: float
) -> dict[Key, Means]:
    """Means of samples, and of roll-ups from before, in steps of `step_s`, multiples of which all borders are."""
    ends = bucket(connection, samples.c.time_s, step_s).label("ends")
    found: dict[Key, dict[float, tuple[float, int]]] = {}
    for some in chunks(sorted(keys)):
        here = (samples.c.series.in_(some), samples.c.time_s >= begin_s, samples.c.time_s < end_s)
        fresh = sa.select(samples.c.series, ends, sa.func.avg(samples.c.value), sa.func.count()).where(*here)
        old = sa.select(
            rollups.c.series, bucket(connection, rollups.c.time_s - 1.0, step_s), rollups.c.mean, rollups.c.number
        ).where(rollups.c.series.in_(some), rollups.c.time_s > begin_s, rollups.c.time_s <= end_s)
        both = sa.union_all(fresh.group_by(samples.c.series, ends), old)
        for number, time_s, mean, count in connection.execute(both):
            at = found.setdefault(keys[number], {})
            before, former = at.get(time_s, (0.0, 0))
            at[time_s] = (before * former + mean * count) / (former + count), former + count
    return {key: (sorted(steps), [steps[at][0] for at in sorted(steps)]) for key, steps in found.items()}
