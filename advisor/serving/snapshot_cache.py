"""What answers right now: the snapshot and the predictor, renewed when the database's counters have moved."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, TypeVar

from sqlalchemy import Connection

from advisor.domain import (
    MEMORY_SHORT,
    Anomaly,
    Host,
    Instance,
    Inventory,
    PostedColocation,
    Recommendation,
    WorkloadProfile,
)
from advisor.lifecycle import anomalies
from advisor.placement import sequential
from advisor.prediction import active as predictors
from advisor.prediction.active import ActivePredictor, PredictionCache
from advisor.prediction.posted import moves_alike, subjects_of, with_posted
from advisor.scheduling.pinning import own_profile
from advisor.serving.recommendations import RecommendationCache
from advisor.settings import CLOCK_SKEW, Settings
from advisor.snapshot import ClusterSnapshot
from advisor.store import counters, hosts, instances, models, windows
from advisor.store.counters import Counts
from advisor.store.instances import Pending
from advisor.store.transactions import Transactions
from advisor.telemetry import host_reports
from advisor.validation import misfit
from models.physics.prior import PriorPredictor

# What happened to the inventory since a generation: read by name, and applied to the inventory of that time.

_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class News:
    """Hosts and instances by id, None = deleted; workloads by name, with all that is measured of each now."""

    hosts: Mapping[str, Host | None] = field(default_factory=dict)
    instances: Mapping[str, Instance | None] = field(default_factory=dict)
    workloads: Mapping[str, tuple[WorkloadProfile, ...]] = field(default_factory=dict)

    def with_instances(self, changed: Sequence[Instance]) -> News:
        """With these, read in the same transaction, beside those that were put and deleted."""
        return replace(self, instances={**{instance.id: instance for instance in changed}, **self.instances})

    def applied(self, inventory: Inventory) -> Inventory:
        """The inventory with this done to it; hosts and instances must be ordered by id, workloads by name first."""
        return Inventory(
            _patched(inventory.hosts, attrgetter("id"), {name: _one(host) for name, host in self.hosts.items()}),
            _patched(inventory.instances, attrgetter("id"), {name: _one(it) for name, it in self.instances.items()}),
            _patched(inventory.workloads, attrgetter("name"), self.workloads),
            inventory.observed_at,
        )


def read(connection: Connection, generation: int) -> News | None:
    """What was put and deleted after this generation, as it is now; None = it is no longer known what."""
    touched = counters.changes_since(connection, generation)
    if touched is None:
        return None
    several: dict[str, tuple[WorkloadProfile, ...]] = dict.fromkeys(touched.workloads, ())
    for profile in instances.get_workloads(connection, touched.workloads):
        several[profile.name] += (profile,)
    known = host_reports.with_probed(connection, hosts.get_many(connection, touched.hosts))
    return News(
        {**dict.fromkeys(touched.hosts), **{host.id: host for host in known}},
        {
            **dict.fromkeys(touched.instances),
            **{instance.id: instance for instance in instances.get_many(connection, touched.instances)},
        },
        several,
    )


def _one(item: _Row | None) -> tuple[_Row, ...]:
    return () if item is None else (item,)


def _patched(
    items: tuple[_Row, ...], name: Callable[[_Row], Any], news: Mapping[str, Sequence[_Row]]
) -> tuple[_Row, ...]:
    """Items in the order of their names, with all of each name in the news replaced by the news of it."""
    if not news:
        return items
    now = list(items)
    for key, replacement in news.items():
        start = end = bisect_left(now, key, key=name)
        while end < len(now) and name(now[end]) == key:
            end += 1
        now[start:end] = replacement
    return tuple(now)


T = TypeVar("T", Host, Instance)
MOST_POSTED, MOST_OUTCOMES = 2_000, 8_000  # co-locations that move answers, the newest, and what they have in all
HELD_AGAIN_S = 300.0  # after which they are held against what is known of their instances by then


@dataclass(frozen=True, slots=True)
class CloudView:
    """The cloud at one moment, for as long as `counts` stand still and until `until`.

    `inventory` is as the callers reported it; `snapshot` also has the answers that are still pending. When each host
    was last seen is looked up again at `look_again`. Where `alarms` stand, `measured` are the CPUs that instances count
    as wanting, and `doubted` by how much the intervals on a host are widened, where the model is off there. `own_load`
    are the CPUs that hosts were measured to use themselves, `short` says why hosts are short of memory.
    """

    counts: Counts
    until: datetime
    look_again: datetime
    inventory: Inventory
    pending: tuple[Pending, ...]
    snapshot: ClusterSnapshot
    alarms: tuple[Anomaly, ...] = ()
    measured: Mapping[str, float] = field(default_factory=dict)
    doubted: Mapping[str, float] = field(default_factory=dict)
    own_load: Mapping[str, float] = field(default_factory=dict)
    short: Mapping[str, str] = field(default_factory=dict)

    def holds(self, counts: Counts, now: datetime) -> bool:
        """Whether the cloud is still as in this view."""
        return replace(self.counts, models=counts.models) == counts and now < self.until and not self.is_ahead(now)

    def is_ahead(self, now: datetime) -> bool:
        """Whether the clock was set back since: none of the times in this view says anything now."""
        return now < self.snapshot.taken_at - CLOCK_SKEW

    @property
    def expected(self) -> Inventory:
        """The inventory as it will be once the pending answers are carried out."""
        placed = {instance.id for instance in self.inventory.instances if instance.host}
        coming = {held.placed.id: held.placed for held in self.pending if held.placed.id not in placed}
        staying = tuple(instance for instance in self.inventory.instances if instance.id not in coming)
        expected = replace(
            self.inventory,
            instances=(*staying, *coming.values()),
            workloads=_with_profiles(self.inventory.workloads, self.pending),
        )
        own, short = self.own_load, self.short
        return _as_advised(self.inventory, self.pending, self.measured, own, short).applied(expected)


@dataclass(frozen=True, slots=True)
class _Advised:
    """Hosts and instances that measurements and pending answers change, by id, as they will be."""

    hosts: dict[str, Host]
    instances: dict[str, Instance]

    def applied(self, inventory: Inventory) -> Inventory:
        """The inventory with those of them that it has."""
        if not self.hosts and not self.instances:
            return inventory
        return replace(
            inventory,
            hosts=tuple(self.hosts.get(host.id, host) for host in inventory.hosts),
            instances=tuple(self.instances.get(instance.id, instance) for instance in inventory.instances),
        )


@dataclass(frozen=True, slots=True)
class _Moved:
    """What a look at the database showed: the inventory now and what of it is new (`changed`, None = all), the answers
    that are held, when hosts were last seen (`seen`, None = nothing to look up), and after how long their silence
    counts."""

    inventory: Inventory
    changed: News | None
    held: tuple[Pending, ...]
    seen: Mapping[str, datetime | None] | None
    patience: Mapping[str, float] = field(default_factory=dict)
    doubts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # what is kept of alarms, by host
    own_load: Mapping[str, float] = field(default_factory=dict)  # looked up with `seen`, and so is `short`
    short: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The predictor that answers, at which counters it was chosen, and when. `base` is the same without what was
    posted."""

    models: int
    posted: int
    inventory: int
    base: ActivePredictor
    active: ActivePredictor
    at: datetime

    def holds(self, counts: Counts) -> bool:
        return (self.models, self.posted) == (counts.models, counts.posted)


