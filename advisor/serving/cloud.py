"""The cloud as it is shown: overview, hosts in detail, and scores of VMs over time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import numpy as np
from sqlalchemy import Connection

from advisor.access.audit import Audit, acting
from advisor.background import BackgroundPass
from advisor.domain import (
    LOW_WINDOWS,
    STOPPED_AT,
    Anomaly,
    Checkup,
    CloudGlance,
    CloudNow,
    CloudScores,
    HostDetail,
    HostMemory,
    HostNow,
    Inventory,
    LowScore,
    ResidentNow,
    ScorePoint,
    ScoreSummary,
    VmScore,
    VmScorePoint,
    codec,
)
from advisor.lifecycle.monitoring import Monitor
from advisor.scheduling import scoring
from advisor.serving import overview
from advisor.serving.overview import Vitals
from advisor.serving.snapshot_cache import SnapshotCache
from advisor.settings import Settings
from advisor.store import scores as store
from advisor.store import scores as vm_store
from advisor.store.rollups import BUCKET_S
from advisor.store.scores import CLOUD, Delivery, Mark
from advisor.store.transactions import Transactions
from advisor.telemetry import host_reports
from advisor.telemetry.profiles import parse_since
from models.arrays import Floats

# The scores of all VMs as they stand: measured where a window is fresh, else predicted; and kept for every window.

FRESH_S = 900.0  # three windows: what was measured before them says nothing about now
AGAIN_S = 60.0  # after which measurements are read again
MOST_POINTS = 300  # of a history
_AT_ONCE = 2_000  # VMs whose scores are kept in one transaction
_MOST_LOGGED = 100  # alarms that begin or end with one window
_UNMEASURED = Delivery("", 0.0, None, None)


class ScoreBook:
    """Holds the last CloudScores; thread-safe. They are made once for each CloudNow, and at most once in AGAIN_S."""

    def __init__(self) -> None:
        self._making = threading.Lock()
        self._last: tuple[CloudNow, CloudScores] | None = None

    def scores(self, connection: Connection, cloud: CloudNow, now: datetime) -> CloudScores:
        """The scores of a cloud at `now`, which may be as old as AGAIN_S."""
        with self._making:
            last = self._last
            if last is None or last[0] is not cloud or not 0 <= (now - last[1].time).total_seconds() < AGAIN_S:
                found = store.deliveries_since(connection, now.timestamp() - FRESH_S)
                last = self._last = cloud, scored(cloud, found, now)
            return last[1]


def scored(cloud: CloudNow, found: Mapping[str, Delivery], now: datetime) -> CloudScores:
    """The score of every VM that runs where it is; `found` is what was measured lately, by instance."""
    there = [(host, resident) for host in cloud.hosts for resident in host.residents if _runs(resident)]
    deliveries = [_where_it_is(found.get(resident.instance.id, _UNMEASURED), host) for host, resident in there]
    factors = scoring.score_factors(
        np.array([resident.expected for _, resident in there]),
        _floats([resident.delivered for _, resident in there]),
        _floats([one.delivered for one in deliveries]),
        _floats([one.stalled for one in deliveries]),
    )
    values = factors.scores
    measured = np.array([one.delivered is not None for one in deliveries], dtype=bool)
    counts = Counter(host.host.id for host, _ in there)
    ends = np.cumsum([counts[host.host.id] for host in cloud.hosts]).tolist()
    begins = [0, *ends][: len(cloud.hosts)]
    return CloudScores(
        now,
        scoring.score_summary(values, measured),
        {
            host.host.id: scoring.score_summary(values[begin:end], measured[begin:end])
            for host, begin, end in zip(cloud.hosts, begins, ends, strict=True)
        },
        {
            resident.instance.id: VmScore(
                resident.instance.id,
                host.host.id,
                value,
                "measured" if is_measured else "predicted",
                _known(cpu),
                devices,
                _known(memory),
            )
            for (host, resident), value, is_measured, cpu, devices, memory in zip(
                there,
                values.tolist(),
                measured.tolist(),
                factors.cpu.tolist(),
                factors.devices.tolist(),
                factors.memory.tolist(),
                strict=True,
            )
        },
    )


def history(connection: Connection, host: str, begin_s: float, end_s: float) -> tuple[ScorePoint, ...]:
    """What is kept of a host, "" = of the cloud: where there are more windows than MOST_POINTS, of each equal step the
    window with the lowest mean."""
    windows = store.history(connection, host, begin_s)
    step_s = max((end_s - begin_s) / MOST_POINTS, BUCKET_S)
    lowest: dict[float, tuple[float, ScoreSummary]] = {}
    for time_s, of in windows:
        step = time_s // step_s
        before = lowest.get(step)
        if before is None or (of.mean or 0.0) < (before[1].mean or 0.0):
            lowest[step] = time_s, of
    return tuple(
        ScorePoint(**codec.columns(of), time=datetime.fromtimestamp(time_s, UTC)) for time_s, of in lowest.values()
    )


def vm_history(connection: Connection, instance: str, begin_s: float, end_s: float) -> tuple[VmScorePoint, ...]:
    """What is kept of one VM, of each equal step the lowest as in `history`."""
    step_s = max((end_s - begin_s) / MOST_POINTS, BUCKET_S)
    lowest: dict[float, tuple[float, Mark]] = {}
    for time_s, mark in vm_store.history_of_vm(connection, instance, begin_s, end_s):
        before = lowest.get(time_s // step_s)
        if before is None or mark[0] < before[1][0]:
            lowest[time_s // step_s] = time_s, mark
    return tuple(
        VmScorePoint(datetime.fromtimestamp(time_s, UTC), score, "measured" if measured else "predicted")
        for time_s, (score, measured) in lowest.values()
    )


def low(connection: Connection, now: CloudScores, below: float) -> tuple[LowScore, ...]:
    """VMs whose score is measured and below this one now and was in LOW_WINDOWS windows, the lowest first."""
    candidates = {name: of for name, of in now.instances.items() if of.source == "measured" and of.score < below}
    if not candidates:
        return ()
    kept_s = now.time.timestamp() // BUCKET_S * BUCKET_S
    for ended_s in (kept_s, kept_s - BUCKET_S):  # a window is kept within half a one after its end
        lasting = vm_store.lasting(connection, candidates, ended_s, below)
        found = [
            LowScore(name, of.host, of.score, below, lasting[name], datetime.fromtimestamp(ended_s, UTC))
            for name, of in candidates.items()
            if lasting.get(name, 0) >= LOW_WINDOWS
        ]
        if found:
            return tuple(sorted(found, key=lambda one: (one.score, one.instance)))
    return ()


AHEAD_S = 5.0  # between two passes at least


class _Ahead(BackgroundPass):
    """Predicts a large cloud beside those who look at it; `last` is the state that was made last, None = none yet."""

    def __init__(self, make: Callable[[], tuple[CloudNow, CloudScores]]) -> None:
        super().__init__("predicted-ahead", "the cloud was not predicted ahead", first_s=0.0, every_s=AHEAD_S)
        self._make = make
        self.last: tuple[CloudNow | None, CloudScores | None] = None, None

    def _pass(self) -> None:
        self.last = self._make()


class ScoreKeeper(BackgroundPass):
    """Keeps the scores of each window of five minutes; of several processes on one database whoever is first does.

    A VM whose measured score was below `below` in LOW_WINDOWS windows is an alarm in the audit log, as its end is.
    """

    def __init__(
        self,
        scores: Callable[[], CloudScores],
        transactions: Transactions,
        clock: Callable[[], datetime],
        audit: Audit,
        below: float,
    ) -> None:
        self._audit, self._below = audit, below
        super().__init__("scores", "the scores of a window were not kept", first_s=AGAIN_S, every_s=BUCKET_S / 2)
        self._scores = scores
        self._read, self._write = transactions.read, transactions.write
        self._clock = clock

    def run(self) -> bool:
        """Keep the scores of the window that ended last, unless they are; returns whether it did."""
        ended_s = self._clock().timestamp() // BUCKET_S * BUCKET_S
        with self._read() as connection:
            if store.has_window(connection, ended_s):
                return False
        now = self._scores()
        if not now.cloud.instances:
            return False
        with self._write() as connection:
            store.keep(connection, ended_s, {store.CLOUD: now.cloud, **now.hosts})
        marks = [(name, (of.score, of.source == "measured")) for name, of in now.instances.items()]
        for start in range(0, len(marks), _AT_ONCE):  # others write between the parts
            with self._write() as connection:
                vm_store.put_vms(connection, ended_s, dict(marks[start : start + _AT_ONCE]))
        self._log_alarms(now, ended_s)
        return True

    def _log_alarms(self, now: CloudScores, ended_s: float) -> None:
        """Alarms that began or ended with this window; both follow from what is kept, whichever process kept it."""
        with self._read() as connection:
            here = [name for name, of in now.instances.items() if of.source == "measured" and of.score < self._below]
            lasting = vm_store.lasting(connection, here, ended_s, self._below)
            before_s = ended_s - BUCKET_S
            former = [name for name in vm_store.low_at(connection, before_s, self._below) if not lasting.get(name)]
            lasted = vm_store.lasting(connection, former, before_s, self._below)
        raised = sorted(name for name, windows in lasting.items() if windows == LOW_WINDOWS)
        ended = sorted(name for name, windows in lasted.items() if windows >= LOW_WINDOWS)
        if raised or ended:
            with self._write() as connection, acting("service", ""):
                for name in raised[:_MOST_LOGGED]:
                    self._log(connection, "alarm.raise", name, now.instances.get(name), ended_s)
                for name in ended[:_MOST_LOGGED]:
                    self._log(connection, "alarm.end", name, now.instances.get(name), ended_s)

    def _log(
        self,
        connection: Connection,
        operation: Literal["alarm.raise", "alarm.end"],
        name: str,
        of: VmScore | None,
        ended_s: float,
    ) -> None:
        until = datetime.fromtimestamp(ended_s, UTC)
        score = "unknown" if of is None else f"{of.score:.0f}"
        why = f"The score of {name} is {score}; below {self._below:.0f} in {LOW_WINDOWS} windows is an alarm."
        self._audit.record(
            connection,
            operation,
            [name, of.host if of else ""],
            since=(until - timedelta(seconds=LOW_WINDOWS * BUCKET_S)).isoformat(),
            raised=until.isoformat(),
            why=why,
            score=None if of is None else round(of.score, 1),
        )

    def _pass(self) -> None:
        self.run()


def _runs(resident: ResidentNow) -> bool:
    return not resident.pending and STOPPED_AT not in resident.instance.labels


def _where_it_is(delivery: Delivery, host: HostNow) -> Delivery:
    """What was measured on another host says nothing here."""
    return delivery if delivery.host == host.host.id else _UNMEASURED


def _floats(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _known(part: float) -> float | None:
    return None if np.isnan(part) else part


class CloudService:
    """The cloud as predictions see it now, and the state of the service itself; thread-safe.

    `backend` is the database's name, as /readyz says it.
    """

    def __init__(
        self,
        settings: Settings,
        cache: SnapshotCache,
        monitor: Monitor,
        transactions: Transactions,
        clock: Callable[[], datetime],
        backend: str,
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._monitor = monitor
        self._read, self._samples = transactions.read, transactions.samples
        self._clock = clock
        self._backend = backend
        self._overview = overview.Overview(settings.fresh_s)
        self._scores = ScoreBook()
        self._ahead = _Ahead(lambda: (self.now(), self.scores()))

    def close(self) -> None:
        """Finish what is being predicted in the background."""
        self._ahead.close()

    def clock(self) -> datetime:
        """What time it is for the service."""
        return self._clock()

    def inventory(self) -> Inventory:
        """The whole inventory as it is now, without the answers that are pending."""
        return self._cache.at(self._clock())[0].inventory

    def now(self) -> CloudNow:
        """Every host with what is predicted of every instance on it, pending answers included, and its load."""
        return self._overview.now(*self._cache.at(self._clock()))

    def glance(self) -> CloudGlance:
        """The cloud as it is now, or where that takes more than a second, as it was when it was last predicted whole; a
        pass in the background predicts it anew meanwhile."""
        view, active = self._cache.at(self._clock())
        if self._overview.is_quick(view, active):
            return CloudGlance(self.now(), self.scores())
        self._ahead.nudge()
        return CloudGlance(*self._ahead.last, self._overview.part_done(view))

    def look_ahead(self) -> None:
        """Predict a large cloud in the background before its first page is asked for."""
        view, active = self._cache.at(self._clock())
        if not self._overview.is_quick(view, active):
            self._ahead.nudge()

    def scores(self) -> CloudScores:
        """The scores of all VMs that run, at most a minute old: measured where a window is fresh, else predicted."""
        now = self._clock()
        cloud = self._overview.now(*self._cache.at(now))
        with self._read() as connection:
            return self._scores.scores(connection, cloud, now)

    def memory(self) -> Mapping[str, HostMemory]:
        """The state of each host's memory as its agent measured it in the last quarter of an hour, by host."""
        now = self._clock()
        with self._read() as connection:
            return host_reports.measured_memory(connection, now.timestamp())

    def score_history(self, host_id: str | None = None, *, since: str = "24h") -> tuple[ScorePoint, ...]:
        """The scores of a host, None = of the cloud, in windows of five minutes of the last `since` (such as 90m, 24h).

        Empty where none were kept; InvalidInput when `since` is no such time.
        """
        end_s = self._clock().timestamp()
        with self._read() as connection:
            return history(connection, host_id or CLOUD, end_s - parse_since(since), end_s)

    def vm_score_history(self, instance_id: str, *, since: str = "24h") -> tuple[VmScorePoint, ...]:
        """The scores of one VM in windows of the last `since`, empty where none were kept; InvalidInput as above."""
        end_s = self._clock().timestamp()
        with self._read() as connection:
            return vm_history(connection, instance_id, end_s - parse_since(since), end_s)

    def low_scores(self) -> tuple[LowScore, ...]:
        """VMs whose measured score is low now and was in several windows until now, the lowest first."""
        now = self.scores()
        with self._read() as connection:
            return low(connection, now, self._settings.score_alarm)

    def host(self, host_id: str) -> HostDetail:
        """One host more closely: what happens to each resident, and which instances slow which by how much.

        NotFound when there is none such.
        """
        view, active = self._cache.at(self._clock())
        detail = overview.detail(view, active, self._overview.now(view, active), host_id)
        with self._read() as connection:
            factors = self._monitor.factors(connection, active.predictor.version, [detail.now.host], view.doubted)
        return overview.widened(detail, factors)

    def alarms(self) -> tuple[Anomaly, ...]:
        """Who gets less of the CPU time that it demands than was predicted, by host and instance: alarms that stand."""
        return self._cache.at(self._clock())[0].alarms

    def ready(self) -> Mapping[str, Any]:
        """What answers now, as database, generation, model, degraded, snapshot_age_s, hosts."""
        now = self._clock()
        view, active = self._cache.at(now)
        return {
            "database": self._backend,
            "generation": view.counts.inventory,
            "model": active.predictor.version,
            "degraded": active.degraded,
            "snapshot_age_s": max((now - view.snapshot.taken_at).total_seconds(), 0.0),
            "hosts": len(view.inventory.hosts),
        }

    def checkup(self) -> Checkup:
        """What is wrong now, by what was measured and predicted, and how much of the cloud was looked at."""
        now = self._clock()
        with self._read() as connection:
            view, active = self._cache.seen_by(connection, now)
            scored = self._scores.scores(connection, self._overview.now(view, active), now)
            return overview.take_checkup(
                connection, view, scored, self._settings, degraded=active.degraded, now=now, samples=self._samples
            )

    def vitals(self) -> Vitals:
        """What monitoring asks of the state of the service."""
        now = self._clock()
        view, active = self._cache.at(now)
        return overview.take_vitals(view, active, now=now, fresh_s=self._settings.fresh_s)

    def remembered(self) -> tuple[int, int]:
        """Predictions found and missed among the remembered ones of the active model; asks no database."""
        return self._cache.remembered()
