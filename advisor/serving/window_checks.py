"""In the background: windows are predicted before they begin, and compared when their samples are there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Literal

from sqlalchemy import Connection

from advisor.access.audit import Audit, acting
from advisor.background_pass import BackgroundPass
from advisor.domain import Anomaly, Scene
from advisor.lifecycle import contradictions, window_checks
from advisor.lifecycle.contradictions import AlarmUpdate
from advisor.lifecycle.monitoring import Monitor, shadows
from advisor.lifecycle.outcome_checks import OutcomeScorer
from advisor.lifecycle.window_checks import MeasuredWindow, WindowRows
from advisor.serving.snapshot_cache import CloudView, SnapshotCache
from advisor.settings import Settings
from advisor.store import alarms, counters, held, windows
from advisor.store.held import Watch
from advisor.store.rollups import BUCKET_S
from advisor.store.transactions import Transactions
from advisor.telemetry import antagonists
from models.data.window_dataset import SharedWindow

EVERY_S = 60.0
MOST_WAITING = 5 * window_checks.HOSTS_AT_ONCE  # looked at in one pass, whose samples may be on their way


class WindowChecks(BackgroundPass):
    """One per process; of several on one database whoever is first counts a window. In a minute at most HOSTS_AT_ONCE
    windows are compared and as many predicted, and after each the thread rests as long as it took."""

    def __init__(
        self,
        settings: Settings,
        cache: SnapshotCache,
        monitor: Monitor,
        transactions: Transactions,
        clock: Callable[[], datetime],
        audit: Audit,
    ) -> None:
        failed = "windows were not held against predictions"
        super().__init__("window-checks", failed, first_s=EVERY_S, every_s=EVERY_S)
        self._fresh_s = settings.fresh_s
        self._cache = cache
        self._monitor = monitor
        self._read, self._write = transactions.read, transactions.write
        self._samples = transactions.samples
        self._clock = clock
        self._audit = audit

    def run(self, *, pausing: bool = False) -> int:
        """Hold what is due, then tell what is expected of the next window; returns how many windows were held."""
        now = self._clock()
        view, active = self._cache.at(now)
        with self._read() as connection:
            tried = shadows(connection)
            due = held.due(connection, now.timestamp() - window_checks.SETTLED_S, MOST_WAITING)
        judges = self._monitor.judges(tried, active)
        number = 0
        for watch in due:
            if number == window_checks.HOSTS_AT_ONCE:
                return number
            started = time.monotonic()
            number += self._hold(watch, view, judges, now)
            if self._rest(started, pausing=pausing):
                return number
        self._end_silent(now)
        view, _ = self._cache.at(now)
        self._tell(view, judges, now, pausing=pausing)
        return number

    def _hold(self, watch: Watch, view: CloudView, judges: Sequence[OutcomeScorer], now: datetime) -> bool:
        """Whether a window was held; one of which nothing came yet is left for later, one that says nothing is gone."""
        at = view.snapshot.index(watch.host)
        scene = None if at is None else _scene(view, at)
        window: MeasuredWindow | None = None
        rows: tuple[WindowRows, ...] = ()
        shared: SharedWindow | None = None
        if scene is not None and window_checks.fingerprint(scene) == watch.scene:
            with self._read() as connection:
                window = window_checks.measured(connection, watch, scene, self._samples)
            if window is None and now.timestamp() < watch.ends_s + window_checks.GIVEN_UP_S:
                return False
            if window is not None:
                shared = window_checks.shared_window(watch, scene, window)
                rows = window_checks.held_against(watch, scene, window, judges, view.snapshot.workloads)
        update = AlarmUpdate(None)
        with self._write() as connection:
            if not held.take(connection, watch):
                return False
            self._monitor.keep_windows(connection, rows)
            if rows and shared is not None:
                windows.keep(connection, shared)
            if scene is not None and window is not None and rows:
                update = self._look_for_anomaly(connection, watch, view, scene, window, rows, judges)
        self._tell_others(update)
        return bool(rows)

    def _look_for_anomaly(
        self,
        connection: Connection,
        watch: Watch,
        view: CloudView,
        scene: Scene,
        window: MeasuredWindow,
        rows: Sequence[WindowRows],
        judges: Sequence[OutcomeScorer],
    ) -> AlarmUpdate:
        """Keep what this window says against its forecast; alarms that begin and end are in the audit log."""
        judge = next((judge for judge in judges if judge.role == "active"), None)
        update = contradictions.after_window(
            alarms.get(connection, watch.host),
            scene,
            window,
            rows,
            watch.predicted,
            contradictions.Correction(judge, view.snapshot.workloads),
            partial(antagonists.waited_more, connection, self._samples, self._clock().timestamp(), watch.host),
        )
        if update.state is None:
            alarms.delete(connection, watch.host)
        else:
            alarms.put(connection, watch.host, watch.ends_s, update.state)
        self._log(connection, "alarm.raise", update.raised)
        self._log(connection, "alarm.end", update.ended)
        return update

    def _end_silent(self, now: datetime) -> None:
        """End alarms of hosts of which nothing was held for long."""
        before_s = now.timestamp() - contradictions.SILENT_S
        with self._read() as connection:
            silent = alarms.silent(connection, before_s)
        if not silent:
            return
        ended: list[Anomaly] = []
        with self._write() as connection:
            for host, state in alarms.silent(connection, before_s).items():
                ended += contradictions.standing(host, state)
                alarms.delete(connection, host)
            self._log(connection, "alarm.end", ended)
        self._tell_others(AlarmUpdate(None, differs=bool(ended)))

    def _log(
        self, connection: Connection, operation: Literal["alarm.raise", "alarm.end"], changed: Sequence[Anomaly]
    ) -> None:
        with acting("service", ""):
            for alarm in changed:
                about = [alarm.instance, alarm.host, *([alarm.antagonist] if alarm.antagonist else [])]
                detail = {"since": alarm.since.isoformat(), "raised": alarm.raised.isoformat(), "why": alarm.text}
                self._audit.record(connection, operation, about, **detail)

    def _tell_others(self, update: AlarmUpdate) -> None:
        """Let every process lay out the cloud anew; in a transaction of its own, for counters are locked first."""
        if update.differs:
            with self._write() as connection:
                counters.bump(connection, "demand")

    def _tell(self, view: CloudView, judges: Sequence[OutcomeScorer], now: datetime, *, pausing: bool) -> None:
        ends_s = window_checks.next_window(now)
        with self._read() as connection:
            if held.watched(connection, ends_s):
                return
            doubted = alarms.load_all(connection).keys()
            chosen = window_checks.worth_watching(view.snapshot, ends_s, self._fresh_s, doubted)
            hosts = [view.snapshot.hosts[at] for at in chosen]
            version = next((judge.predictor.version for judge in judges if judge.role == "active"), "")
            factors = self._monitor.seen_factors(connection, version, hosts)
        watches = []
        for at, host in zip(chosen, hosts, strict=True):
            started = time.monotonic()
            scene = _scene(view, at)
            watches.append(window_checks.predicted_before(view.snapshot, scene, judges, ends_s, factors[host.id]))
            if self._rest(started, pausing=pausing):
                return
        if watches and self._clock().timestamp() <= ends_s - BUCKET_S:  # else it was not predicted before
            with self._write() as connection:
                held.watch(connection, watches)

    def _pass(self) -> None:
        self.run(pausing=True)


def _scene(view: CloudView, at: int) -> Scene:
    """The host at a position with the demand that would be expected if nothing had contradicted."""
    scene = window_checks.scene_at(view.snapshot, at)
    if not any(instance.id in view.measured for instance in scene.instances):
        return scene
    known = {instance.id: instance for instance in view.inventory.instances if instance.host == scene.host.id}
    return window_checks.unadjusted(view.snapshot, scene, known)