class SnapshotCache:
    """Holds one CloudView and one ActivePredictor.

    Thread-safe: one thread at a time rebuilds them, and both are swapped whole.
    """

    def __init__(self, transactions: Transactions, settings: Settings) -> None:
        self._transactions = transactions
        self._settings = settings
        self._building = threading.Lock()
        self._building_answers = threading.Lock()
        self._answers: tuple[CloudView, ActivePredictor, RecommendationCache] | None = None
        self._view: CloudView | None = None
        self._chosen: _Chosen | None = None
        self._posted: tuple[PostedColocation, ...] = ()

    def at(self, now: datetime) -> tuple[CloudView, ActivePredictor]:
        """The view and the predictor as the database has them now; StorageUnavailable when it cannot be read."""
        with self._transactions.read() as connection:
            counts = counters.read(connection)
        return self._at(counts, now)  # without the transaction, which must not be silent while a cloud is laid out

    def seen_by(self, connection: Connection, now: datetime) -> tuple[CloudView, ActivePredictor]:
        """The same for who reads more in one transaction; what has moved is read in another one."""
        return self._at(counters.read(connection), now)

    def _at(self, counts: Counts, now: datetime) -> tuple[CloudView, ActivePredictor]:
        view, chosen = self._view, self._chosen
        if view is None or not view.holds(counts, now) or chosen is None or not chosen.holds(counts):
            with self._building:
                view, chosen = self._refresh(now)
        return view, chosen.active

    def answers(self, view: CloudView, chosen: ActivePredictor, now: datetime) -> RecommendationCache:
        """What was answered by this predictor in this view, which holds `now`, and in those before it."""
        with self._building_answers:
            remembered = self._answers
            if remembered is not None and remembered[0] is view and remembered[1] is chosen:
                moment = remembered[2].moment
                moment.seen = max(moment.seen, now)
                return remembered[2]
            if view is not self._view or remembered is None or remembered[1] is not chosen:
                answers_here = RecommendationCache.on(view.snapshot)
            else:
                answers_here = remembered[2].after(view.snapshot)
            if view is self._view:  # whoever is late does not push out what the others use
                self._answers = view, chosen, answers_here
            return answers_here

    def remembered(self) -> tuple[int, int]:
        """Predictions that were found and missed among those remembered, since the predictor was chosen."""
        return self._chosen.active.remembered.counts() if self._chosen else (0, 0)

    def _refresh(self, now: datetime) -> tuple[CloudView, _Chosen]:
        """Read what has moved in one transaction, then lay it out without holding that open."""
        view, chosen = self._view, self._chosen
        if view is not None and view.is_ahead(now):
            view = None
        reserve = timedelta(seconds=self._settings.reserve_s)
        with self._transactions.read() as connection:
            counts = counters.read(connection)
            moved = _read_moved(connection, view, counts, now, reserve, self._settings.memory_stall_percent)
            moved = replace(moved, doubts=windows.load_alarms(connection))
            active = models.active(connection)
            if chosen is None or chosen.posted != counts.posted:
                self._posted = (
                    models.newest_colocations(connection, MOST_POSTED, MOST_OUTCOMES) if counts.posted else ()
                )
        if view is None or not view.holds(counts, now):
            view = self._take(counts, view, moved, now)
        if chosen is None or not chosen.holds(counts) or self._hold_again(chosen, counts, now):
            version = active.version if active else None
            chosen = self._corrected(chosen, counts, version, view, now)
        self._view, self._chosen = view, chosen
        return view, chosen

    def _hold_again(self, chosen: _Chosen, counts: Counts, now: datetime) -> bool:
        """Whether what was posted may say something else by now: its hosts and instances are others, or want others."""
        late = abs((now - chosen.at).total_seconds()) >= HELD_AGAIN_S
        return bool(self._posted) and (late or chosen.inventory != counts.inventory)

    def _corrected(
        self, former: _Chosen | None, counts: Counts, version: str | None, view: CloudView, now: datetime
    ) -> _Chosen:
        """The model in use, moved by what was posted. What it was asked before stays where nothing moves otherwise."""
        same = former is not None and former.models == counts.models
        base = former.base if former is not None and same else self._choose(version)
        predictor = with_posted(base.predictor, self._posted, view.snapshot)
        if former is not None and same and moves_alike(former.active.predictor, predictor):
            active = former.active
        elif predictor is base.predictor:
            active = base
        else:
            active = replace(base, predictor=predictor, remembered=PredictionCache())
            base = replace(base, remembered=PredictionCache())  # what it was asked is not asked again for long
        return _Chosen(counts.models, counts.posted, counts.inventory, base, active, now)

    def _take(self, counts: Counts, former: CloudView | None, moved: _Moved, now: datetime) -> CloudView:
        news, inventory = moved.changed, moved.inventory
        held = _possible(moved.held, inventory)
        workloads_expected = _with_profiles(inventory.workloads, held)
        measured = {name: cpus for doubt in moved.doubts.values() for name, cpus in doubt["counts"].items()}
        kept = former if former is not None and moved.seen is None else moved
        own, short = kept.own_load, kept.short
        advised = _as_advised(inventory, held, measured, own, short)
        coming = [advised.instances.get(place.placed.id, place.placed) for place in held]
        subjects = subjects_of(self._posted, inventory.instances)
        expected = replace(advised.applied(inventory), workloads=workloads_expected)
        if former is None or news is None:
            snapshot = ClusterSnapshot.build(
                expected,
                seen=moved.seen or {},
                pending=coming,
                taken_at=now,
                patience=moved.patience,
                subjects=subjects,
            )
        else:
            were = _as_advised(former.inventory, former.pending, former.measured, former.own_load, former.short)
            others = {
                name for name in advised.hosts.keys() | were.hosts if advised.hosts.get(name) != were.hosts.get(name)
            }
            snapshot = former.snapshot.changed(
                hosts={**news.hosts, **_named(expected.hosts, others | (advised.hosts.keys() & news.hosts.keys()))},
                instances={**news.instances, **_named(expected.instances, advised.instances.keys() | were.instances)},
                workloads=workloads_expected,
                seen=moved.seen or {},
                pending=coming,
                taken_at=now,
                patience=moved.patience,
                subjects=subjects,
            )
        # Samples move no counter while a host is fresh, so its age is looked up again after a tenth of what is allowed.
        shortest = min([self._settings.fresh_s, *moved.patience.values()])
        look_again = now + timedelta(seconds=shortest / 10)
        if former is not None and moved.seen is None:
            look_again = former.look_again
        until = min([look_again, *(place.expires_at for place in held)])
        raised = tuple(alarm for host, doubt in moved.doubts.items() for alarm in anomalies.standing(host, doubt))
        doubted = {host: doubt["wide"] for host, doubt in moved.doubts.items() if doubt["wide"] > 1}
        return CloudView(counts, until, look_again, inventory, held, snapshot, raised, measured, doubted, own, short)

    def _choose(self, version: str | None) -> ActivePredictor:
        if version is None:
            return ActivePredictor(PriorPredictor())
        return predictors.load_or_prior(self._settings.model_dir / version)


