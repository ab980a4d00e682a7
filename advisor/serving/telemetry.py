"""What a service is told of instances' metrics, and what it knows of them: samples, histories and profiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from advisor.access.audit import Audit
from advisor.domain import Histories, InstanceProfile, WorkloadProfile
from advisor.errors import InvalidInput
from advisor.inventories import writes
from advisor.settings import Settings
from advisor.store import hosts
from advisor.store.transactions import Transactions
from advisor.telemetry import demands, histories, ingest, profiles, promql
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
