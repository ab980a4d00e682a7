"""Samples: one series per host, instance, scope and metric, and its values by time; the only SQL about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

import sqlalchemy as sa

from advisor.domain import Usage
from advisor.store import engine, partitions
from advisor.store.schema import ID, add_new, chunks, insert_new, metadata, selected, with_pairs
from models.profiling.windows import MOST, Readings
from profiler.metrics import WAITED_FOR
from profiler.observed import MetricSample

SeriesKey = tuple[str, str, str, str]  # as stored: an empty instance is the host's own

# Neither table refers to hosts or instances: what was measured outlives them, and retention removes it.
series = sa.Table(
    "series",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("host", ID, nullable=False),
    sa.Column("instance", ID, nullable=False),  # empty = of the host, since NULLs are never duplicates
    sa.Column("scope", sa.String(16), nullable=False),
    sa.Column("metric", ID, nullable=False),
    sa.UniqueConstraint("host", "instance", "scope", "metric"),
)

samples = sa.Table(
    "samples",
    metadata,
    # no foreign key: PostgreSQL looks each one up, which took longer than to store the row. There it is partitioned by
    # day; see `partitions`
    sa.Column("series", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time_s", sa.Double, primary_key=True),  # seconds since the epoch, UTC
    sa.Column("value", sa.Double, nullable=False),
    sqlite_with_rowid=False,  # half the size: the key is the row
    postgresql_partition_by="RANGE (time_s)",
)


def add(connection: sa.Connection, items: Sequence[MetricSample]) -> int:
    """Insert the samples whose host, instance, scope, metric and time are new; returns how many were."""
    if not items:
        return 0
    partitions.make(connection, (item.time_s for item in items))
    engine.shared_with(connection, "series")  # no other writer removes a series that these are about to go to
    keys = [_key(item) for item in items]
    ids = _series_ids(connection, sorted(set(keys)))
    rows = [(ids[key], item.time_s, item.value) for key, item in zip(keys, items, strict=True)]
    # In one order everywhere, or two that send the same samples at once would wait for each other.
    return add_new(connection, samples, sorted(rows, key=itemgetter(0, 1)))


def metric_names(connection: sa.Connection, hosts: Iterable[str]) -> dict[str, set[str]]:
    """The metrics that samples of these hosts have, by host, but for which instances waited for."""
    query = sa.select(series.c.host, series.c.metric).distinct()
    query = query.where(sa.not_(series.c.metric.startswith(WAITED_FOR, autoescape=True)))
    names: dict[str, set[str]] = {}
    for host, metric in selected(connection, query, series.c.host, hosts):
        names.setdefault(host, set()).add(metric)
    return names


def of_instance(connection: sa.Connection, instance_id: str) -> tuple[MetricSample, ...]:
    """Everything measured of an instance, in order of time."""
    query = sa.select(series, samples.c.time_s, samples.c.value).join(samples, samples.c.series == series.c.id)
    rows = connection.execute(query.where(series.c.instance == instance_id).order_by(samples.c.time_s, series.c.id))
    return tuple(
        MetricSample(row.host, row.instance or None, row.scope, row.metric, row.value, row.time_s) for row in rows
    )


def around_instance(connection: sa.Connection, instance_id: str, since_s: float) -> Readings:
    """What a profile is made of, since a time: all means of an instance and of its hosts, and its neighbours' CPU."""
    keys = series_around(connection, instance_id)
    readings: dict[int, tuple[list[float], list[float]]] = {}
    query = sa.select(samples).where(samples.c.time_s >= since_s)
    for number, time_s, value in selected(connection, query, samples.c.series, keys):
        times, values = readings.setdefault(number, ([], []))
        times.append(time_s)
        values.append(value)
    return {keys[number]: readings[number] for number in sorted(readings)}


def series_around(connection: sa.Connection, instance_id: str) -> Mapping[int, tuple[str, str | None, str, str]]:
    """The series that a profile is made of, by number: host, instance (None = the host's own), scope and metric."""
    hosts = sa.select(series.c.host).where(series.c.instance == instance_id)
    neighbour = sa.and_(series.c.scope == "instance", series.c.metric == "cpu")
    wanted = sa.select(series).where(
        series.c.host.in_(hosts),
        series.c.instance.in_([instance_id, ""]) | neighbour,
        sa.not_(series.c.metric.endswith("_p95", autoescape=True)),
        sa.not_(series.c.metric.startswith(WAITED_FOR, autoescape=True)),
    )
    return {row.id: (row.host, row.instance or None, row.scope, row.metric) for row in connection.execute(wanted)}


