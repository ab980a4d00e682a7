"""What a service is told of instances' metrics, and what it knows of them: samples, histories and profiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from advisor.access.audit import Audit
from advisor.domain import Histories, Instance, InstanceProfile, WorkloadProfile
from advisor.errors import InvalidInput
from advisor.inventories import writes
from advisor.settings import Settings
from advisor.store import counters, hosts, instances
from advisor.store.transactions import Transactions
from advisor.telemetry import demands, histories, ingest, monitoring_history, profiles, promql
from advisor.telemetry.monitoring_history import MonitoringHistory
from advisor.telemetry.openstack import gnocchi
from advisor.telemetry.openstack.metric_storage import MetricStorage
from advisor.telemetry.series_store import SeriesStore
from profiler.observed import MetricSample


class DatabaseTelemetry:
    """The TelemetryService over the database; thread-safe. `stored` is called after samples were stored."""

    def __init__(
        self,
        settings: Settings,
        transactions: Transactions,
        audit: Audit,
        clock: Callable[[], datetime],
        stored: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._read, self._write = transactions.read, transactions.write
        self._audit = audit
        self._clock = clock
        self._stored = stored

    def ingest(self, samples: Sequence[MetricSample], *, only: str | None = None) -> Mapping[str, Any]:
        if len(samples) > self._settings.max_batch:
            message = f"{len(samples)} samples in one batch, at most {self._settings.max_batch} are taken; send fewer"
            raise InvalidInput(message, field="samples")
        with self._write() as connection:
            ingested = ingest.ingest(connection, samples, now=self._clock(), fresh_s=self._settings.fresh_s, only=only)
            counts = {name: getattr(ingested, name) for name in ("accepted", "duplicate", "dropped")}
            self._audit.record(connection, "samples.add", **(counts | {"dropped": len(counts["dropped"])}))
        if ingested.news:
            with self._write() as connection:
                demands.tell(connection, ingested.news)
        self._stored()
        return counts

    def take_history(
        self,
        preset: str,
        *,
        since: str,
        cloud: str | None = None,
        dry_run: bool = False,
        progress: Callable[[int, int], None] = lambda _done, _of: None,
    ) -> tuple[MonitoringHistory, tuple[str, ...]]:
        now = self._clock()
        with self._read() as connection:
            there = tuple(instances.load_all(connection))
        chosen, store = self._watched(preset, cloud, there)
        found = monitoring_history.read(
            store, chosen, there, since_s=profiles.parse_since(since), now=now, progress=progress
        )
        if dry_run:
            with self._read() as connection:
                return found, tuple(sorted(demands.news_of_history(connection, found.demands)))
        with self._write() as connection:
            counters.hold(connection, "inventory")
            news = demands.news_of_history(connection, found.demands)
            if news:
                demands.tell(connection, news)
            counts = {"instances": len(found.demands), "changed": len(news), "unknown": len(found.unknown)}
            self._audit.record(connection, "history.take", preset=chosen.name, **counts)
        return found, tuple(sorted(news))

    def _watched(
        self, preset: str, cloud: str | None, there: Sequence[Instance]
    ) -> tuple[monitoring_history.Preset, monitoring_history.WatchedSeries]:
        """What is asked for, and who is asked: Gnocchi or Aetos of an OpenStack cloud, or the store of the settings."""
        if preset == gnocchi.PRESET.name:
            return gnocchi.PRESET, gnocchi.Gnocchi.of(cloud, there)
        chosen = monitoring_history.load_preset(preset)
        return chosen, SeriesStore.of(self._settings) if cloud is None else MetricStorage.of(cloud)

    def profile(self, instance_id: str, *, since: str = "24h") -> InstanceProfile:
        now, elsewhere = self._clock(), None
        if self._settings.prometheus_url is not None:
            elsewhere = promql.read(self._settings, instance_id, since=since, now=now)
        with self._read() as connection:
            stored = profiles.read_stored(connection, instance_id, since=since, now=now, elsewhere=elsewhere)
        return profiles.profile_stored(stored)

    def save_profile(
        self, profile: InstanceProfile, name: str, *, phase: int | None, anyway: bool = False, extrapolate: bool = False
    ) -> WorkloadProfile:
        with self._write() as connection:
            host = hosts.get(connection, profile.host)
            workload = profiles.workload_of(
                profile,
                phase,
                name,
                platform=host.platform if host else "",
                anyway=anyway,
                extrapolate=extrapolate,
            )
            writes.put_workload(connection, workload)
            self._audit.record_change(connection, "workload.put", [name, profile.instance])
        return workload

    def histories(self, *, host: str | None = None, instance: str | None = None, since: str = "1h") -> Histories:
        now = self._clock()
        if self._settings.prometheus_url is not None:
            return histories.scraped(self._settings, instance, since=since, now=now)
        with self._read() as connection:
            return histories.stored(connection, host, instance, since=since, now=now)
