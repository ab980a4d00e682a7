"""Demand from samples on their way in: each instance's windows of five minutes, learned once they are over."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection

from advisor.domain.codec import Unreadable
from advisor.store import counters, demands, instances, scores
from advisor.store.demands import Key, Learned, Means
from advisor.store.instances import Measured
from advisor.store.rollups import BUCKET_S
from advisor.store.sample_store import STORED, SampleStore, Series
from advisor.store.scores import Delivery
from models.profiling.demand_estimation import LARGEST, Estimate, demanded_cpus, is_news
from models.profiling.tallies import Rows, Tallies
from models.profiling.tallies import Unreadable as NoTally
from profiler.demand import RESOURCES, Demand, Resource
from profiler.observed import MetricSample

# Of one host's samples a window is over when one of this long after its end is there: samples of one moment may come
# in two batches.
AFTER_S = 60.0
MOST_AT_ONCE = 600  # windows of a host learned in one call, all instances and resources; what is left comes next time
LEAST_DEMAND = 0.01  # CPUs: of who asks for less, the share delivered says nothing
ENOUGH = 12  # windows, an hour of them, before an instance says how busy all are
_OF_CPU = ("cpu", "waiting", "throttled", "execution", "ready_threads", "psi_memory")
METRICS = (*_OF_CPU, *RESOURCES[1:])
_FIELDS = frozenset(Estimate._fields)
# By instance all that is measured of it; what is no news stays as it is stored, in plain values.
News = Mapping[str, Mapping[Resource, Demand | Mapping[str, Any]]]
History = Mapping[str, Measured]
# By instance its vCPUs, and what is published of it now, in plain values.
Known = Mapping[str, tuple[int, Mapping[Resource, Mapping[str, Any]]]]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Of a batch: when the first sample of each instance and resource was taken, up to where windows of each instance
    are over, the hosts, and where each instance is; one that is measured on two hosts is on none."""

    first: Mapping[Key, float]
    over: Mapping[str, float]
    hosts: Collection[str]
    places: Mapping[str, str]

    @classmethod
    def of(cls, samples: Iterable[MetricSample]) -> _Batch:
        first: dict[Key, float] = {}
        newest: dict[str, float] = {}
        on: dict[str, set[str]] = defaultdict(set)
        for sample in samples:
            newest[sample.host] = max(sample.time_s, newest.get(sample.host, 0.0))
            if sample.instance is not None and sample.scope == "instance" and sample.metric in RESOURCES:
                key = sample.instance, sample.metric
                first[key] = min(sample.time_s, first.get(key, math.inf))
                on[sample.instance].add(sample.host)
        overs = {name: max(over(newest[host]) for host in hosts) for name, hosts in on.items()}
        places = {name: next(iter(hosts)) for name, hosts in on.items() if len(hosts) == 1}
        return cls(first, overs, {host for hosts in on.values() for host in hosts}, places)


def learn(connection: Connection, taken: Sequence[MetricSample], samples: SampleStore = STORED) -> News:
    """Learn every window that samples, which must be stored, show to be over; returns what is news, by instance.

    Windows are taken from what is stored, in order of time, each once whatever is sent again. A sample that comes
    after its window was learned is not in it.
    """
    return _learn(connection, _Batch.of(taken), samples)[0]


def learn_of(
    connection: Connection, heard: Mapping[str, tuple[float, Collection[Key]]], samples: SampleStore = STORED
) -> tuple[News, set[str]]:
    """The same by one time of each host, with instances and resources that were measured; and the hosts of which
    nothing is left to learn."""
    first: dict[Key, float] = {}
    on: dict[str, set[str]] = defaultdict(set)
    for host, (time_s, keys) in heard.items():
        for key in keys:
            first[key] = min(time_s, first.get(key, math.inf))
            on[key[0]].add(host)
    overs = {name: max(over(heard[host][0]) for host in hosts) for name, hosts in on.items()}
    places = {name: next(iter(hosts)) for name, hosts in on.items() if len(hosts) == 1}
    news, left = _learn(connection, _Batch(first, overs, heard.keys(), places), samples)
    return news, {host for host, (_, keys) in heard.items() if left.isdisjoint(keys)}


