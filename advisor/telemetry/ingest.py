"""Observations on their way in: which samples and colocations are taken, and why the others are dropped."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any

from sqlalchemy import Connection

from advisor.domain import STALLED_PERCENT
from advisor.errors import Conflict, InvalidInput
from advisor.settings import CLOCK_SKEW
from advisor.store import counters, hosts, instances, models, rollups, stays
from advisor.store.sample_store import STORED, SampleStore
from advisor.store.samples import DAY_S, Pack, SeriesKey, series_ids
from advisor.store.schema import chunks
from advisor.telemetry import demands, host_reports
from advisor.telemetry.demands import News
from advisor.telemetry.layouts import Layout, Quick, layout_of
from advisor.validation import check_value
from profiler.demand import RESOURCES
from profiler.metrics import ADDITIONAL, EIGHT, SCOPES, WAITED_FOR
from profiler.observed import Colocation, MetricSample, check_id

HOSTS_AT_ONCE = 6  # whose demand is learned together: longer, and others would wait for the locks
MOST_NAMES = 100  # metrics of one host beside those that the agent measures
_OWN = {metric.name for metric in (*EIGHT, *ADDITIONAL)}


@dataclass(frozen=True, slots=True)
class Checked:
    """A batch by position: the samples that may be stored, and why the others may not."""

    taken: Mapping[int, MetricSample]
    dropped: Mapping[int, str]
    lasting: bool = True  # it is the same for every time, while the inventory is


@dataclass(frozen=True, slots=True)
class Ingested:
    """What became of a batch; `dropped` has the position in the batch and the reason of each sample not taken. `news`
    is what it says of instances' demand, which is still to be stored."""

    accepted: int
    duplicate: int
    dropped: tuple[tuple[int, str], ...]
    news: News


@dataclass(frozen=True, slots=True)
class _Voice:
    """What a sender may speak for: one host, the instances on it, and those that were on it in their times (s).

    A `host` of None = everything.
    """

    host: str | None
    here: frozenset[str] = frozenset()
    times: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)

    @classmethod
    def of(cls, connection: Connection, host: str | None, batch: Sequence[MetricSample]) -> _Voice:
        """Of a batch's sender: its instances may have left the host before what was measured of them arrived."""
        if host is None:
            return cls(None)
        places = instances.places(connection, _named(batch))
        here = frozenset(name for name, place in places.items() if place == host)
        away = places.keys() - here
        return cls(host, here, stays.times_on(connection, host, away) if away else {})

    def denies(self, host: str) -> str | None:
        """Why it may not speak for a host, None = it may."""
        return None if self.host in {None, host} else f"this token is for the agent of host {self.host}, not of {host}"

    def denies_instance(self, sample: MetricSample) -> str | None:
        """Why it may not speak for the instances that a sample names, None = it may."""
        if self.host is None:
            return None
        for name in _named([sample]):
            was_here = (begin_s <= sample.time_s <= end_s for begin_s, end_s in self.times.get(name, ()))
            if name not in self.here and not any(was_here):
                return f"this token is for the agent of host {self.host}, and {name[:60]} is not on it"
        return None


class _Names:
    """Metrics that the agent does not measure: a host may have MOST_NAMES of them, whoever sends them."""

    def __init__(
        self, connection: Connection, samples: SampleStore, batch: Sequence[MetricSample], known_hosts: set[str]
    ) -> None:
        named = {sample.host for sample in batch if not _is_own(sample.metric)} & known_hosts
        stored = samples.metric_names(connection, named) if named else {}
        self._names = {host: {name for name in stored.get(host, ()) if not _is_own(name)} for host in named}

    def denies(self, sample: MetricSample) -> str | None:
        """Why a metric of this name is not taken, None = it is, and counts from now on."""
        if _is_own(sample.metric):
            return None
        names = self._names[sample.host]
        if sample.metric not in names and len(names) >= MOST_NAMES:
            return (
                f"{sample.host} has {MOST_NAMES} metrics beside those of the agent; {sample.metric[:60]!r} is one more"
            )
        names.add(sample.metric)
        return None