def as_pending(recommendation: Recommendation, expires_at: datetime) -> Pending | None:
    """The first candidate of an answer as an instance on its host, None when there is no candidate."""
    if not recommendation.candidates:
        return None
    first = recommendation.candidates[0]
    placed, profile = sequential.there(recommendation), own_profile(recommendation.request)
    driver_cpus = first.mitigation[-1].driver_cpus if first.mitigation else None
    return Pending(recommendation.id, placed, profile, expires_at, first.changes, driver_cpus)


def _possible(held: Sequence[Pending], inventory: Inventory) -> tuple[Pending, ...]:
    """Without answers whose host has meanwhile lost the pCPUs that they were pinned to."""
    by_id = {host.id: host for host in inventory.hosts}
    return tuple(place for place in held if place.host in by_id and misfit(by_id[place.host], [place.placed]) is None)


def _as_advised(
    inventory: Inventory,
    held: Sequence[Pending],
    measured: Mapping[str, float],
    own: Mapping[str, float],
    short: Mapping[str, str],
) -> _Advised:
    """What pending answers change of a host and of its residents; of two about one the later wins.

    Without it a limit that the ladder keeps would look broken already, and the next answer would not mind it. Before
    that instances in `measured` demand what was measured of them, hosts use as much themselves as `own` has, and those
    in `short` have no room for more memory.
    """
    advised = _Advised(_as_measured(inventory.hosts, own, short) if own or short else {}, {})
    for instance in inventory.instances if measured else ():
        if instance.id in measured and instance.host:
            advised.instances[instance.id] = anomalies.counting_as(instance, measured[instance.id])
    if not any(place.changes or place.driver_cpus is not None for place in held):
        return advised
    by_host = {host.id: advised.hosts.get(host.id, host) for host in inventory.hosts}
    placed_by_id = {instance.id: instance for instance in inventory.instances if instance.host}
    instances_by_id = {**{place.placed.id: place.placed for place in held}, **placed_by_id, **advised.instances}
    for pending_answer in sorted(held, key=attrgetter("expires_at", "recommendation")):
        if pending_answer.placed.id in placed_by_id:  # it does not count any more
            continue
        host = by_host[pending_answer.host]
        if pending_answer.driver_cpus is not None and not host.lacks(pending_answer.driver_cpus):
            advised.hosts[host.id] = replace(host, driver_cpus=pending_answer.driver_cpus)
        for name, settings in pending_answer.changes.items():
            if name in instances_by_id and instances_by_id[name].host == host.id:
                changed = replace(instances_by_id[name], settings=settings)
                if misfit(host, [changed]) is None:
                    advised.instances[name] = changed
    return advised