def over(newest_s: float) -> float:
    """The border up to which windows of a host are over, by its newest sample."""
    return _border(newest_s - AFTER_S)


def _learn(connection: Connection, batch: _Batch, samples: SampleStore) -> tuple[News, set[Key]]:
    """The news, and what is not learned up to where windows are over."""
    learned_until = demands.until(connection, batch.over)
    new = {key: Learned(_border(first)) for key, first in batch.first.items() if key not in learned_until}
    if new:
        demands.begin(connection, new)
        learned_until |= {key: row.until_s for key, row in new.items()}
    due = {key for key, until_s in learned_until.items() if until_s + BUCKET_S <= batch.over[key[0]]}
    if not due:
        return {}, set()
    rows = demands.held(connection, due)
    series = samples.series_of(connection, batch.hosts, {name for name, _ in rows}, METRICS)
    known = instances.published(connection, {name for name, _ in rows})
    windows: dict[float, list[_Window]] = defaultdict(list)
    until: dict[Key, float] = {}
    delivered: dict[str, Delivery] = {}
    for (begin_s, over_s), keys in _alike(rows, batch).items():
        most = MOST_AT_ONCE * len(batch.hosts) // len(rows)
        end_s = min(over_s, begin_s + max(most, 1) * BUCKET_S)
        series_of_keys = _series_for(series, keys)
        means = samples.windows(connection, series_of_keys, begin_s, end_s, batch.hosts)
        if not means and end_s < over_s:  # a gap without samples: go on where the next sample is
            end_s = min(_border(samples.first_after(connection, series_of_keys, end_s) or over_s), over_s)
        until |= dict.fromkeys(keys, end_s)
        _add_windows(windows, means, set(keys), known)
        delivered |= _delivered(means, batch.places)
    learning = _Learning.of({key: row for key, row in rows.items() if key in until})
    demands.add_totals(connection, learning.teach(windows, _totals(connection, learning.tallies, windows)))
    demands.put(connection, learning.written(until))
    scores.put_deliveries(connection, delivered)
    samples.learned(connection, _learned_on(batch, learned_until | until))
    left = {key for key in due if until.get(key, 0.0) < batch.over[key[0]]}
    return learning.news(known, {one.key for of_time in windows.values() for one in of_time}), left


def news_of_history(connection: Connection, history: History) -> History:
    """What another system's history says differently from what is published, where no agent has measured."""
    news: dict[str, Measured] = {}
    for name, (_, current) in instances.measured(connection, history).items():
        own = {resource: demand for resource, demand in current.items() if demand.origin == "measured"}
        now = {**history[name], **own}
        differ = (is_news(current.get(resource), demand) for resource, demand in now.items())
        if now.keys() != current.keys() or any(differ):
            news[name] = now
    return news


def tell(connection: Connection, news: News) -> None:
    """Publish the news by the counter `demand`, in a transaction of its own: counters must be locked first, that of the
    inventory, too, for its writers change the same rows."""
    counters.hold(connection, "inventory")
    counter = counters.bump(connection, "demand")
    instances.tell_measured(connection, news, counter)


class _Window(NamedTuple):
    """The demand of an instance in a window, the CPUs that it used and how often in a second it was given one."""

    key: Key
    demand: float
    ran: float
    executions: float


Totals = dict[tuple[str, float], tuple[float, int]]


