"""What answers right now: the snapshot and the predictor, renewed when the database's counters have moved."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter

from sqlalchemy import Connection

from advisor import news, predictors
from advisor.domain import Candidate, Instance, Inventory, IsolationSettings, Recommendation, WorkloadProfile
from advisor.news import News
from advisor.predictors import Chosen
from advisor.settings import Settings
from advisor.snapshot import ClusterSnapshot
from advisor.store import counters, hosts, instances, models, pending, workloads
from advisor.store.counters import Counts
from advisor.store.engine import Database
from advisor.store.pending import Pending
from advisor.validation import misfit
from models.prior import PriorPredictor


@dataclass(frozen=True, slots=True)
class View:
    """The cloud at one moment, for as long as `counts` stand still and until `until`.

    `inventory` is as the callers reported it; `snapshot` also has the answers that are still pending. When each host
    was last seen is looked up again at `look_again`.
    """

    counts: Counts
    until: datetime
    look_again: datetime
    inventory: Inventory
    pending: tuple[Pending, ...]
    snapshot: ClusterSnapshot

    def holds(self, counts: Counts, now: datetime) -> bool:
        """Whether the cloud is still as in this view."""
        return replace(self.counts, models=counts.models) == counts and now < self.until

    @property
    def expected(self) -> Inventory:
        """The inventory as it will be once the pending answers are carried out."""
        placed = {instance.id for instance in self.inventory.instances if instance.host}
        coming = {held.placed.id: held.placed for held in self.pending if held.placed.id not in placed}
        staying = tuple(one for one in self.inventory.instances if one.id not in coming)
        return replace(
            self.inventory,
            instances=(*staying, *coming.values()),
            workloads=_with_profiles(self.inventory.workloads, self.pending),
        )


@dataclass(frozen=True, slots=True)
class _Moved:
    """What a look at the database told: the inventory now and what of it is new (`told`, None = all), the answers that
    are held, and when hosts were last seen (`seen`, None = nothing to look up)."""

    inventory: Inventory
    told: News | None
    held: tuple[Pending, ...]
    seen: Mapping[str, datetime] | None


class Current:
    """Holds one View and one Chosen; thread-safe: both are swapped whole, and rebuilt by one thread at a time."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._building = threading.Lock()
        self._view: View | None = None
        self._chosen: tuple[int, Chosen] | None = None  # with the counter that it was chosen at

    def at(self, now: datetime) -> tuple[View, Chosen]:
        """The view and the predictor as the database has them now; StorageUnavailable when it cannot be read."""
        with self._database.read() as connection:
            counts = counters.read(connection)
        view, chosen = self._view, self._chosen
        if view is None or not view.holds(counts, now) or chosen is None or chosen[0] != counts.models:
            with self._building:
                view, chosen = self._refresh(now)
        return view, chosen[1]

    def _refresh(self, now: datetime) -> tuple[View, tuple[int, Chosen]]:
        """Read what has moved in one transaction, then lay it out without holding that open."""
        view, chosen = self._view, self._chosen
        with self._database.read() as connection:
            counts = counters.read(connection)
            moved = _read_moved(connection, view, counts, now)
            active = models.active(connection)
        if view is None or not view.holds(counts, now):
            view = self._take(counts, view, moved, now)
        if chosen is None or chosen[0] != counts.models:
            chosen = counts.models, self._choose(active.version if active else None)
        self._view, self._chosen = view, chosen
        return view, chosen

    def _take(self, counts: Counts, former: View | None, moved: _Moved, now: datetime) -> View:
        told, inventory = moved.told, moved.inventory
        held = _possible(moved.held, inventory)
        known, coming = _with_profiles(inventory.workloads, held), [one.placed for one in held]
        if former is None or told is None:
            everything = replace(inventory, workloads=known)
            snapshot = ClusterSnapshot.build(everything, seen=moved.seen or {}, pending=coming, taken_at=now)
        else:
            snapshot = former.snapshot.changed(
                hosts=told.hosts,
                instances=told.instances,
                workloads=known,
                seen=moved.seen or {},
                pending=coming,
                taken_at=now,
            )
        # Samples move no counter while a host is fresh, so its age is looked up again after a tenth of what is allowed.
        look_again = now + timedelta(seconds=self._settings.fresh_s / 10)
        if former is not None and moved.seen is None:
            look_again = former.look_again
        until = min([look_again, *(one.expires_at for one in held)])
        return View(counts, until, look_again, inventory, held, snapshot)

    def _choose(self, version: str | None) -> Chosen:
        if version is None:
            return Chosen(PriorPredictor())
        return predictors.load_or_prior(self._settings.model_dir / version)


def as_pending(recommendation: Recommendation, expires_at: datetime) -> Pending | None:
    """The first candidate of an answer as an instance on its host, None when there is no candidate."""
    if not recommendation.candidates:
        return None
    first = recommendation.candidates[0]
    asked = recommendation.request.instance
    profile = recommendation.request.profile
    if profile is not None and profile.known:
        # No id holds a blank, so this name hides no workload that anybody put by name.
        profile = replace(profile, name=f"pending {asked.id}", platform="")
        asked = replace(asked, workload=profile.name)
    else:
        profile = None
    placed = replace(asked, host=first.host, settings=settings_there(asked, first))
    return Pending(recommendation.id, placed, profile, expires_at)


def settings_there(asked: Instance, first: Candidate) -> IsolationSettings:
    """What the instance will run under: the advised settings, and its own where nothing is advised."""
    advised, own = first.isolation, asked.settings
    return IsolationSettings(
        pinning=first.pinning or advised.pinning or own.pinning,
        cap_percent=advised.cap_percent if advised.cap_percent is not None else own.cap_percent,
        weight=advised.weight if advised.weight is not None else own.weight,
        network=advised.network if advised.network is not None else own.network,
        disk_limit_mb_s=advised.disk_limit_mb_s if advised.disk_limit_mb_s is not None else own.disk_limit_mb_s,
    )


def _possible(held: Sequence[Pending], inventory: Inventory) -> tuple[Pending, ...]:
    """Without answers whose host has meanwhile lost the pCPUs that they were pinned to."""
    by_id = {host.id: host for host in inventory.hosts}
    return tuple(one for one in held if one.host in by_id and misfit(by_id[one.host], [one.placed]) is None)


def _with_profiles(known: Sequence[WorkloadProfile], held: Sequence[Pending]) -> tuple[WorkloadProfile, ...]:
    return (*known, *(one.profile for one in held if one.profile is not None))


def _read_moved(connection: Connection, view: View | None, counts: Counts, now: datetime) -> _Moved:
    held = pending.load_all(connection, now)
    told = None
    if view is not None:
        same = counts.inventory == view.counts.inventory
        told = News() if same else news.read(connection, view.counts.inventory)
    if view is None or told is None:
        return _Moved(_load_inventory(connection), None, held, hosts.sightings(connection))
    looks = bool(told.hosts) or now >= view.look_again or counts.sightings != view.counts.sightings
    seen = hosts.sightings(connection) if looks else None
    return _Moved(told.applied(view.inventory), told, held, seen)


def _load_inventory(connection: Connection) -> Inventory:
    """Everything, ordered as Python orders names: a database may order them otherwise."""
    return Inventory(
        tuple(sorted(hosts.load_all(connection), key=attrgetter("id"))),
        tuple(sorted(instances.load_all(connection), key=attrgetter("id"))),
        tuple(sorted(workloads.load_all(connection), key=attrgetter("name", "platform"))),
    )
