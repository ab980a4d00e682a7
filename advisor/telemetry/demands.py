"""Demand from samples on their way in: each instance's windows of five minutes, learned once they are over."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from advisor.store import counters, demands, instances, scores
from advisor.store.demands import Key, Learned, Means
from advisor.store.instances import Measured
from advisor.store.rollups import BUCKET_S
from advisor.store.sample_store import STORED, SampleStore, Series
from advisor.store.scores import Delivery
from models.profiling.demand_estimation import (
    LARGEST,
    Tally,
    Window,
    as_json,
    demanded_cpus,
    estimated,
    from_json,
    is_news,
)
from profiler.demand import RESOURCES, Demand, Resource
from profiler.observed import MetricSample

# Of one host's samples a window is over when one of this long after its end is there: samples of one moment may come
# in two batches.
AFTER_S = 60.0
MOST_AT_ONCE = 600  # windows learned in one call, all instances and resources together; what is left comes next time
LEAST_DEMAND = 0.01  # CPUs: of who asks for less, the share delivered says nothing
ENOUGH = 12  # windows, an hour of them, before an instance says how busy all are
_OF_CPU = ("cpu", "waiting", "throttled", "execution", "ready_threads", "psi_memory")
METRICS = (*_OF_CPU, *RESOURCES[1:])
News = Mapping[str, Measured]  # by instance: all that is measured of it
Known = Mapping[str, tuple[int, Measured]]  # by instance: its vCPUs, and what is published of it now


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
    connection: Connection, host: str, time_s: float, keys: Collection[Key], samples: SampleStore = STORED
) -> tuple[News, bool]:
    """The same by one time of a host, with instances and resources that were measured; and whether nothing is left."""
    names, over_s = {name for name, _ in keys}, over(time_s)
    batch = _Batch(dict.fromkeys(keys, time_s), dict.fromkeys(names, over_s), {host}, dict.fromkeys(names, host))
    return _learn(connection, batch, samples)


def over(newest_s: float) -> float:
    """The border up to which windows of a host are over, by its newest sample."""
    return _border(newest_s - AFTER_S)


def _learn(connection: Connection, batch: _Batch, samples: SampleStore) -> tuple[News, bool]:
    learned_until = demands.until(connection, batch.over)
    new = {
        key: Learned(_border(first), as_json(_empty(key)))
        for key, first in batch.first.items()
        if key not in learned_until
    }
    if new:
        demands.begin(connection, new)
        learned_until |= {key: row.until_s for key, row in new.items()}
    due = {key for key, until_s in learned_until.items() if until_s + BUCKET_S <= batch.over[key[0]]}
    if not due:
        return {}, True
    rows = demands.held(connection, due)
    series = samples.series_of(connection, batch.hosts, {name for name, _ in rows}, METRICS)
    known = instances.measured(connection, {name for name, _ in rows})
    windows: list[tuple[Key, Window]] = []
    until: dict[Key, float] = {}
    delivered: dict[str, Delivery] = {}
    for (begin_s, over_s), keys in _alike(rows, batch).items():
        end_s = min(over_s, begin_s + max(MOST_AT_ONCE // len(rows), 1) * BUCKET_S)
        series_of_keys = _series_for(series, keys)
        means = samples.windows(connection, series_of_keys, begin_s, end_s)
        if not means and end_s < over_s:  # a gap without samples: go on where the next sample is
            end_s = min(_border(samples.first_after(connection, series_of_keys, end_s) or over_s), over_s)
        until |= dict.fromkeys(keys, end_s)
        windows += [(key, window) for key in keys for window in _windows(means, key, known)]
        delivered |= _delivered(means, batch.places)
    tallies = {key: _Learning.read(row) for key, row in rows.items() if key in until}
    windows.sort(key=lambda item: (item[1].time_s, item[0]))
    demands.add_totals(connection, _teach(tallies, windows, _totals(connection, tallies, windows)))
    demands.put(connection, {key: Learned(until[key], learning.written()) for key, learning in tallies.items()})
    scores.put_deliveries(connection, delivered)
    samples.learned(connection, _learned_on(batch, learned_until | until))
    whole = all(until.get(key, 0.0) >= batch.over[key[0]] for key in due)
    return _news(known, {key: tallies[key].tally for key, _ in windows}), whole


def news_of_history(connection: Connection, history: News) -> News:
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


@dataclass(slots=True)
class _Learning:
    """A tally; `added` is its last window over its mean as it was added to the totals, None = it was not added."""

    tally: Tally
    added: float | None = None

    @classmethod
    def read(cls, row: Learned) -> _Learning:
        return cls(from_json(row.tally), row.tally.get("added"))

    def written(self) -> dict[str, object]:
        return {**as_json(self.tally), "added": self.added}


Totals = dict[tuple[str, float], tuple[float, int]]


def _teach(tallies: Mapping[Key, _Learning], windows: Sequence[tuple[Key, Window]], totals: Totals) -> Totals:
    """Add windows in order of time; returns what they add to the totals.

    How busy the others were in a window is looked up when the next one is over: until then all hosts have reported.
    """
    additions: Totals = {}
    for key, window in windows:
        learning, time_s = tallies[key], window.time_s
        _compare(learning, totals.get((key[1], learning.tally.last_s)))
        learning.tally.add(window)
        ratio = window.demand / learning.tally.mean if learning.tally.mean > 0 and learning.tally.n >= ENOUGH else None
        learning.added = ratio
        if ratio is not None:
            for sums in (totals, additions):
                total, number = sums.get((key[1], time_s), (0.0, 0))
                sums[key[1], time_s] = total + ratio, number + 1
    return additions


def _compare(learning: _Learning, others_in_step: tuple[float, int] | None) -> None:
    """Note how busy the others were in the last window, at least two of them."""
    if others_in_step is None or learning.tally.n == 0:
        return
    total, number = others_in_step
    if learning.added is not None:
        total, number = total - learning.added, number - 1
    if number >= 2:
        learning.tally.compare(learning.tally.last, total / number)


def _totals(connection: Connection, tallies: Mapping[Key, _Learning], windows: Iterable[tuple[Key, Window]]) -> Totals:
    last = {learning.tally.last_s for learning in tallies.values() if learning.tally.n}
    return dict(demands.totals_at(connection, last | {window.time_s for _, window in windows}))


def _news(known: Known, learned: Mapping[Key, Tally]) -> News:
    """What differs by more than the noise from what is published."""
    news: dict[str, dict[Resource, Demand]] = {}
    for (name, _), tally in sorted(learned.items()):
        if name not in known or tally.n < 1:
            continue
        vcpus, current = known[name]
        now = estimated(tally, vcpus=vcpus)
        if is_news(current.get(tally.resource), now):
            news.setdefault(name, dict(current))[tally.resource] = now
    return news


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


def _windows(means: Means, key: Key, known: Known) -> list[Window]:
    """Each window of one instance and resource.

    Demand for CPUs is more than what it used by what it waited for (`demanded_cpus`), at most the vCPUs: threads of the
    emulator may run beside. Linux counts tasks that their own quota holds back as waiting, too, so that time is taken
    off. Where waiting is not measured, demand is what it used.
    """
    name, resource = key
    windows = []
    for (owner, time_s), metrics in means.items():
        if owner != name or resource not in metrics or name not in known:
            continue
        value = demanded(metrics, resource, known[name][0])
        if value is not None:
            ran, executions = metrics.get("cpu", 0.0) / 100, metrics.get("execution", 0.0)
            windows.append(Window(time_s, value, ran=ran, executions=executions))
    return windows


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


def _empty(key: Key) -> Tally:
    return Tally(next(resource for resource in RESOURCES if resource == key[1]), BUCKET_S)


def _border(time_s: float) -> float:
    return time_s // BUCKET_S * BUCKET_S