@dataclass(frozen=True, slots=True)
class _Learning:
    """Tallies in the order of `keys`; `added` of each is its last window over its mean as it was added to the totals,
    nan = it was not added."""

    keys: Mapping[Key, int]
    tallies: Tallies

    @classmethod
    def of(cls, rows: Mapping[Key, Learned]) -> _Learning:
        """Unreadable where the database is damaged."""
        try:
            tallies = Tallies.of([_resource(key) for key in rows], [row.state for row in rows.values()], BUCKET_S)
        except NoTally as error:
            raise Unreadable(str(error)) from error
        return cls({key: at for at, key in enumerate(rows)}, tallies)

    def written(self, until: Mapping[Key, float]) -> dict[Key, Learned]:
        return {key: Learned(until[key], state) for key, state in zip(self.keys, self.tallies.states(), strict=True)}

    def teach(self, windows: Mapping[float, Sequence[_Window]], totals: Totals) -> Totals:
        """Add windows in order of time; returns what they add to the totals.

        How busy the others were in a window is looked up when the next one is over: until then all hosts have reported.
        """
        additions: Totals = {}
        for time_s, unordered in sorted(windows.items()):
            of_time = sorted(unordered)
            rows = np.array([self.keys[one.key] for one in of_time])
            self._compare(rows, totals)
            demand, ran, executions = (np.array(column) for column in list(zip(*of_time, strict=True))[1:])
            self.tallies.add(rows, time_s, demand, ran, executions)
            mean = self.tallies.mean[rows]
            says = (mean > 0) & (self.tallies.n[rows] >= ENOUGH)
            self.tallies.added[rows] = np.divide(demand, mean, out=np.full(len(rows), np.nan), where=says)
            for one, ratio in zip(of_time, self.tallies.added[rows].tolist(), strict=True):
                for sums in (totals, additions) if ratio == ratio else ():  # noqa: PLR0124 - not nan
                    total, number = sums.get((one.key[1], time_s), (0.0, 0))
                    sums[one.key[1], time_s] = total + ratio, number + 1
        return additions

    def _compare(self, rows: Rows, totals: Totals) -> None:
        """Note how busy the others were in the last window, at least two of them."""
        rows = rows[self.tallies.n[rows] > 0]
        resources, ends = self.tallies.resources, self.tallies.last_s[rows].tolist()
        sums = [totals.get((resources[row], end), (0.0, 0)) for row, end in zip(rows.tolist(), ends, strict=True)]
        total, number = np.array([one[0] for one in sums]), np.array([one[1] for one in sums])
        own = self.tallies.added[rows]
        mine = (number > 0) & ~np.isnan(own)
        total[mine] -= own[mine]
        number[mine] -= 1
        there = number >= 2
        rows = rows[there]
        self.tallies.compare(rows, self.tallies.last[rows], total[there] / number[there])

    def news(self, known: Known, keys: Collection[Key]) -> News:
        """What differs by more than the noise from what is published, of these that have a new window."""
        ordered = sorted(key for key in keys if key[0] in known)
        rows = np.array([self.keys[key] for key in ordered], np.intp)
        estimates = self.tallies.estimates(rows, [known[name][0] for name, _ in ordered])
        found: dict[str, dict[Resource, Demand | Mapping[str, Any]]] = {}
        for (name, _), now in zip(ordered, estimates, strict=True):
            current = known[name][1]
            if is_news(_estimate(current.get(now.resource)), now):
                found.setdefault(name, dict(current))[now.resource] = _demand(now)
        return found


def _estimate(stored: Mapping[str, Any] | None) -> Estimate | None:
    """What is published, not checked; what another version wrote beside is left out."""
    if stored is None:
        return None
    return Estimate(**{name: value for name, value in stored.items() if name in _FIELDS})


def _demand(known: Estimate) -> Demand:
    return Demand(**known._replace(hours=tuple(known.hours), seen_hours=tuple(known.seen_hours))._asdict())


def _totals(connection: Connection, tallies: Tallies, times: Iterable[float]) -> Totals:
    last = set(tallies.last_s[tallies.n > 0].tolist())
    return dict(demands.totals_at(connection, last | set(times)))


