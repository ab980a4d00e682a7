"""Samples rolled up to half hours; histories and waits read from them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, TypeVar

import numpy as np
import sqlalchemy as sa

from advisor.settings import CLOCK_SKEW
from advisor.store import counters, engine, packs, samples
from advisor.store.packs import Ids, Values
from advisor.store.samples import sample_packs, series, series_around
from advisor.store.schema import ID, UtcTime, chunks, metadata, upsert
from profiler.metrics import WAITED_FOR

BUCKET_S = 300.0  # five of the windows that an agent pushes
NO_HOLDER = ""

mean_packs = sa.Table(
    "mean_packs",
    metadata,
    sa.Column("host", ID, primary_key=True),
    sa.Column("time_s", sa.Double, primary_key=True),  # when the five minutes ended, as samples have the end of windows
    sa.Column("number", sa.Integer, nullable=False),  # of series
    # Series with their mean, largest value and number of samples, see `packs`; means of seven digits.
    sa.Column("data", sa.LargeBinary, nullable=False),
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


def bucket_ends(times: Values, width_s: float) -> Values:
    """The ends of the five minutes, or other `width_s`, that times lie in; one on the border begins the next."""
    return (np.floor(times / width_s) + 1.0) * width_s


def rolled_until(connection: sa.Connection) -> float:
    """The time, in seconds since the epoch, up to which samples have been rolled up; 0 = none yet.

    It stays where it is until this transaction, which adds samples, ends.
    """
    engine.shared_with(connection, "border")
    return connection.scalar(_ROLLED_UNTIL) or 0.0


_ROLLED_UNTIL = sa.select(retention.c.rolled_until_s)  # made once: every window that comes asks


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


def hosts_after(connection: sa.Connection, last: str, most: int) -> tuple[str, ...]:
    """The next hosts by name of which anything is stored."""
    query = sa.select(series.c.host).where(series.c.host > last).distinct().order_by(series.c.host).limit(most)
    return tuple(connection.scalars(query))


def oldest(connection: sa.Connection, hosts: Sequence[str]) -> float | None:
    """When the first sample of these hosts was taken; looks up each one's, for nothing orders samples by time."""
    firsts = sa.select(sa.func.min(sample_packs.c.time_s)).where(sample_packs.c.host.in_(hosts))
    found = connection.scalars(firsts.group_by(sample_packs.c.host))
    return min(found, default=None)


def roll(connection: sa.Connection, hosts: Sequence[str], begin_s: float, end_s: float) -> int:
    """Turn samples of these hosts from `begin_s` to before `end_s`, both borders, into means of five minutes; returns
    how many."""
    # A pass that outlasted its lease may still be at it: what it adds up must be deleted before another one looks.
    engine.alone_with(connection, "rollups")
    rolled = 0
    for host, of_host in groupby(samples.read(connection, hosts, begin_s, end_s), attrgetter("host")):
        found = list(of_host)
        rolled += sum(len(one.ids) for one in found)
        ends = bucket_ends(np.array([one.time_s for one in found]), BUCKET_S)
        for begin, end in samples.spans(ends):
            _keep(connection, host, float(ends[begin]), _means_of(found[begin:end]))
    here = (sample_packs.c.host.in_(hosts), sample_packs.c.time_s >= begin_s, sample_packs.c.time_s < end_s)
    connection.execute(sa.delete(sample_packs).where(*here))
    return rolled


class _Means(NamedTuple):
    """Of five minutes: series in order, with the mean, the largest value and the number of samples of each."""

    ids: Ids
    means: Values
    most: Values
    numbers: Values

    @classmethod
    def of(cls, data: bytes) -> _Means:
        ids, (means, most, numbers) = samples.unpacked(data)
        return cls(ids, means, most, numbers)

    def row(self, host: str, time_s: float) -> dict[str, object]:
        """Means of seven digits: what they are of has fewer, and a pack half the size."""
        means = np.array([float(f"{mean:.7g}") for mean in self.means.tolist()])
        data = packs.pack(self.ids, means, self.most, self.numbers)
        return {"host": host, "time_s": time_s, "number": len(self.ids), "data": data}


def _means_of(found: Sequence[samples.Pack]) -> _Means:
    ids = np.concatenate([one.ids for one in found])
    values = np.concatenate([one.values for one in found])
    return _joined(ids, values, values, np.ones(len(ids)))


def _joined(ids: Ids, means: Values, most: Values, numbers: Values) -> _Means:
    """Each series once."""
    order = np.argsort(ids, kind="stable")
    begins = samples.starts(ids[order])
    if not len(begins):
        return _Means(ids, means, most, numbers)
    count = np.add.reduceat(numbers[order], begins)
    total = np.add.reduceat((means * numbers)[order], begins)
    return _Means(ids[order][begins], total / count, np.maximum.reduceat(most[order], begins), count)


