"""Demands: what the windows of each instance taught of it, and how busy everybody was; the only SQL about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from advisor.store.instances import instances
from advisor.store.rollups import bucket
from advisor.store.samples import samples, series
from advisor.store.schema import ID, VALUE, metadata
from advisor.store.statements import chunks, insert, insert_new, parameters, upsert
from models.profiling.windows import MOST

Key = tuple[str, str]  # instance, resource
Means = Mapping[tuple[str, float], Mapping[str, float]]  # (instance, end of a window in s) → metric → mean
KEEP_TOTALS_S = 86_400.0  # an agent that sends what it kept a day ago still learns how busy everybody was then

# Neither refers to instances: one that is away for an hour has not lost what was learned of it. See `expire`.
demands = sa.Table(
    "demands",
    metadata,
    sa.Column("instance", ID, primary_key=True),
    sa.Column("resource", sa.String(16), primary_key=True),
    sa.Column("until_s", sa.Double, nullable=False),  # windows that end up to then are in the tally
    sa.Column("tally", VALUE, nullable=False),
)
totals = sa.Table(
    "demand_totals",
    metadata,
    sa.Column("time_s", sa.Double, primary_key=True, autoincrement=False),  # when the window ended
    sa.Column("resource", sa.String(16), primary_key=True),
    sa.Column("total", sa.Double, nullable=False),  # of demands over their own means
    sa.Column("number", sa.Integer, nullable=False),  # of instances
)


@dataclass(frozen=True, slots=True)
class Learned:
    """A row: windows that end up to `until_s` are in `tally`, which is plain JSON."""

    until_s: float
    tally: Mapping[str, Any]


def until(connection: sa.Connection, ids: Iterable[str]) -> dict[Key, float]:
    """Up to when each resource of these instances has been learned."""
    found: dict[Key, float] = {}
    columns = (demands.c.instance, demands.c.resource, demands.c.until_s)
    for some in chunks(sorted(set(ids))):
        for row in connection.execute(sa.select(*columns).where(demands.c.instance.in_(some))):
            found[row.instance, row.resource] = row.until_s
    return found


def begin(connection: sa.Connection, rows: Mapping[Key, Learned]) -> None:
    """Insert those that are new."""
    insert_new(connection, demands, [_row(key, rows[key]) for key in sorted(rows)])


def held(connection: sa.Connection, keys: Iterable[Key]) -> dict[Key, Learned]:
    """These rows; nobody else changes them before this transaction ends."""
    wanted, found = set(keys), {}
    for some in chunks(sorted({name for name, _ in wanted})):
        # in one order, or two that hold some would wait for each other
        query = sa.select(demands).where(demands.c.instance.in_(some)).order_by(*demands.primary_key)
        for row in connection.execute(query.with_for_update()):
            found[row.instance, row.resource] = Learned(row.until_s, row.tally)
    return {key: row for key, row in found.items() if key in wanted}


def put(connection: sa.Connection, rows: Mapping[Key, Learned]) -> None:
    """Insert or replace."""
    upsert(connection, demands, [_row(key, row) for key, row in rows.items()])


def series_of(
    connection: sa.Connection, hosts: Iterable[str], ids: Iterable[str], metrics: Sequence[str]
) -> dict[int, tuple[str, str]]:
    """Instance and metric of their series on these hosts, by number."""
    found: dict[int, tuple[str, str]] = {}
    for some in chunks(sorted(set(ids))):
        here = (series.c.host.in_(sorted(set(hosts))), series.c.instance.in_(some), series.c.scope == "instance")
        for row in connection.execute(sa.select(series).where(*here, series.c.metric.in_(metrics))):
            found[row.id] = row.instance, row.metric
    return found


def windows(connection: sa.Connection, of: Mapping[int, tuple[str, str]], begin_s: float, end_s: float) -> Means:
    """Five-minute means of these series from one border to before another; a metric without samples is left out.

    Samples beyond anything that was ever measured count as missing.
    """
    ends = bucket(connection, samples.c.time_s).label("ends")
    sums: dict[tuple[str, float], dict[str, tuple[float, int]]] = {}
    for some in chunks(sorted(of)):
        when = (samples.c.time_s >= begin_s, samples.c.time_s < end_s)
        here = (samples.c.series.in_(some), *when, samples.c.value <= MOST)
        parts = sa.select(samples.c.series, ends, sa.func.sum(samples.c.value), sa.func.count())
        for number, time_s, total, count in connection.execute(parts.where(*here).group_by(samples.c.series, ends)):
            instance, metric = of[number]
            means = sums.setdefault((instance, time_s), {})
            before, former = means.get(metric, (0.0, 0))
            means[metric] = before + total, former + count
    return {key: {name: total / count for name, (total, count) in means.items()} for key, means in sums.items()}


def first_after(connection: sa.Connection, ids: Iterable[int], since_s: float) -> float | None:
    """When the first sample of these series since a time was taken; looks up each one's."""
    first = sa.select(sa.func.min(samples.c.time_s)).where(samples.c.series == series.c.id, samples.c.time_s >= since_s)
    found: list[float] = []
    for some in chunks(sorted(ids)):
        query = sa.select(first.scalar_subquery()).where(series.c.id.in_(some))
        found += [time_s for time_s in connection.scalars(query) if time_s is not None]
    return min(found, default=None)


def totals_at(connection: sa.Connection, times: Iterable[float]) -> dict[tuple[str, float], tuple[float, int]]:
    """By resource and end of window: the sum of demands over their own means, and of how many instances."""
    found: dict[tuple[str, float], tuple[float, int]] = {}
    for some in chunks(sorted(set(times))):
        for row in connection.execute(sa.select(totals).where(totals.c.time_s.in_(some))):
            found[row.resource, row.time_s] = row.total, row.number
    return found


def add_totals(connection: sa.Connection, more: Mapping[tuple[str, float], tuple[float, int]]) -> None:
    """Add to what others have added of the same windows."""
    if not more:
        return
    statement = insert(connection, totals, ["time_s", "resource", "total", "number"])
    added = {name: totals.c[name] + statement.excluded[name] for name in ("total", "number")}
    rows = [
        {"time_s": time_s, "resource": resource, "total": total, "number": number}
        for (resource, time_s), (total, number) in more.items()
    ]
    # In one order everywhere: two hosts add to the same windows at the same time.
    rows.sort(key=lambda row: (row["time_s"], row["resource"]))
    connection.execute(
        statement.on_conflict_do_update(index_elements=["time_s", "resource"], set_=added),
        parameters(connection, totals, rows),
    )


def expire(connection: sa.Connection, before_s: float, now_s: float) -> None:
    """Forget instances that are gone and were last measured before a time, and how busy everybody was long ago."""
    gone = sa.not_(sa.exists().where(instances.c.id == demands.c.instance))
    connection.execute(sa.delete(demands).where(demands.c.until_s < before_s, gone))
    connection.execute(sa.delete(totals).where(totals.c.time_s < now_s - KEEP_TOTALS_S))


def _row(key: Key, row: Learned) -> dict[str, Any]:
    return {"instance": key[0], "resource": key[1], "until_s": row.until_s, "tally": dict(row.tally)}