def _learned_on(batch: _Batch, until: Mapping[Key, float]) -> Mapping[str, float]:
    """By host: up to where every resource of the batch's instances there has been learned."""
    by_host: dict[str, float] = {}
    for (name, _), until_s in until.items():
        if (host := batch.places.get(name)) is not None:
            by_host[host] = min(until_s, by_host.get(host, math.inf))
    return by_host


def _alike(rows: Mapping[Key, Learned], batch: _Batch) -> Mapping[tuple[float, float], list[Key]]:
    """Rows by where they begin and up to where windows are over: those of one host, as a rule, are all alike."""
    alike: dict[tuple[float, float], list[Key]] = defaultdict(list)
    for key, row in rows.items():
        over_s = batch.over[key[0]]
        if row.until_s + BUCKET_S <= over_s:  # another process may have been faster
            alike[row.until_s, over_s].append(key)
    return alike


def _series_for(series: Series, keys: Iterable[Key]) -> Series:
    demanded = {(name, metric) for name, resource in keys for metric in (_OF_CPU if resource == "cpu" else (resource,))}
    return {number: named for number, named in series.items() if named in demanded}


def _add_windows(windows: Mapping[float, list[_Window]], means: Means, keys: Collection[Key], known: Known) -> None:
    """Add each window of these instances and resources, by when it ended.

    Demand for CPUs is more than what it used by what it waited for (`demanded_cpus`), at most the vCPUs: threads of the
    emulator may run beside. Linux counts tasks that their own quota holds back as waiting, too, so that time is taken
    off. Where waiting is not measured, demand is what it used.
    """
    for (name, time_s), metrics in means.items():
        if name not in known:
            continue
        ran, executions = metrics.get("cpu", 0.0) / 100, metrics.get("execution", 0.0)
        for resource in RESOURCES:
            if resource in metrics and (name, resource) in keys:
                value = demanded(metrics, resource, known[name][0])
                if value is not None:
                    windows[time_s].append(_Window((name, resource), value, ran, executions))


def demanded(metrics: Mapping[str, float], resource: str, vcpus: int) -> float | None:
    """Demand of one window by its means, which has this resource; None = more than anything can move."""
    value = metrics[resource]
    if resource == "cpu":
        value = demanded_cpus(value / 100, held_back(metrics) / 100, vcpus, metrics.get("ready_threads"))
    return value if value <= LARGEST.get(resource, math.inf) else None


def held_back(metrics: Mapping[str, float]) -> float:
    """The time that it waited for others, in % of one CPU, without the time that its own cap took."""
    return max(metrics.get("waiting", 0.0) - metrics.get("throttled", 0.0), 0.0)


def _delivered(means: Means, places: Mapping[str, str]) -> dict[str, Delivery]:
    """The last of these windows of each instance that is on one host, as far as its CPU time was measured."""
    found: dict[str, Delivery] = {}
    for (name, time_s), metrics in means.items():
        newer = name not in found or found[name].time_s < time_s
        if newer and name in places and "cpu" in metrics:
            stalled = metrics.get("psi_memory")
            part = None if stalled is None else min(stalled / 100, 1.0)
            found[name] = Delivery(places[name], time_s, delivered_share(metrics), part)
    return found


def delivered_share(metrics: Mapping[str, float]) -> float | None:
    """Run / (run + wait) of a window, without what its own cap took; None where waiting is not measured, or where it
    ran for next to nothing and the share says how one burst met another."""
    if "waiting" not in metrics:
        return None
    run, wait = metrics["cpu"], held_back(metrics)
    return run / (run + wait) if run + wait >= 100 * LEAST_DEMAND else None


def _resource(key: Key) -> Resource:
    return next(resource for resource in RESOURCES if resource == key[1])


def _border(time_s: float) -> float:
    return time_s // BUCKET_S * BUCKET_S
