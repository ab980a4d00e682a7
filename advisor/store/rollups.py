"""Samples rolled up to half hours; histories and waits read from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from advisor.settings import CLOCK_SKEW
from advisor.store import engine
from advisor.store.samples import samples, series, series_around
from advisor.store.schema import UtcTime, chunks, metadata
from profiler.metrics import WAITED_FOR

BUCKET_S = 300.0  # five of the windows that an agent pushes
NO_HOLDER = ""

rollups = sa.Table(
    "rollups",
    metadata,
    sa.Column("series", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time_s", sa.Double, primary_key=True),  # when the five minutes ended, as samples have the end of windows
    sa.Column("mean", sa.Double, nullable=False),
    sa.Column("most", sa.Double, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),  # of samples
    sqlite_with_rowid=False,
)
retention = sa.Table(  # one row
    "retention",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    # No sample from before is taken: it is not known whether it is in a roll-up already, and none may count twice.
    sa.Column("rolled_until_s", sa.Double, nullable=False),
    sa.Column("holder", sa.String(64), nullable=False),  # the pass that rolls up
    # A holder that was killed is followed by another then; without a holder: when the next is due.
    sa.Column("held_until", UtcTime),
)


@dataclass(frozen=True, slots=True)
class Removed:
    """What a step did: samples that became roll-ups, roll-ups that expired, series of which nothing is left, and
    recommendations and plans that expired."""

    samples: int = 0
    rollups: int = 0
    series: int = 0
    recommendations: int = 0
    plans: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(*(mine + more for mine, more in zip(astuple(self), astuple(other), strict=True)))


def bucket(
    connection: sa.Connection, time_s: sa.ColumnElement[float], width_s: float = BUCKET_S
) -> sa.ColumnElement[float]:
    """The end of the five minutes, or other `width_s`, that a time lies in; a time on the border begins the next."""
    # SQLite's CAST cuts the fraction off, PostgreSQL's rounds; times are never negative
    share = time_s / width_s
    whole = sa.func.floor(share) if connection.dialect.name == "postgresql" else sa.cast(share, sa.BigInteger)
    return sa.type_coerce((whole + 1.0) * width_s, sa.Double)


def rolled_until(connection: sa.Connection) -> float:
    """The time, in seconds since the epoch, up to which samples have been rolled up; 0 = none yet.

    It stays where it is until this transaction, which adds samples, ends.
    """
    engine.shared_with(connection, "border")
    return connection.scalar(sa.select(retention.c.rolled_until_s)) or 0.0


def hold(
    connection: sa.Connection, holder: str, now: datetime, until: datetime, cut_s: float, *, early: bool = False
) -> bool:
    """Become the one pass that rolls up, and take no samples from before `cut_s` any more.

    False = another one is, or it is not time yet, which `early` overlooks.
    """
    engine.alone_with(connection, "border")  # samples on their way from before it are stored first
    mine = [holder, NO_HOLDER] if early else [holder]
    held_until, rolled_until_s, now_s = retention.c.held_until, retention.c.rolled_until_s, now.timestamp()
    # No process holds it for longer than from now until `until`: whoever did so had a clock that was ahead.
    free = sa.or_(retention.c.holder.in_(mine), held_until.is_(None), held_until < now, held_until > until + CLOCK_SKEW)
    # The same clock may have moved the border into the future, from where it would keep every sample out.
    later = sa.case((rolled_until_s > now_s, now_s), (rolled_until_s < cut_s, cut_s), else_=rolled_until_s)
    values = {"holder": holder, "held_until": until, "rolled_until_s": later}
    return connection.execute(sa.update(retention).where(free).values(values)).rowcount == 1


def let_go(connection: sa.Connection, holder: str, next_at: datetime | None) -> None:
    """Let another pass roll up, not before `next_at`; nothing where another one holds it already."""
    here = retention.c.holder == holder
    connection.execute(sa.update(retention).where(here).values(holder=NO_HOLDER, held_until=next_at))


def series_after(connection: sa.Connection, last: int, most: int) -> tuple[int, ...]:
    """The next series by number."""
    query = sa.select(series.c.id).where(series.c.id > last).order_by(series.c.id).limit(most)
    return tuple(connection.scalars(query))


def oldest(connection: sa.Connection, ids: Sequence[int]) -> float | None:
    """When the first sample of these series was taken; looks up each one's, for nothing orders samples by time."""
    first = sa.select(sa.func.min(samples.c.time_s)).where(samples.c.series == series.c.id).scalar_subquery()
    times = sa.select(first.label("time_s")).where(series.c.id.in_(ids)).subquery()
    oldest_s: float | None = connection.scalar(sa.select(sa.func.min(times.c.time_s)))
    return oldest_s


