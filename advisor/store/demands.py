"""Demands: what was learned of each instance by its windows, and how busy all of them were; the only SQL about them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa

from advisor.store import samples
from advisor.store.instances import instances
from advisor.store.rollups import BUCKET_S, bucket_ends
from advisor.store.samples import series
from advisor.store.schema import ID, VALUE, insert, insert_new, metadata, parameters, selected, upsert
from models.profiling.windows import MOST

Key = tuple[str, str]  # instance, resource
Means = Mapping[tuple[str, float], Mapping[str, float]]  # (instance, end of a window in s) → metric → mean
KEEP_TOTALS_S = 86_400.0  # an agent that sends what it kept a day ago still learns how busy every instance was then

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


_ABSENT = sa.not_(sa.exists().where(instances.c.id == demands.c.instance))


@dataclass(frozen=True, slots=True)
class Learned:
    """A row: windows that end up to `until_s` are in `tally`, which is plain JSON."""

    until_s: float
    tally: Mapping[str, Any]


def until(connection: sa.Connection, ids: Iterable[str]) -> dict[Key, float]:
    """Up to when each resource of these instances has been learned."""
    query = sa.select(demands.c.instance, demands.c.resource, demands.c.until_s)
    rows = selected(connection, query, demands.c.instance, ids)
    return {(row.instance, row.resource): row.until_s for row in rows}


def begin(connection: sa.Connection, rows: Mapping[Key, Learned]) -> None:
    """Insert those that are new."""
    insert_new(connection, demands, [_row(key, rows[key]) for key in sorted(rows)])


def held(connection: sa.Connection, keys: Iterable[Key]) -> dict[Key, Learned]:
    """These rows; no other writer changes them before this transaction ends."""
    wanted_keys = set(keys)
    # in one order, or two that hold some would wait for each other
    locked = sa.select(demands).order_by(*demands.primary_key).with_for_update()
    rows = selected(connection, locked, demands.c.instance, {name for name, _ in wanted_keys})
    locked_rows = {(row.instance, row.resource): Learned(row.until_s, row.tally) for row in rows}
    return {key: row for key, row in locked_rows.items() if key in wanted_keys}


def put(connection: sa.Connection, rows: Mapping[Key, Learned]) -> None:
    """Insert or replace."""
    upsert(connection, demands, [_row(key, row) for key, row in rows.items()])


def series_of(
    connection: sa.Connection, hosts: Iterable[str], ids: Iterable[str], metrics: Sequence[str]
) -> dict[int, tuple[str, str]]:
    """Instance and metric of their series on these hosts, by number."""
    here = (series.c.host.in_(sorted(set(hosts))), series.c.scope == "instance", series.c.metric.in_(metrics))
    rows = selected(connection, sa.select(series).where(*here), series.c.instance, ids)
    return {row.id: (row.instance, row.metric) for row in rows}


def windows(connection: sa.Connection, of: Mapping[int, tuple[str, str]], begin_s: float, end_s: float) -> Means:
    """Five-minute means of these series from one border to before another; a metric without samples is left out.

    Samples beyond anything that was ever measured count as missing.
    """
    found = samples.flat(connection, of, begin_s, end_s)
    here = found.values <= MOST
    ids, values, ends = found.ids[here], found.values[here], bucket_ends(found.times[here], BUCKET_S)
    sums: dict[tuple[str, float], dict[str, tuple[float, int]]] = {}
    for begin, end in samples.spans(ids, ends):
        instance, metric = of[int(ids[begin])]
        of_window = sums.setdefault((instance, float(ends[begin])), {})
        total_before, count_before = of_window.get(metric, (0.0, 0))
        of_window[metric] = total_before + float(values[begin:end].sum()), count_before + end - begin
    return {key: {name: total / count for name, (total, count) in means.items()} for key, means in sums.items()}


def first_after(connection: sa.Connection, ids: Iterable[int], since_s: float) -> float | None:
    """When the first sample of these series since a time was taken."""
    wanted = np.array(sorted(ids), np.int64)
    firsts = (
        next((one.time_s for one in of_host if np.isin(one.ids, wanted).any()), None)
        for of_host in (
            samples.read(connection, [host], since_s, math.inf)
            for host in samples.hosts_of(connection, wanted.tolist())
        )
    )
    return min((time_s for time_s in firsts if time_s is not None), default=None)


def totals_at(connection: sa.Connection, times: Iterable[float]) -> dict[tuple[str, float], tuple[float, int]]:
    """By resource and end of window: the sum of demands over their own means, and of how many instances."""
    rows = selected(connection, sa.select(totals), totals.c.time_s, times)
    return {(row.resource, row.time_s): (row.total, row.number) for row in rows}


def add_totals(connection: sa.Connection, additions: Mapping[tuple[str, float], tuple[float, int]]) -> None:
    """Add to what others have added of the same windows."""
    if not additions:
        return
    statement = insert(connection, totals, ["time_s", "resource", "total", "number"])
    added = {name: totals.c[name] + statement.excluded[name] for name in ("total", "number")}
    rows = [
        {"time_s": time_s, "resource": resource, "total": total, "number": number}
        for (resource, time_s), (total, number) in additions.items()
    ]
    # In one order everywhere: two hosts add to the same windows at the same time.
    rows.sort(key=lambda row: (row["time_s"], row["resource"]))
    connection.execute(
        statement.on_conflict_do_update(index_elements=["time_s", "resource"], set_=added),
        parameters(connection, totals, rows),
    )


def expired(connection: sa.Connection, before_s: float) -> list[str]:
    """Instances that are gone and of which nothing was measured since a time."""
    query = sa.select(demands.c.instance).distinct().where(demands.c.until_s < before_s, _ABSENT)
    return sorted(connection.scalars(query))


def expire(connection: sa.Connection, ids: Sequence[str], before_s: float) -> None:
    """Forget these instances as far as they are gone and were last measured before a time."""
    connection.execute(sa.delete(demands).where(demands.c.instance.in_(ids), demands.c.until_s < before_s, _ABSENT))


def expire_totals(connection: sa.Connection, now_s: float) -> None:
    """Forget how busy all were long ago."""
    connection.execute(sa.delete(totals).where(totals.c.time_s < now_s - KEEP_TOTALS_S))


def _row(key: Key, row: Learned) -> dict[str, Any]:
    return {"instance": key[0], "resource": key[1], "until_s": row.until_s, "tally": dict(row.tally)}