def _as_measured(hosts: Sequence[Host], own: Mapping[str, float], short: Mapping[str, str]) -> dict[str, Host]:
    """The hosts that are other ones by what their agents measured."""
    found: dict[str, Host] = {}
    for host in hosts:
        own_cpus = min(own.get(host.id, host.own_cpus), float(host.pcpus))
        labels = {**host.labels, MEMORY_SHORT: short[host.id]} if host.id in short else host.labels
        if own_cpus != host.own_cpus or labels is not host.labels:
            found[host.id] = replace(host, own_cpus=own_cpus, labels=labels)
    return found


def _named(items: Sequence[T], names: Collection[str]) -> dict[str, T | None]:
    """Those of these names, None = there is none."""
    if not names:
        return {}
    return {**dict.fromkeys(names), **{item.id: item for item in items if item.id in names}}


def _with_profiles(known: Sequence[WorkloadProfile], held: Sequence[Pending]) -> tuple[WorkloadProfile, ...]:
    return (*known, *(place.profile for place in held if place.profile is not None))


def _read_moved(
    connection: Connection,
    view: CloudView | None,
    counts: Counts,
    now: datetime,
    reserve: timedelta,
    stall_percent: float,
) -> _Moved:
    held = instances.load_pending(connection, now, reserve, view.pending if view else ())
    news = None
    if view is not None:
        same = counts.inventory == view.counts.inventory
        news = News() if same else read(connection, view.counts.inventory)
        if news is not None and counts.demand != view.counts.demand:
            news = news.with_instances(instances.measured_since(connection, view.counts.demand))
    if view is None or news is None:
        seen, patience = hosts.sightings(connection, now), hosts.patience(connection)
        own = host_reports.measured_own_load(connection)
        short = host_reports.hosts_short_of_memory(connection, now.timestamp(), stall_percent)
        return _Moved(_load_inventory(connection), None, held, seen, patience, own_load=own, short=short)
    looks = bool(news.hosts) or now >= view.look_again or counts.sightings != view.counts.sightings
    if not looks:
        return _Moved(news.applied(view.inventory), news, held, None)
    seen, patience = hosts.sightings(connection, now), hosts.patience(connection)
    own = host_reports.measured_own_load(connection)
    short = host_reports.hosts_short_of_memory(connection, now.timestamp(), stall_percent)
    return _Moved(news.applied(view.inventory), news, held, seen, patience, own_load=own, short=short)


def _load_inventory(connection: Connection) -> Inventory:
    """Everything, ordered as Python orders names: a database may order them otherwise."""
    return Inventory(
        tuple(sorted(host_reports.with_probed(connection, hosts.load_all(connection)), key=attrgetter("id"))),
        tuple(sorted(instances.load_all(connection), key=attrgetter("id"))),
        tuple(sorted(instances.load_workloads(connection), key=attrgetter("name", "platform"))),
    )