def _is_own(metric: str) -> bool:
    return metric.removesuffix("_p95") in _OWN or metric.startswith(WAITED_FOR)


def ingest(
    connection: Connection,
    batch: Sequence[MetricSample],
    *,
    now: datetime,
    fresh_s: float,
    only: str | None = None,
    stall_percent: float = STALLED_PERCENT,
    samples: SampleStore = STORED,
) -> Ingested:
    """Check a batch and store it, in one transaction; see `check` and `store`."""
    checked = check(connection, batch, now=now, only=only, samples=samples)
    return store(connection, checked, now=now, fresh_s=fresh_s, stall_percent=stall_percent, samples=samples)


def check(
    connection: Connection,
    batch: Sequence[MetricSample],
    *,
    now: datetime,
    only: str | None = None,
    samples: SampleStore = STORED,
) -> Checked:
    """Which samples of a batch may be stored, with the ids of the inventory.

    `only` is the one host that the sender may speak for, None = any: of instances it may report what was measured
    while they were there.
    """
    known_hosts = hosts.known(connection, (sample.host for sample in batch))
    known_instances = instances.known(connection, _named(batch))
    batch = _by_id(connection, batch, known_hosts, known_instances)
    voice = _Voice.of(connection, only, batch)
    names = _Names(connection, samples, batch, known_hosts)
    begin_s, end_s = rollups.rolled_until(connection), now.timestamp() + CLOCK_SKEW.total_seconds()
    of_series: dict[tuple[str, str | None, str, str], str | None] = {}  # a batch has many samples of each
    taken: dict[int, MetricSample] = {}
    dropped: dict[int, str] = {}
    for position, sample in enumerate(batch):
        key = sample.host, sample.instance, sample.scope, sample.metric
        if key not in of_series:
            of_series[key] = (
                _misnamed(sample)
                or voice.denies(sample.host)
                or _stranger(sample, known_hosts, known_instances)
                or names.denies(sample)
            )
        reason = of_series[key] or voice.denies_instance(sample)
        if reason is None and not (0 <= sample.value < math.inf and begin_s <= sample.time_s <= end_s):
            reason = _fault(sample, begin_s, now.timestamp())
        if reason is None:
            taken[position] = sample
        else:
            dropped[position] = reason
    return Checked(taken, dropped, lasting=not voice.times)


def store(
    connection: Connection,
    checked: Checked,
    *,
    now: datetime,
    fresh_s: float,
    stall_percent: float = STALLED_PERCENT,
    samples: SampleStore = STORED,
) -> Ingested:
    """Store what may be; sent again it is all duplicates. The hosts count as seen at the samples' times."""
    taken = list(checked.taken.values())
    accepted = samples.add(connection, taken)
    news = demands.learn(connection, taken, samples) if accepted else {}
    _note_sightings(connection, taken, now, timedelta(seconds=fresh_s))
    moved = bool(accepted) and host_reports.learn_own_load(connection, taken, samples)
    if accepted and (host_reports.learn_memory(connection, taken, stall_percent) or moved):
        counters.bump(connection, "sightings")
    return Ingested(accepted, len(taken) - accepted, tuple(sorted(checked.dropped.items())), news)


def store_quick(
    connection: Connection,
    windows: Sequence[Quick],
    *,
    now: datetime,
    fresh_s: float,
    stall_percent: float = STALLED_PERCENT,
    samples: SampleStore = STORED,
) -> tuple[Sequence[int], News]:
    """The same of windows whose layouts are known, with how many values of each are new. What each layout notes holds
    also where this transaction fails: the next window then does what is left."""
    packs = [Pack(one.layout.host, one.time_s, one.layout.ids, one.values) for one in windows]
    accepted = samples.add_packs(connection, packs)
    news: dict[str, Any] = {}
    moved = False
    for part in _rounds(windows) if any(accepted) else ():
        news |= _learn_demand(connection, part, samples)
        moved |= _learn_hosts(connection, part, stall_percent, samples)
    latest: dict[str, float] = {}
    for layout, time_s, *_ in windows:
        if not 0 <= time_s - layout.seen_s < fresh_s / 40:  # sooner than a note of the host is replaced
            latest[layout.host] = max(time_s, latest.get(layout.host, 0.0))
            layout.seen_s = time_s
    if latest:
        _note_heard(connection, latest, now, timedelta(seconds=fresh_s))
    if moved:
        counters.bump(connection, "sightings")
    return accepted, news