def usage(connection: sa.Connection, instance_ids: Sequence[str], since_s: float) -> dict[str, Usage]:
    """The CPUs that 95 and 99 % of the windows of each instance stayed under since a time, on the host where it was
    measured last; without those of which nothing was measured. The database sorts: of each instance at most four rows
    are read."""
    windows = sa.func.count().over(partition_by=series.c.id).label("windows")
    last_s = sa.func.max(samples.c.time_s).over(partition_by=series.c.id).label("last_s")
    rank = (sa.func.row_number().over(partition_by=series.c.id, order_by=samples.c.value) - 1).label("rank")
    ranked = (
        sa.select(series.c.host, series.c.instance, samples.c.value, windows, last_s, rank)
        .join(samples, samples.c.series == series.c.id)
        .where(series.c.scope == "instance", series.c.metric == "cpu")
        .where(samples.c.time_s >= since_s, samples.c.value.between(0.0, MOST))
    )
    usage_of: dict[str, Usage] = {}
    for part in chunks(instance_ids):
        here = ranked.where(series.c.instance.in_(part)).subquery()
        # a quantile lies between the value of this rank and the next one
        below = [share * (here.c.windows - 1) // 100 for share in (95, 99)]
        near = sa.or_(*(here.c.rank.between(rank, rank + 1) for rank in below))
        values: dict[tuple[str, str, int], dict[int, float]] = {}
        for row in connection.execute(sa.select(here).where(near).order_by(here.c.last_s, here.c.host)):
            values.setdefault((row.host, row.instance, row.windows), {})[row.rank] = row.value
        for (_, instance, count), by_rank in values.items():
            p95, p99 = (_quantile(by_rank, share * (count - 1)) / 100 for share in (95, 99))
            usage_of[instance] = Usage(p95, count, p99)
    return usage_of


def memory(
    connection: sa.Connection, instance_ids: Sequence[str], since_s: float
) -> dict[str, tuple[float | None, float | None]]:
    """The most memory that each instance held resident, and the most that was swapped out, in MB since a time on any
    host; None = not measured, and without those of which neither is."""
    query = (
        sa.select(series.c.instance, series.c.metric, sa.func.max(samples.c.value).label("most"))
        .join(samples, samples.c.series == series.c.id)
        .where(series.c.scope == "instance", series.c.metric.in_(("rss_mb", "swap_mb")))
        .where(samples.c.time_s >= since_s, samples.c.value.between(0.0, MOST))
        .group_by(series.c.instance, series.c.metric)
    )
    most: dict[str, dict[str, float]] = {}
    for row in selected(connection, query, series.c.instance, instance_ids):
        most.setdefault(row.instance, {})[row.metric] = row.most
    return {name: (found.get("rss_mb"), found.get("swap_mb")) for name, found in most.items()}


def last_measured(connection: sa.Connection) -> dict[str, float]:
    """When the newest sample of each host or of an instance on it was taken, s since the epoch; without hosts that have
    none."""
    newest = sa.select(sa.func.max(samples.c.time_s)).where(samples.c.series == series.c.id).scalar_subquery()
    query = sa.select(series.c.host, sa.func.max(newest)).where(series.c.metric.in_(("cpu", "busy", "switch")))
    return {host: time_s for host, time_s in connection.execute(query.group_by(series.c.host)) if time_s is not None}


def busy(connection: sa.Connection, host: str, begin_s: float, end_s: float) -> dict[str, tuple[float, int]]:
    """Sum and number of samples after `begin_s` and up to `end_s` (%): under `host` of how busy its CPUs were, under
    `instance` and `driver_domain` of what its instances and its driver domain used."""
    own = sa.and_(series.c.instance == "", series.c.scope == "host", series.c.metric == "busy")
    of_driver = sa.and_(series.c.instance == "", series.c.scope == "driver_domain", series.c.metric == "cpu")
    of_instances = sa.and_(series.c.instance != "", series.c.scope == "instance", series.c.metric == "cpu")
    query = (
        sa.select(series.c.scope, sa.func.sum(samples.c.value), sa.func.count())
        .join(samples, samples.c.series == series.c.id)
        .where(series.c.host == host, sa.or_(own, of_driver, of_instances))
        .where(samples.c.time_s > begin_s, samples.c.time_s <= end_s)
        .group_by(series.c.scope)
    )
    return {scope: (total, number) for scope, total, number in connection.execute(query)}


def run_and_wait(connection: sa.Connection, since_s: float) -> dict[tuple[str, str], dict[str, float]]:
    """Means since a time of `cpu`, `waiting` and `throttled` (%) by host and instance, as far as they were measured."""
    query = (
        sa.select(series.c.host, series.c.instance, series.c.metric, sa.func.avg(samples.c.value))
        .join(samples, samples.c.series == series.c.id)
        .where(series.c.scope == "instance", series.c.metric.in_(("cpu", "waiting", "throttled")))
        .where(samples.c.time_s >= since_s)
        .group_by(series.c.host, series.c.instance, series.c.metric)
    )
    found: dict[tuple[str, str], dict[str, float]] = {}
    for host, instance, metric, mean in connection.execute(query):
        found.setdefault((host, instance), {})[metric] = mean
    return found


def _quantile(by_rank: Mapping[int, float], hundredths: int) -> float:
    """The value at a rank in hundredths, between those of the whole ranks beside it."""
    rank, beyond = divmod(hundredths, 100)
    low = by_rank[rank]
    return low + beyond / 100 * (by_rank.get(rank + 1, low) - low)


def _key(sample: MetricSample) -> SeriesKey:
    return sample.host, sample.instance or "", sample.scope, sample.metric


def _series_ids(connection: sa.Connection, keys: Sequence[SeriesKey]) -> Mapping[SeriesKey, int]:
    ids = _find(connection, keys)
    missing = [key for key in keys if key not in ids]
    if not missing:
        return ids
    names = ("host", "instance", "scope", "metric")
    insert_new(connection, series, [dict(zip(names, key, strict=True)) for key in missing])
    return {**ids, **_find(connection, missing)}


def _find(connection: sa.Connection, keys: Sequence[SeriesKey]) -> dict[SeriesKey, int]:
    """Those that are there, and others of the same hosts and instances."""
    ids: dict[SeriesKey, int] = {}
    for part in chunks(sorted({key[:2] for key in keys})):
        for number, *key in connection.execute(with_pairs(connection, (series.c.host, series.c.instance), part)):
            ids[tuple(key)] = number
    return ids
