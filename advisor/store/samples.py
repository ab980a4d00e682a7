"""Samples: one series per host, instance, scope and metric, and its values by time; the only SQL about them.

In PostgreSQL each day is a partition of its own: what retention emptied goes back to the disk at once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import exc
from sqlalchemy.dialects import postgresql, sqlite

from advisor.domain import Usage
from advisor.domain.codec import Unreadable
from advisor.store import engine, packs
from advisor.store.packs import Ids, Values
from advisor.store.schema import ID, chunks, insert_new, list_of, metadata, one_of, selected, with_pairs
from models.profiling.windows import MOST, Readings
from profiler.metrics import WAITED_FOR
from profiler.observed import MetricSample

DAY_S = 86_400
TABLE = "sample_packs"
_FORMER = "samples"  # had a row for each sample, and `samples_before_...`; backups may be of then
_PATIENCE = "200ms"  # that all who read and write samples wait for a partition to go
_PRESENT = sa.text(
    "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = to_regclass(:table)"
)
_PARTITIONED = sa.text("SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass(:table)")  # a backup's may not be


def is_one(table: str) -> bool:
    """Whether a table of this name is such a partition: no table of its own for backups."""
    day = next((table.removeprefix(f"{name}_") for name in (TABLE, _FORMER) if table.startswith(f"{name}_")), "")
    return day.removeprefix("before_").isdecimal()


def make(connection: sa.Connection, times: Iterable[float], table: str = TABLE) -> None:
    """See that samples of these times (s since the epoch) have a partition; several writers may at once."""
    if connection.dialect.name != "postgresql":
        return
    days = {int(time_s // DAY_S) for time_s in times}
    if days and _missing(connection, days, table) and connection.scalar(_PARTITIONED, {"table": table}):
        engine.alone_with(connection, "partitions")
        for day in sorted(_missing(connection, days, table)):
            name = _name(day, table)
            connection.exec_driver_sql(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)")
            # unlike CREATE TABLE ... PARTITION OF, this lets others read and write meanwhile
            bounds = f"FROM ({day * DAY_S}) TO ({(day + 1) * DAY_S})"
            connection.exec_driver_sql(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES {bounds}")


def over(connection: sa.Connection, before_s: float) -> list[str]:
    """The partitions of which everything is from before a time, the oldest first."""
    if connection.dialect.name != "postgresql":
        return []
    present = connection.scalars(_PRESENT, {"table": TABLE})
    return sorted(name for name in present if _ends_s(name) <= before_s)


def is_empty(connection: sa.Connection, name: str) -> bool:
    """Whether it has no row."""
    return connection.scalar(sa.select(sa.literal(1)).select_from(sa.table(name)).limit(1)) is None


def drop(connection: sa.Connection, name: str) -> bool:
    """Give its space back; False = others are at it, and it is left for the next time."""
    try:
        with connection.begin_nested():
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_PATIENCE}'")
            connection.execute(sa.schema.DropTable(sa.Table(name, sa.MetaData())))
    except exc.OperationalError:
        return False
    return True


def _missing(connection: sa.Connection, days: set[int], table: str) -> set[int]:
    present = set(connection.scalars(_PRESENT, {"table": table}))
    return {day for day in days if _name(day, table) not in present}


def _name(day: int, table: str) -> str:
    return f"{table}_{datetime.fromtimestamp(day * DAY_S, UTC):%Y%m%d}"


def _ends_s(name: str) -> float:
    """The end of what a partition holds."""
    return datetime.strptime(name.removeprefix(f"{TABLE}_"), "%Y%m%d").replace(tzinfo=UTC).timestamp() + DAY_S


SeriesKey = tuple[str, str, str, str]  # as stored: an empty instance is the host's own
SHORT_S = 3600.0  # of which packs of several hosts are read at once
_AT_ONCE = 500  # packs that are read before those series are picked that are wanted

# Neither table refers to hosts or instances: what was measured outlives them, and retention removes it.
series = sa.Table(
    "series",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("host", ID, nullable=False),
    sa.Column("instance", ID, nullable=False),  # empty = of the host, since NULLs are never duplicates
    sa.Column("scope", sa.String(16), nullable=False),
    sa.Column("metric", ID, nullable=False),
    # The last day, from the epoch, of which it may have a value: packs need not be read to know that it has none.
    sa.Column("last_day", sa.Integer, nullable=False, server_default="0"),
    sa.UniqueConstraint("host", "instance", "scope", "metric"),
)

sample_packs = sa.Table(
    "sample_packs",
    metadata,
    sa.Column("host", ID, primary_key=True),
    sa.Column("time_s", sa.Double, primary_key=True),  # seconds since the epoch, UTC
    sa.Column("number", sa.Integer, nullable=False),  # of values
    sa.Column("data", sa.LargeBinary, nullable=False),  # series and their values, see `packs`
    sqlite_with_rowid=False,
    postgresql_partition_by="RANGE (time_s)",  # by day; see `partitions`
)


class Pack(NamedTuple):
    """Values of one host at one time, by series in order."""

    host: str
    time_s: float
    ids: Ids
    values: Values


class Flat(NamedTuple):
    """Values of many series and times, one after the other; of each series in order of time."""

    ids: Ids
    times: Values
    values: Values


def add(connection: sa.Connection, items: Sequence[MetricSample]) -> int:
    """Insert the samples whose host, instance, scope, metric and time are new; returns how many were."""
    if not items:
        return 0
    keys = [_key(item) for item in items]
    days: dict[SeriesKey, int] = {}
    for key, item in zip(keys, items, strict=True):
        days[key] = max(int(item.time_s // DAY_S), days.get(key, 0))
    ids = series_ids(connection, days)
    by_time: dict[tuple[str, float], dict[int, float]] = {}
    for key, item in zip(keys, items, strict=True):
        by_time.setdefault((item.host, item.time_s), {}).setdefault(ids[key], item.value)
    return sum(add_packs(connection, [_pack(*place, values) for place, values in by_time.items()]))


def add_packs(connection: sa.Connection, coming: Sequence[Pack]) -> list[int]:
    """Keep values where none is stored of that series and time, after `series_ids` gave the ids; returns how many of
    each pack are new."""
    make(connection, {pack.time_s for pack in coming})
    # In one order everywhere, or two that send the same at once would wait for each other.
    order = sorted(range(len(coming)), key=lambda at: coming[at][:2])
    first = {coming[at][:2]: at for at in reversed(order)}
    rows = [
        {"host": one.host, "time_s": one.time_s, "number": len(one.ids), "data": packs.pack(one.ids, one.values)}
        for one in (coming[at] for at in order if first[coming[at][:2]] == at)
    ]
    new, accepted = _insert(connection, rows), [0] * len(coming)
    for at in order:
        is_new = first[coming[at][:2]] == at and coming[at][:2] in new
        accepted[at] = len(coming[at].ids) if is_new else _join(connection, coming[at])
    return accepted


def _insert(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> set[tuple[str, float]]:
    """Insert packs where there is none; returns of which host and time those are."""
    if len(rows) == 1:
        counted = connection.execution_options(preserve_rowcount=True)
        is_new = counted.execute(_add(connection.dialect.name), rows[0]).rowcount == 1
        return {(rows[0]["host"], rows[0]["time_s"])} if is_new else set()
    statement = _add(connection.dialect.name).returning(sample_packs.c.host, sample_packs.c.time_s)
    return {(row.host, row.time_s) for row in connection.execute(statement, list(rows))}


@cache
def _add(dialect: str) -> postgresql.Insert | sqlite.Insert:
    make_insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    return make_insert(sample_packs).on_conflict_do_nothing()


def forget(connection: sa.Connection, host: str, begin_s: float, end_s: float) -> None:
    """Delete what a host has from one time to before another."""
    here = (sample_packs.c.host == host, sample_packs.c.time_s >= begin_s, sample_packs.c.time_s < end_s)
    connection.execute(sa.delete(sample_packs).where(*here))


def _join(connection: sa.Connection, coming: Pack) -> int:
    """Add to a pack that is there; returns how many values are new."""
    here = (sample_packs.c.host == coming.host, sample_packs.c.time_s == coming.time_s)
    data = connection.scalar(sa.select(sample_packs.c.data).where(*here).with_for_update())
    if data is None:  # retention was faster
        return 0
    joined, number = packs.merge(data, coming.ids, coming.values)
    if number:
        more = {"number": sample_packs.c.number + number, "data": joined}
        connection.execute(sa.update(sample_packs).where(*here).values(**more))
    return number


def _pack(host: str, time_s: float, values: Mapping[int, float]) -> Pack:
    ids = np.array(sorted(values), np.int64)
    return Pack(host, time_s, ids, np.array([values[number] for number in ids.tolist()], np.float64))


def read(connection: sa.Connection, hosts: Iterable[str], begin_s: float, end_s: float) -> Iterator[Pack]:
    """Packs of these hosts from one time to before another, of each host in order of time. Unreadable where one is
    damaged."""
    names = sorted(set(hosts))
    together = 1 if end_s - begin_s > SHORT_S else len(names)  # of a week one has 7 MB
    for part in chunks(names, max(together, 1)):
        sent = {"hosts": list_of(connection, part), "begin_s": begin_s, "end_s": end_s}
        for host, time_s, data in connection.execute(_read(connection.dialect.name), sent):
            ids, (values,) = unpacked(data)
            yield Pack(host, time_s, ids, values)


@cache
def _read(dialect: str) -> sa.Select[Any]:
    time_s = sample_packs.c.time_s
    query = sa.select(sample_packs.c.host, time_s, sample_packs.c.data).order_by(sample_packs.c.host, time_s)
    within = (time_s >= sa.bindparam("begin_s"), time_s < sa.bindparam("end_s"))
    return query.where(one_of(dialect, sample_packs.c.host, "hosts"), *within)


def unpacked(data: bytes) -> tuple[Ids, list[Values]]:
    """As `packs.unpack`; Unreadable where the database is damaged."""
    try:
        return packs.unpack(data)
    except packs.Unpackable as error:
        raise Unreadable(str(error)) from error


def flat(
    connection: sa.Connection, ids: Collection[int], begin_s: float, end_s: float, hosts: Collection[str] | None = None
) -> Flat:
    """All values of these series, of these hosts where they are known, from one time to before another."""
    wanted = np.array(sorted(ids), np.int64)
    parts: list[Flat] = []
    hosts = hosts_of(connection, ids) if hosts is None else hosts
    for some in _together(read(connection, hosts, begin_s, end_s)):
        numbers = np.concatenate([one.ids for one in some])
        times = np.repeat([one.time_s for one in some], [len(one.ids) for one in some])
        here = np.isin(numbers, wanted)
        parts.append(Flat(numbers[here], times[here], np.concatenate([one.values for one in some])[here]))
    if not parts:
        return Flat(np.empty(0, np.int64), np.empty(0), np.empty(0))
    ids, times = np.concatenate([part.ids for part in parts]), np.concatenate([part.times for part in parts])
    order = np.lexsort((times, ids))
    return Flat(ids[order], times[order], np.concatenate([part.values for part in parts])[order])


def hosts_of(connection: sa.Connection, ids: Collection[int]) -> list[str]:
    """The hosts that these series are of."""
    rows = selected(connection, sa.select(series.c.host).distinct(), series.c.id, ids)
    return sorted({row.host for row in rows})


def _together(found: Iterator[Pack]) -> Iterator[list[Pack]]:
    some: list[Pack] = []
    for pack in found:
        some.append(pack)
        if len(some) >= _AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def by_series(found: Flat) -> Iterator[tuple[int, Values, Values]]:
    """Of each series its number, times and values."""
    for begin, end in spans(found.ids):
        yield int(found.ids[begin]), found.times[begin:end], found.values[begin:end]


def spans(*keys: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Begin and end of each run of equal keys."""
    borders = [*starts(*keys).tolist(), len(keys[0])]
    yield from pairwise(borders)


