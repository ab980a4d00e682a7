"""In the background: which instance came to which host, whether advice was asked for, and how they and their hosts
fare since."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta

from advisor.background_pass import BackgroundPass
from advisor.lifecycle import arrivals, window_checks
from advisor.lifecycle.arrivals import Fared, PredictedOnArrival
from advisor.serving.snapshot_cache import CloudView, SnapshotCache
from advisor.settings import Settings
from advisor.store import recommendations, stays
from advisor.store.held import Watch
from advisor.store.rollups import BUCKET_S
from advisor.store.stays import Stay
from advisor.store.transactions import Transactions

EVERY_S = 60.0
HOSTS_AT_ONCE = 20  # of which a window is looked at in one pass
MOST_AT_ONCE = 2_000  # arrivals: more at once are another inventory, not placements


class ArrivalWatch(BackgroundPass):
    """One per process; of several on one database whoever is first keeps an arrival or a window."""

    def __init__(
        self, settings: Settings, cache: SnapshotCache, transactions: Transactions, clock: Callable[[], datetime]
    ) -> None:
        super().__init__("arrivals", "arrivals on hosts were not examined", first_s=EVERY_S, every_s=EVERY_S)
        self._fresh_s = settings.fresh_s
        self._cache = cache
        self._read, self._write = transactions.read, transactions.write
        self._samples = transactions.samples
        self._clock = clock
        self._seen_at: int | None = None  # generation of the inventory at the last look

    def run(self, *, pausing: bool = False) -> int:
        """Note who came and went since the last look, then look at a window of hosts to which an instance came; returns
        of how many hosts."""
        now = self._clock()
        view, _ = self._cache.at(now)
        if self._seen_at != view.counts.inventory:
            self._note(view, now)
            self._seen_at = view.counts.inventory
        return self._look(view, now, pausing=pausing)

    def _note(self, view: CloudView, now: datetime) -> None:
        placed = {instance.id: instance.host or "" for instance in view.inventory.instances if instance.host}
        with self._read() as connection:
            seats = stays.seats(connection)
            hosts_known = stays.hosts_known(connection)
        came = [name for name, host in placed.items() if seats.get(name) != host]
        if not came and seats.keys() <= placed.keys():
            return
        begun = self._begun(view, came, hosts_known, now)
        with self._write() as connection:
            seats = stays.change(connection)
            stays.end(connection, [name for name, host in seats.items() if placed.get(name) != host], now.timestamp())
            new = [stay for stay in begun if seats.get(stay.instance) != stay.host]
            since_s = now.timestamp() - arrivals.BACK_S
            stays.begin(connection, [stay for stay in new if not stays.reopen(connection, stay, since_s)])

    def _begun(self, view: CloudView, came: Sequence[str], hosts_known: Collection[str], now: datetime) -> list[Stay]:
        """What is to be kept of those who came. Of who was there before anybody looked, or came with its host, only
        that it is there."""
        snapshot, now_s = view.snapshot, now.timestamp()
        new_vms = [snapshot.names.placed[name] for name in came]
        if not hosts_known or len(came) > MOST_AT_ONCE:
            return [Stay(new_vm.id, stays.BEFORE, new_vm.host or "") for new_vm in new_vms]
        with self._read() as connection:
            heads = stays.asked_about(connection, came, now - timedelta(seconds=arrivals.ASKED_S))
            answers = {name: recommendations.get(connection, head.id) for name, head in heads.items()}
        begun = []
        for new_vm in new_vms:
            answer = answers.get(new_vm.id)
            if answer is None and new_vm.host not in hosts_known:
                begun.append(Stay(new_vm.id, stays.BEFORE, new_vm.host or ""))
                continue
            predicted = arrivals.on_arrival(snapshot, new_vm, answer, self._fresh_s)
            named = None if answer is None else answer.id
            begun.append(Stay(new_vm.id, now_s, new_vm.host or "", None, now_s, named, predicted))
        return begun

    def _look(self, view: CloudView, now: datetime, *, pausing: bool) -> int:
        now_s = now.timestamp()
        ends_s = (now_s - window_checks.SETTLED_S) // BUCKET_S * BUCKET_S
        with self._read() as connection:
            host_ids = stays.hosts_to_look_at(connection, now_s - arrivals.WATCHED_S, ends_s, HOSTS_AT_ONCE)
        for host in host_ids:
            started = time.monotonic()
            self._look_at(view, host, now_s - arrivals.WATCHED_S, ends_s)
            if self._rest(started, pausing=pausing):
                break
        return len(host_ids)

    def _look_at(self, view: CloudView, host: str, since_s: float, ends_s: float) -> None:
        """Let every instance that came to this host fare one window more."""
        at = view.snapshot.index(host)
        with self._read() as connection:
            due = stays.to_look_at(connection, host, since_s, ends_s)
            window = None
            if at is not None:
                scene = window_checks.scene_at(view.snapshot, at)
                watch = Watch(host, ends_s, "", {})
                window = window_checks.measured(connection, watch, scene, self._samples)
        fared = []
        for stay in due:
            so_far = Fared.of(stay.fared)
            if window is not None and stay.predicted is not None:
                so_far.add(stay.instance, PredictedOnArrival.of(stay.predicted), window)
            fared.append((stay, asdict(so_far)))
        with self._write() as connection:
            for stay, now in fared:
                stays.looked(connection, stay, ends_s, now)

    def _pass(self) -> None:
        self.run(pausing=True)
