"""What was reported of answers afterwards, and of co-locations: kept, and held against what the models predict."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal

from sqlalchemy import Connection

from advisor.access.audit import Audit, acting, actor
from advisor.background import BackgroundPass
from advisor.domain import (
    AdviceWorth,
    Anomaly,
    AnsweredAs,
    Page,
    QualityReport,
    Recommendation,
    RecommendationOutcome,
    Scene,
)
from advisor.errors import NotFound
from advisor.lifecycle import advice_worth, anomalies, arrivals, outcome_checks, window_checks
from advisor.lifecycle.anomalies import AlarmUpdate
from advisor.lifecycle.arrivals import Fared, PredictedOnArrival, with_alternatives
from advisor.lifecycle.monitoring import Monitor, shadows
from advisor.lifecycle.outcome_checks import OutcomeScorer, as_colocation, run_of, source_of
from advisor.lifecycle.registry import ModelRegistry
from advisor.lifecycle.window_checks import MeasuredWindow, WindowRows
from advisor.placement.requests import is_of_now
from advisor.serving.snapshot_cache import CloudView, SnapshotCache
from advisor.settings import Settings
from advisor.store import answers, counters, models, predictions, stays, windows
from advisor.store import answers as recommendations
from advisor.store.answers import RecordedOutcome
from advisor.store.predictions import Watch
from advisor.store.rollups import BUCKET_S
from advisor.store.stays import Stay
from advisor.store.transactions import Transactions, found_soon
from advisor.telemetry import antagonists, ingest
from advisor.telemetry.profiles import parse_since
from advisor.validation import check_value
from models.data.window_dataset import SharedWindow
from profiler.observed import Colocation


class OutcomeService:
    """What was observed after answers and of co-locations, and how well predictions held; thread-safe."""

    def __init__(
        self,
        cache: SnapshotCache,
        monitor: Monitor,
        models: ModelRegistry,
        transactions: Transactions,
        audit: Audit,
        clock: Callable[[], datetime],
    ) -> None:
        self._cache = cache
        self._monitor = monitor
        self._models = models
        self._read, self._write = transactions.read, transactions.write
        self._audit = audit
        self._clock = clock

    def record(self, recommendation_id: str, host: str, ratios: Mapping[str, float]) -> None:
        """Store where the instance went and the throughput ratio of each instance there; the latest report wins.

        It is compared with the answer, and with what the shadow and the prior predict for the same scene. Answers after
        this one are moved by it as by a co-location.
        """
        check_value(host, "host")
        check_value(ratios, "ratios")
        answer, former = self._read_both(recommendation_id)
        if former is not None and (former.host, former.ratios) == (host, ratios):
            return
        now = self._clock()
        view, scorers = self._scorers(now)
        outcome = RecordedOutcome(host, ratios, now)
        checked = self._monitor.check_placement(answer, outcome, view.inventory, scorers)
        colocation, run = as_colocation(answer, host, ratios, view.inventory), run_of(recommendation_id)
        with self._write() as connection:
            counters.hold(connection, "posted")
            if not answers.set_outcome(connection, recommendation_id, outcome):
                raise NotFound(f"there is no recommendation {recommendation_id}")
            self._audit.record(connection, "outcome.put", [recommendation_id, host])
            self._monitor.keep(connection, checked, instead_of=source_of(recommendation_id))
            known = models.forget_colocations(connection, run)
            if colocation is not None:
                models.add_colocation(connection, colocation, now, actor())
            if known or colocation is not None:
                counters.bump(connection, "posted")

    def record_colocation(self, colocation: Colocation) -> bool:
        """True when it is new, False when it was sent before; Conflict when it was sent with other values.

        What the models in use, in shadow and the prior predict for it is stored beside it, where its host is known;
        answers after this one are moved by it.
        """
        ingest.check_colocation(colocation)
        now = self._clock()
        view, scorers = self._scorers(now)
        checked = self._monitor.check_colocation(colocation, view.inventory, scorers, now)
        with self._write() as connection:
            counters.hold(connection, "posted")
            new = ingest.record(connection, colocation, now=now, sender=actor())
            if new:
                counters.bump(connection, "posted")
                self._monitor.keep(connection, checked)
                self._audit.record(connection, "colocation.add", [colocation.run])
            return new

    def get(self, recommendation_id: str) -> RecommendationOutcome:
        """One answer with what was reported of it; NotFound when there is none such."""
        return outcome_checks.outcome_beside(*self._read_both(recommendation_id))

    def page(
        self, *, which: AnsweredAs = "all", cursor: str | None = None, limit: int = 100
    ) -> Page[RecommendationOutcome]:
        """Answers with what was reported of them, newest first: all, real ones (no dry runs), or those reported of."""
        with self._read() as connection:
            return outcome_checks.outcomes_page(connection, which, cursor=cursor, limit=limit)

    def quality(self, version: str | None = None, *, window: int | None = None) -> QualityReport:
        """How a model's predictions held recently, by default the active one's; NotFound when there is none such.

        `window` is how many rows each group has at most, by default `quality_window`.
        """
        if version is None:
            version = self._cache.at(self._clock())[1].predictor.version
        else:
            version = self._models.get(version).version
        with self._read() as connection:
            return self._monitor.quality(connection, version, window)

    def worth(self, *, since: str = "7d") -> AdviceWorth:
        """What the advice of so long ago until now was worth; InvalidInput for a time that is none."""
        now = self._clock()
        begin = datetime.fromtimestamp(max(now.timestamp() - parse_since(since), 0.0), UTC)
        with self._read() as connection:
            came, seats = stays.since(connection, begin.timestamp()), stays.seats(connection)
            asked = stays.asked(connection, begin)
        report = advice_worth.worth(came, asked, seats, begin, now)
        view, active = self._cache.at(now)
        placements = with_alternatives(report.placements, view.snapshot, active)
        return advice_worth.with_placements(report, placements)

    def _read_both(self, recommendation_id: str) -> tuple[Recommendation, RecordedOutcome | None]:
        def find() -> tuple[Recommendation, RecordedOutcome | None] | None:
            with self._read() as connection:
                answer = answers.get(connection, recommendation_id)
                return None if answer is None else (answer, answers.outcome(connection, recommendation_id))

        found = found_soon(find, is_new=is_of_now(recommendation_id, self._clock()))
        if found is None:
            raise NotFound(f"there is no recommendation {recommendation_id}")
        return found

    def _scorers(self, now: datetime) -> tuple[CloudView, Sequence[OutcomeScorer]]:
        view, active = self._cache.at(now)
        with self._read() as connection:
            tried = shadows(connection)
        return view, self._monitor.judges(tried, active)


# Background passes that score predictions: every window as it ends, and every instance that came.

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
            due = predictions.due(connection, now.timestamp() - window_checks.SETTLED_S, MOST_WAITING)
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
            if not predictions.take(connection, watch):
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
        update = anomalies.after_window(
            windows.get_alarm(connection, watch.host),
            scene,
            window,
            rows,
            watch.predicted,
            anomalies.Correction(judge, view.snapshot.workloads),
            partial(antagonists.waited_more, connection, self._samples, self._clock().timestamp(), watch.host),
        )
        if update.state is None:
            windows.delete_alarm(connection, watch.host)
        else:
            windows.put_alarm(connection, watch.host, watch.ends_s, update.state)
        self._log(connection, "alarm.raise", update.raised)
        self._log(connection, "alarm.end", update.ended)
        return update

    def _end_silent(self, now: datetime) -> None:
        """End alarms of hosts of which nothing was held for long."""
        before_s = now.timestamp() - anomalies.SILENT_S
        with self._read() as connection:
            silent = windows.silent_alarms(connection, before_s)
        if not silent:
            return
        ended: list[Anomaly] = []
        with self._write() as connection:
            for host, state in windows.silent_alarms(connection, before_s).items():
                ended += anomalies.standing(host, state)
                windows.delete_alarm(connection, host)
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
            if predictions.watched(connection, ends_s):
                return
            doubted = windows.load_alarms(connection).keys()
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
                predictions.watch(connection, watches)

    def _pass(self) -> None:
        self.run(pausing=True)


def _scene(view: CloudView, at: int) -> Scene:
    """The host at a position with the demand that would be expected if nothing had contradicted."""
    scene = window_checks.scene_at(view.snapshot, at)
    if not any(instance.id in view.measured for instance in scene.instances):
        return scene
    known = {instance.id: instance for instance in view.inventory.instances if instance.host == scene.host.id}
    return window_checks.unadjusted(view.snapshot, scene, known)


# In the background: which instance came to which host, whether advice was asked for, and how they and their hosts
# fare since.

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
        """What is to be kept of those that came. Of those there before the service looked, or came with its host, only
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