def _rounds(windows: Sequence[Quick]) -> Iterator[Sequence[Quick]]:
    """In order of time, each with at most one window of a host and HOSTS_AT_ONCE of them."""
    by_host: dict[str, list[Quick]] = defaultdict(list)
    for one in sorted(windows, key=lambda one: one.time_s):
        by_host[one.layout.host].append(one)
    for together in zip_longest(*by_host.values()):
        yield from chunks([one for one in together if one is not None], HOSTS_AT_ONCE)


def _learn_demand(connection: Connection, windows: Sequence[Quick], samples: SampleStore) -> News:
    """Demand of all hosts whose five minutes are over, together."""
    due = {one.layout.host: one for one in windows if one.layout.resources}
    due = {host: one for host, one in due.items() if demands.over(one.time_s) > one.layout.learned_s}
    if not due:
        return {}
    heard = {host: (one.time_s, one.layout.resources) for host, one in due.items()}
    news, whole = demands.learn_of(connection, heard, samples)
    for host in whole:
        due[host].layout.learned_s = demands.over(due[host].time_s)
    return news


def _learn_hosts(connection: Connection, windows: Sequence[Quick], stall_percent: float, samples: SampleStore) -> bool:
    """Own load and memory of all hosts; True where either is another."""
    busy = [one for one in windows if one.layout.has_busy and one.time_s - one.layout.own_s >= host_reports.EVERY_S]
    moved = host_reports.learn_own_load_of(connection, {one.layout.host: one.time_s for one in busy}, samples)
    for one in busy:
        one.layout.own_s = one.time_s
    of_hosts = [
        MetricSample(layout.host, None, "host", layout.series[at][3], float(sent[at]), time_s)
        for layout, time_s, _, sent in windows
        for at in layout.memory
    ]
    return host_reports.learn_memory(connection, of_hosts, stall_percent) or moved


