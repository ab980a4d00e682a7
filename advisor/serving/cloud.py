"""The cloud as a service sees it now: every instance on every host, one host closely, and the state of the service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from advisor.domain import (
    Anomaly,
    Checkup,
    CloudNow,
    CloudScores,
    HostDetail,
    HostMemory,
    Inventory,
    LowScore,
    ScorePoint,
    VmScorePoint,
)
from advisor.lifecycle.monitoring import Monitor
from advisor.serving import checkup, overview, scores, vitals
from advisor.serving.snapshot_cache import SnapshotCache
from advisor.serving.vitals import Vitals
from advisor.settings import Settings
from advisor.store.scores import CLOUD
from advisor.store.transactions import Transactions
from advisor.telemetry import host_memory
from advisor.telemetry.profiles import parse_since


class CloudService:
    """The cloud as predictions see it now, and the state of the service itself; thread-safe.

    `backend` is the database's name, as /readyz tells it.
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
        self._scores = scores.ScoreBook()

    def clock(self) -> datetime:
        """What time it is for the service."""
        return self._clock()

    def inventory(self) -> Inventory:
        """The whole inventory as it is now, without the answers that are pending."""
        return self._cache.at(self._clock())[0].inventory

    def now(self) -> CloudNow:
        """Every host with what is predicted of every instance on it, pending answers included, and its load."""
        return self._overview.now(*self._cache.at(self._clock()))

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
            return host_memory.measured(connection, now.timestamp())

    def score_history(self, host_id: str | None = None, *, since: str = "24h") -> tuple[ScorePoint, ...]:
        """The scores of a host, None = of the cloud, in windows of five minutes of the last `since` (such as 90m, 24h).

        Empty where none were kept; InvalidInput when `since` is no such time.
        """
        end_s = self._clock().timestamp()
        with self._read() as connection:
            return scores.history(connection, host_id or CLOUD, end_s - parse_since(since), end_s)

    def vm_score_history(self, instance_id: str, *, since: str = "24h") -> tuple[VmScorePoint, ...]:
        """The scores of one VM in windows of the last `since`, empty where none were kept; InvalidInput as above."""
        end_s = self._clock().timestamp()
        with self._read() as connection:
            return scores.vm_history(connection, instance_id, end_s - parse_since(since), end_s)

    def low_scores(self) -> tuple[LowScore, ...]:
        """VMs whose measured score is low now and was in several windows until now, the lowest first."""
        now = self.scores()
        with self._read() as connection:
            return scores.low(connection, now, self._settings.score_alarm)

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
        """Who gets less of the CPU time that it wants than was predicted, by host and instance: alarms that stand."""
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
            return checkup.take(
                connection, view, scored, self._settings, degraded=active.degraded, now=now, samples=self._samples
            )

    def vitals(self) -> Vitals:
        """What monitoring wants to know of the state of the service."""
        now = self._clock()
        view, active = self._cache.at(now)
        return vitals.take(view, active, now=now, fresh_s=self._settings.fresh_s)

    def remembered(self) -> tuple[int, int]:
        """Predictions found and missed among the remembered ones of the active model; asks no database."""
        return self._cache.remembered()