def _keep(connection: sa.Connection, host: str, time_s: float, means: _Means) -> None:
    """What a clock that was ahead rolled up too early is joined by the samples that come later."""
    here = (mean_packs.c.host == host, mean_packs.c.time_s == time_s)
    before = connection.scalar(sa.select(mean_packs.c.data).where(*here).with_for_update())
    if before is not None:
        means = _joined(*(np.concatenate(pair) for pair in zip(_Means.of(before), means, strict=True)))
    upsert(connection, mean_packs, [means.row(host, time_s)])


def expire(connection: sa.Connection, hosts: Sequence[str], before_s: float) -> int:
    """Delete means of these hosts that ended before a time; returns how many."""
    here = (mean_packs.c.host.in_(hosts), mean_packs.c.time_s < before_s)
    expired = connection.scalar(sa.select(sa.func.sum(mean_packs.c.number)).where(*here)) or 0
    if expired:
        connection.execute(sa.delete(mean_packs).where(*here))
    return int(expired)


def drop_empty(connection: sa.Connection, hosts: Sequence[str], before_s: float) -> int:
    """Delete the series of these hosts that have no value since the day before a time; returns how many."""
    here = sa.and_(series.c.host.in_(hosts), series.c.last_day < int(before_s // samples.DAY_S))
    if connection.scalar(sa.select(series.c.id).where(here).limit(1)) is None:
        return 0
    engine.alone_with(connection, "series")  # no other writer adds to one of them now
    dropped = connection.execute(sa.delete(series).where(here)).rowcount
    counters.bump(connection, "series")  # who knows their numbers asks again
    return dropped


def reach_s(connection: sa.Connection, instance_id: str, since_s: float) -> float:
    """Seconds between the first and the last sample that a profile would be made of; inf where some are rolled up."""
    keys = series_around(connection, instance_id)
    hosts, wanted = {host for host, *_ in keys.values()}, np.array(sorted(keys), np.int64)
    if any(np.isin(means.ids, wanted).any() for _, _, means in _read(connection, hosts, since_s, math.inf)):
        return math.inf
    times = samples.flat(connection, keys, since_s, math.inf).times
    return float(times.max() - times.min()) if len(times) else 0.0


def _read(
    connection: sa.Connection, hosts: Iterable[str], begin_s: float, end_s: float
) -> Iterator[tuple[str, float, _Means]]:
    """Means that ended from one time to before another, of each host in order of time."""
    query = sa.select(mean_packs.c.time_s, mean_packs.c.data)
    query = query.where(mean_packs.c.time_s >= begin_s, mean_packs.c.time_s < end_s)
    for host in sorted(set(hosts)):
        for time_s, data in connection.execute(query.where(mean_packs.c.host == host).order_by(mean_packs.c.time_s)):
            yield host, time_s, _Means.of(data)


class _Totals(NamedTuple):
    """Sums of samples, by series and a time."""

    ids: Ids
    times: Values
    totals: Values
    numbers: Values


def _totals(connection: sa.Connection, keys: Collection[int], since_s: float, until_s: float) -> _Totals:
    """Samples from one time to before another, and means that ended after the one and up to the other; of these a time
    within."""
    fresh = samples.flat(connection, keys, since_s, until_s)
    wanted = np.array(sorted(keys), np.int64)
    parts = [_Totals(fresh.ids, fresh.times, fresh.values, np.ones(len(fresh.ids)))]
    after_s, past_s = math.nextafter(since_s, math.inf), math.nextafter(until_s, math.inf)
    for _, time_s, means in _read(connection, samples.hosts_of(connection, keys), after_s, past_s):
        here = np.isin(means.ids, wanted)
        ids, numbers = means.ids[here], means.numbers[here]
        parts.append(_Totals(ids, np.full(len(ids), time_s - 1.0), means.means[here] * numbers, numbers))
    return _Totals(*(np.concatenate(column) for column in zip(*parts, strict=True)))


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
    found = _totals(connection, keys, begin_s, end_s)
    if not len(found.ids):
        return {}
    names = list(dict.fromkeys(keys.values()))
    place = {key: at for at, key in enumerate(names)}
    numbers = sorted(keys)
    keyed = np.array([place[keys[number]] for number in numbers])[np.searchsorted(numbers, found.ids)]
    ends = bucket_ends(found.times, step_s)
    order = np.lexsort((ends, keyed))
    keyed, ends = keyed[order], ends[order]
    begins = samples.starts(keyed, ends)
    means = np.add.reduceat(found.totals[order], begins) / np.add.reduceat(found.numbers[order], begins)
    keyed, ends = keyed[begins], ends[begins]
    return {
        names[int(keyed[begin])]: (ends[begin:end].tolist(), means[begin:end].tolist())
        for begin, end in samples.spans(keyed)
    }


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
        keys = {row.id: row for row in connection.execute(sa.select(series).where(*here))}
        found = _totals(connection, keys, since_s, math.inf)
        order = np.argsort(found.ids, kind="stable")
        for begin, end in samples.spans(found.ids[order]):
            here_too, row = order[begin:end], keys[int(found.ids[order[begin]])]
            total, number = float(found.totals[here_too].sum()), int(found.numbers[here_too].sum())
            results.append(WaitSums(row.instance, row.metric, total, number))
    return tuple(results)