def kept(connection: Connection, window: Sequence[MetricSample], taken: Sequence[MetricSample]) -> Layout | None:
    """The layout of a window that was taken whole, as it came and with the names of the inventory."""
    days: dict[SeriesKey, int] = {}
    for one in taken:
        days[one.host, one.instance or "", one.scope, one.metric] = int(one.time_s // DAY_S)
    return layout_of(taken, series_ids(connection, days), set(_named(window)) | set(_named(taken)), RESOURCES)


def record(connection: Connection, colocation: Colocation, *, now: datetime, sender: str = "") -> bool:
    """Store a colocation; False when it is there, Conflict when its run and repeat are there with other values."""
    check_colocation(colocation)
    if models.add_colocation(connection, colocation, now, sender):
        return True
    if models.get_colocations(connection, colocation.run, colocation.platform, colocation.repeat) != colocation:
        message = f"run {colocation.run}, repeat {colocation.repeat} is stored with other values; give it another name"
        raise Conflict(message, field="run")
    return False


def _misnamed(sample: MetricSample) -> str | None:
    """What is wrong with the name of a series."""
    try:
        check_id(sample.metric, "metric")
    except ValueError as error:
        return str(error)
    if sample.scope not in SCOPES:
        return f"scope {sample.scope!r} is none of {', '.join(SCOPES)}"
    return None


def _fault(sample: MetricSample, begin_s: float, now_s: float) -> str:
    """What is wrong with a sample's value or time."""
    if not 0 <= sample.value < math.inf:
        return f"value {sample.value} is not a finite number of at least 0"
    if not 0 <= sample.time_s < math.inf:
        return f"time {sample.time_s} is not a time"
    if sample.time_s < begin_s:
        begin = datetime.fromtimestamp(begin_s, UTC).isoformat(timespec="seconds")
        return f"time is before {begin}, up to which samples are rolled up and no longer taken"
    return f"time is {sample.time_s - now_s:.0f} s in the future; check the clock of the host"


def _by_id(
    connection: Connection, batch: Sequence[MetricSample], known_hosts: set[str], known_instances: set[str]
) -> Sequence[MetricSample]:
    """With the ids of the inventory for instances that go by another name on their hypervisor.

    The ids are added to those that are known.
    """
    if known_instances.issuperset(_named(batch)):  # as nearly always
        return batch
    unknown = {sample.host for sample in batch if not known_instances.issuperset(_named([sample]))}
    aliases = instances.aliases(connection, unknown & known_hosts) if unknown else {}
    if not aliases:
        return batch
    known_instances.update(aliases.values())
    return [_renamed(sample, aliases) for sample in batch]


def _renamed(sample: MetricSample, aliases: Mapping[tuple[str, str], str]) -> MetricSample:
    instance, metric = sample.instance and aliases.get((sample.host, sample.instance), sample.instance), sample.metric
    if other := _waited_for(metric):
        metric = f"{WAITED_FOR}{aliases.get((sample.host, other), other)}"
    if instance == sample.instance and metric == sample.metric:
        return sample
    return replace(sample, instance=instance, metric=metric)


def _named(batch: Iterable[MetricSample]) -> Iterator[str]:
    """The instances that samples name: whose they are, and the instances that those waited for."""
    for sample in batch:
        if sample.instance:
            yield sample.instance
        if other := _waited_for(sample.metric):
            yield other


def _waited_for(metric: str) -> str:
    """The instance in the metric's name; empty = none."""
    return metric.removeprefix(WAITED_FOR) if metric.startswith(WAITED_FOR) else ""


def _stranger(sample: MetricSample, known_hosts: set[str], known_instances: set[str]) -> str | None:
    """Whether the inventory has no instance of this name."""
    if sample.host not in known_hosts:
        return f"unknown host {sample.host[:60]!r}"
    if sample.instance is not None and sample.instance not in known_instances:
        return f"unknown instance {sample.instance[:60]!r}"
    other = _waited_for(sample.metric)
    return f"unknown instance {other[:60]!r}" if other and other not in known_instances else None


def _note_sightings(connection: Connection, taken: Sequence[MetricSample], now: datetime, fresh: timedelta) -> None:
    latest: dict[str, float] = {}
    for sample in taken:
        latest[sample.host] = max(sample.time_s, latest.get(sample.host, 0.0))
    _note_heard(connection, latest, now, fresh)


def _note_heard(connection: Connection, latest: Mapping[str, float], now: datetime, fresh: timedelta) -> None:
    times = {host: min(datetime.fromtimestamp(time_s, UTC), now) for host, time_s in latest.items()}
    if hosts.heard(connection, times, now=now, fresh=fresh):
        counters.bump(connection, "sightings")


def check_colocation(colocation: Colocation) -> None:
    """Refuse a colocation that breaks a rule; InvalidInput says where."""
    check_value(colocation)
    for name in ("run", "platform", "repeat"):
        if len(getattr(colocation, name)) > 255:
            raise InvalidInput(f"{name} is longer than 255 characters", field=name)
    if not colocation.run:
        raise InvalidInput("a colocation needs the name of its run", field="run")
    if not colocation.outcomes:
        raise InvalidInput(f"run {colocation.run} has no outcomes", field="outcomes")
    twice = next(_repeated(colocation), None)
    if twice:
        raise InvalidInput(f"run {colocation.run}: {twice} stands twice", field="outcomes")


def _repeated(colocation: Colocation) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for outcome in colocation.outcomes:
        key = outcome.instance.id, outcome.outcome
        if key in seen:
            yield f"{outcome.outcome} of {outcome.instance.id}"
        seen.add(key)
