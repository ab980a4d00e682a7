"""Demands: what was learned of each instance by its windows, and how busy all of them were; the only SQL about them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import sqlalchemy as sa

from advisor.store import samples
from advisor.store.instances import instances
from advisor.store.rollups import BUCKET_S, bucket_ends
from advisor.store.samples import series
from advisor.store.schema import (
    ID,
    insert,
    insert_new,
    list_of,
    metadata,
    one_of,
    parameters,
    selected,
    upsert,
)
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
    sa.Column("state", sa.LargeBinary, nullable=False, server_default=""),  # see `models.profiling.tallies`
)
totals = sa.Table(
    "demand_totals",
    metadata,
    sa.Column("time_s", sa.Double, primary_key=True, autoincrement=False),  # when the window ended
    sa.Column("resource", sa.String(16), primary_key=True),
    sa.Column("total", sa.Double, nullable=False),  # of demands over their own means
    sa.Column("number", sa.Integer, nullable=False),  # of instances
)


_TOTALS = sa.select(totals)
_ABSENT = sa.not_(sa.exists().where(instances.c.id == demands.c.instance))


@dataclass(frozen=True, slots=True)
class Learned:
    """A row: windows that end up to `until_s` are in `state`, a tally as bytes; empty = none yet."""

    until_s: float
    state: bytes = b""


def until(connection: sa.Connection, ids: Iterable[str]) -> dict[Key, float]:
    """Up to when each resource of these instances has been learned."""
    rows = connection.execute(_until(connection.dialect.name), {"names": list_of(connection, ids)})
    return {(name, resource): until_s for name, resource, until_s in rows.all()}


@cache
def _until(dialect: str) -> sa.Select[Any]:
    query = sa.select(demands.c.instance, demands.c.resource, demands.c.until_s)
    return query.where(one_of(dialect, demands.c.instance, "names"))


def begin(connection: sa.Connection, rows: Mapping[Key, Learned]) -> None:
    """Insert those that are new."""
    insert_new(connection, demands, [_row(key, rows[key]) for key in sorted(rows)])


def held(connection: sa.Connection, keys: Iterable[Key]) -> dict[Key, Learned]:
    """These rows; no other writer changes them before this transaction ends."""
    wanted_keys = set(keys)
    names = list_of(connection, {name for name, _ in wanted_keys})
    rows = connection.execute(_held(connection.dialect.name), {"names": names})
    return {
        (name, resource): Learned(until_s, state)
        for name, resource, until_s, state in rows.all()
        if (name, resource) in wanted_keys
    }


@cache
def _held(dialect: str) -> sa.Select[Any]:
    # in one order, or two that hold some would wait for each other
    query = sa.select(demands).order_by(*demands.primary_key).with_for_update()
    return query.where(one_of(dialect, demands.c.instance, "names"))


def put(connection: sa.Connection, rows: Mapping[Key, Learned]) -> None:
    """Insert or replace."""
    upsert(connection, demands, [_row(key, row) for key, row in rows.items()])


def series_of(
    connection: sa.Connection, hosts: Iterable[str], ids: Iterable[str], metrics: Sequence[str]
) -> dict[int, tuple[str, str]]:
    """Instance and metric of their series on these hosts, by number."""
    sent = {"hosts": list_of(connection, hosts), "metrics": list_of(connection, metrics)}
    names = set(ids)
    rows = connection.execute(_series_of(connection.dialect.name), sent)
    return {number: (name, metric) for number, name, metric in rows.all() if name in names}


@cache
def _series_of(dialect: str) -> sa.Select[Any]:
    here = (one_of(dialect, series.c.host, "hosts"), one_of(dialect, series.c.metric, "metrics"))
    return sa.select(series.c.id, series.c.instance, series.c.metric).where(*here, series.c.scope == "instance")


def windows(
    connection: sa.Connection,
    of: Mapping[int, tuple[str, str]],
    begin_s: float,
    end_s: float,
    hosts: Collection[str] | None = None,
) -> Means:
    """Five-minute means of these series, of these hosts where they are known, from one border to before another; a
    metric without samples is left out.

    Samples beyond anything that was ever measured count as missing.
    """
    found = samples.flat(connection, of, begin_s, end_s, hosts)
    here = found.values <= MOST
    ids, values, ends = found.ids[here], found.values[here], bucket_ends(found.times[here], BUCKET_S)
    begins = samples.starts(ids, ends)
    counts = np.diff(begins, append=len(ids))
    totals = np.empty(len(begins))
    for count in np.unique(counts):  # as a rule all are as long: they are added up together
        alike = counts == count
        totals[alike] = values[begins[alike][:, None] + np.arange(count)].sum(axis=1)
    columns = (ids[begins].tolist(), ends[begins].tolist(), totals.tolist(), counts.tolist())
    sums: dict[tuple[str, float], dict[str, tuple[float, int]]] = {}
    means: dict[tuple[str, float], dict[str, float]] = {}
    for number, end, total, count in zip(*columns, strict=True):
        instance, metric = of[number]
        of_window = means.setdefault((instance, end), {})
        if metric in of_window:  # it moved within the window
            before, others = sums[instance, end][metric]
            total, count = before + total, others + count  # noqa: PLW2901 - of all hosts
        sums.setdefault((instance, end), {})[metric] = total, count
        of_window[metric] = total / count
    return means


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
    rows = selected(connection, _TOTALS, totals.c.time_s, times)
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
    return {"instance": key[0], "resource": key[1], "until_s": row.until_s, "state": row.state}