def starts(*keys: NDArray[Any]) -> NDArray[np.int64]:
    """Where runs of equal keys begin."""
    if not len(keys[0]):
        return np.empty(0, np.int64)
    differ = np.zeros(len(keys[0]), bool)
    differ[0] = True
    for key in keys:
        differ[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(differ)


def sums(found: Flat) -> Iterator[tuple[int, float, int]]:
    """Of each series its number, the sum of its values and how many there are."""
    begins = starts(found.ids)
    if len(begins):
        totals = np.add.reduceat(found.values, begins)
        counts = np.diff([*begins, len(found.ids)])
        yield from zip(found.ids[begins].tolist(), totals.tolist(), counts.tolist(), strict=True)


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
    keys = {row.id: row for row in connection.execute(sa.select(series).where(series.c.instance == instance_id))}
    found = flat(connection, keys, 0.0, math.inf)
    rows = sorted(zip(found.times.tolist(), found.ids.tolist(), found.values.tolist(), strict=True))
    return tuple(
        MetricSample(keys[number].host, instance_id, keys[number].scope, keys[number].metric, value, time_s)
        for time_s, number, value in rows
    )


def around_instance(connection: sa.Connection, instance_id: str, since_s: float) -> Readings:
    """What a profile is made of, since a time: all means of an instance and of its hosts, and its neighbours' CPU."""
    keys = series_around(connection, instance_id)
    return {
        keys[number]: (times.tolist(), values.tolist())
        for number, times, values in by_series(flat(connection, keys, since_s, math.inf))
    }


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
    measured last; without those of which nothing was measured."""
    query = sa.select(series).where(series.c.scope == "instance", series.c.metric == "cpu")
    last: dict[str, tuple[float, str]] = {}
    usage_of: dict[str, Usage] = {}
    for part in chunks(instance_ids):
        keys = {row.id: row for row in connection.execute(query.where(series.c.instance.in_(part)))}
        for number, times, values in by_series(_sane(flat(connection, keys, since_s, math.inf))):
            host, instance = keys[number].host, keys[number].instance
            if (float(times[-1]), host) >= last.get(instance, (0.0, "")):
                last[instance] = float(times[-1]), host
                p95, p99 = np.quantile(values, (0.95, 0.99)) / 100
                usage_of[instance] = Usage(float(p95), len(values), float(p99))
    return usage_of


def memory(
    connection: sa.Connection, instance_ids: Sequence[str], since_s: float
) -> dict[str, tuple[float | None, float | None]]:
    """The most memory that each instance held resident, and the most that was swapped out, in MB since a time on any
    host; None = not measured, and without those of which neither is."""
    query = sa.select(series).where(series.c.scope == "instance", series.c.metric.in_(("rss_mb", "swap_mb")))
    most: dict[str, dict[str, float]] = {}
    for part in chunks(instance_ids):
        keys = {row.id: row for row in connection.execute(query.where(series.c.instance.in_(part)))}
        for number, _, values in by_series(_sane(flat(connection, keys, since_s, math.inf))):
            of_instance = most.setdefault(keys[number].instance, {})
            metric = keys[number].metric
            of_instance[metric] = max(float(values.max()), of_instance.get(metric, 0.0))
    return {name: (found.get("rss_mb"), found.get("swap_mb")) for name, found in most.items()}


def last_measured(connection: sa.Connection) -> dict[str, float]:
    """When the newest sample of each host or of an instance on it was taken, s since the epoch; without hosts that have
    none."""
    known = sa.select(series.c.host).where(series.c.metric.in_(("cpu", "busy", "switch"))).distinct().subquery()
    newest = sa.select(sa.func.max(sample_packs.c.time_s)).where(sample_packs.c.host == known.c.host)
    query = sa.select(known.c.host, newest.scalar_subquery())
    return {host: time_s for host, time_s in connection.execute(query) if time_s is not None}


def busy(connection: sa.Connection, host: str, begin_s: float, end_s: float) -> dict[str, tuple[float, int]]:
    """Sum and number of samples after `begin_s` and up to `end_s` (%): under `host` of how busy its CPUs were, under
    `instance` and `driver_domain` of what its instances and its driver domain used."""
    scopes = {number: scope for number, scope in connection.execute(_BUSY, {"host": host}).all()}  # noqa: C416
    found: dict[str, tuple[float, int]] = {}
    after_s, past_s = math.nextafter(begin_s, math.inf), math.nextafter(end_s, math.inf)
    for number, total, count in sums(flat(connection, scopes, after_s, past_s, [host])):
        before, former = found.get(scopes[number], (0.0, 0))
        found[scopes[number]] = before + total, former + count
    return found


_BUSY = sa.select(series.c.id, series.c.scope).where(
    series.c.host == sa.bindparam("host"),
    sa.or_(
        sa.and_(series.c.instance == "", series.c.scope == "host", series.c.metric == "busy"),
        sa.and_(series.c.instance == "", series.c.scope == "driver_domain", series.c.metric == "cpu"),
        sa.and_(series.c.instance != "", series.c.scope == "instance", series.c.metric == "cpu"),
    ),
)


def run_and_wait(connection: sa.Connection, since_s: float) -> dict[tuple[str, str], dict[str, float]]:
    """Means since a time of `cpu`, `waiting` and `throttled` (%) by host and instance, as far as they were measured."""
    query = sa.select(series).where(series.c.scope == "instance", series.c.metric.in_(("cpu", "waiting", "throttled")))
    found: dict[tuple[str, str], dict[str, float]] = {}
    rows = connection.execute(query.order_by(series.c.host, series.c.id)).all()
    for _, of_host in groupby(rows, lambda row: row.host):
        keys = {row.id: row for row in of_host}
        for number, total, count in sums(flat(connection, keys, since_s, math.inf)):
            row = keys[number]
            found.setdefault((row.host, row.instance), {})[row.metric] = total / count
    return found


def _sane(found: Flat) -> Flat:
    """Without values beyond anything that was ever measured."""
    here = (found.values >= 0) & (found.values <= MOST)
    return Flat(found.ids[here], found.times[here], found.values[here])


def _key(sample: MetricSample) -> SeriesKey:
    return sample.host, sample.instance or "", sample.scope, sample.metric


def series_ids(connection: sa.Connection, days: Mapping[SeriesKey, int]) -> Mapping[SeriesKey, int]:
    """The ids of series, by the last day of which values come; those that are missing are made."""
    engine.shared_with(connection, "series")  # no other writer removes a series that these are about to go to
    found, names = _find(connection, sorted(days)), ("host", "instance", "scope", "metric", "last_day")
    missing = sorted(key for key in days if key not in found)
    if missing:
        insert_new(connection, series, [dict(zip(names, (*key, days[key]), strict=True)) for key in missing])
        found |= _find(connection, missing)
    later: dict[int, list[int]] = {}
    for key, day in days.items():
        if found[key][1] < day:
            later.setdefault(day, []).append(found[key][0])
    for day, numbers in sorted(later.items()):
        for part in chunks(sorted(numbers)):
            here = (series.c.id.in_(part), series.c.last_day < day)
            connection.execute(sa.update(series).where(*here).values(last_day=day))
    return {key: number for key, (number, _) in found.items()}


def _find(connection: sa.Connection, keys: Sequence[SeriesKey]) -> dict[SeriesKey, tuple[int, int]]:
    """Number and last day of those that are there, and others of the same hosts and instances."""
    ids: dict[SeriesKey, tuple[int, int]] = {}
    for part in chunks(sorted({key[:2] for key in keys})):
        for number, *key, last_day in connection.execute(
            with_pairs(connection, (series.c.host, series.c.instance), part)
        ):
            ids[tuple(key)] = number, last_day
    return ids