def roll(connection: sa.Connection, ids: Sequence[int], begin_s: float, end_s: float) -> int:
    """Turn samples of these series from `begin_s` to before `end_s`, both borders, into roll-ups; returns how many."""
    # A pass that outlasted its lease may still be at it: what it adds up must be deleted before anybody else looks.
    engine.alone_with(connection, "rollups")
    here = (samples.c.series.in_(ids), samples.c.time_s >= begin_s, samples.c.time_s < end_s)
    ends = bucket(connection, samples.c.time_s).label("ends")
    whole = (sa.func.avg(samples.c.value), sa.func.max(samples.c.value), sa.func.count())
    means = sa.select(samples.c.series, ends, *whole).where(*here).group_by(samples.c.series, ends)
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = insert(rollups).from_select([column.name for column in rollups.columns], means)
    # What a clock that was ahead rolled up too early is joined by the samples that come later.
    old, new = rollups.c, statement.excluded
    joined = {
        "mean": (old.mean * old.number + new.mean * new.number) / (old.number + new.number),
        "most": sa.case((old.most > new.most, old.most), else_=new.most),
        "number": old.number + new.number,
    }
    connection.execute(statement.on_conflict_do_update(index_elements=["series", "time_s"], set_=joined))
    return connection.execute(sa.delete(samples).where(*here)).rowcount


def expire(connection: sa.Connection, ids: Sequence[int], before_s: float) -> int:
    """Delete roll-ups of these series that ended before a time; returns how many."""
    return connection.execute(sa.delete(rollups).where(rollups.c.series.in_(ids), rollups.c.time_s < before_s)).rowcount


def drop_empty(connection: sa.Connection, ids: Sequence[int]) -> int:
    """Delete those of these series of which nothing is kept; returns how many."""
    has_rows = [sa.exists().where(table.c.series == series.c.id) for table in (samples, rollups)]
    here = sa.and_(series.c.id.in_(ids), *(~exists for exists in has_rows))
    if connection.scalar(sa.select(series.c.id).where(here).limit(1)) is None:
        return 0
    engine.alone_with(connection, "series")  # no other writer adds to one of them now
    return connection.execute(sa.delete(series).where(here)).rowcount


def reach_s(connection: sa.Connection, instance_id: str, since_s: float) -> float:
    """Seconds between the first and the last sample that a profile would be made of; inf where some are rolled up."""
    first, last = math.inf, -math.inf
    for part in chunks(sorted(series_around(connection, instance_id))):
        here = (rollups.c.series.in_(part), rollups.c.time_s >= since_s)
        if connection.execute(sa.select(rollups.c.series).where(*here).limit(1)).first() is not None:
            return math.inf
        ends = sa.select(sa.func.min(samples.c.time_s), sa.func.max(samples.c.time_s))
        begin, end = connection.execute(ends.where(samples.c.series.in_(part), samples.c.time_s >= since_s)).one()
        if begin is not None:
            first, last = min(first, begin), max(last, end)
    return max(last - first, 0.0)


# Histories: stored samples and roll-ups as means of equal steps, for drawings and profiles; the only SQL on both.

Key = tuple[str, str | None, str]  # host, instance (None = the host's own), metric
Means = tuple[Sequence[float], Sequence[float]]  # ends of steps in s, means
K = TypeVar("K")


def history_of_host(
    connection: sa.Connection, host: str, instances: Sequence[str], metrics: Sequence[tuple[str, str]]
) -> dict[int, Key]:
    """The series of a host and of these instances on it, by number; `metrics` are pairs of scope and name."""
    return _series(connection, metrics, series.c.host == host, instances)


def history_of_instance(
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


def history_means(
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


# Waits: what samples say of who ran while who waited, and of how much each ran and waited; the only SQL that asks.


@dataclass(frozen=True, slots=True)
class WaitSums:
    """One metric of one instance: the sum of its samples' values, in %, and how many there are."""

    instance: str
    metric: str
    total: float
    number: int


def wait_sums(connection: sa.Connection, host: str, instances: Sequence[str], since_s: float) -> tuple[WaitSums, ...]:
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
