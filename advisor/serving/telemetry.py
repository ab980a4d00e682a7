"""What a service receives of instances' metrics, and what it knows of them: samples, histories and profiles."""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection

from advisor import deadline
from advisor.access.audit import Audit, actor
from advisor.domain import (
    Histories,
    Instance,
    InstanceObtained,
    InstanceProfile,
    Page,
    ProbeReport,
    SlowingHere,
    WorkloadProfile,
)
from advisor.errors import InvalidInput, NotFound, SeriesUnavailable
from advisor.inventories import writes
from advisor.inventories.systems import SourceOptions, check_installed, keeps_history, open_history
from advisor.prediction.active import LRUCache
from advisor.settings import CLOCK_SKEW, Settings
from advisor.store import counters, hosts, instances, probes, rollups
from advisor.store.counters import Counts
from advisor.store.engine import is_alone
from advisor.store.rollups import BUCKET_S
from advisor.store.schema import chunks
from advisor.store.transactions import Together, Transactions
from advisor.telemetry import (
    antagonists,
    demands,
    histories,
    host_reports,
    ingest,
    monitoring_history,
    profiles,
    series_store,
)
from advisor.telemetry.demands import News
from advisor.telemetry.ingest import Checked, Ingested
from advisor.telemetry.layouts import Flat, Layouts, SentWindow
from advisor.telemetry.monitoring_history import MonitoringHistory
from advisor.telemetry.series_store import SeriesStore
from profiler.observed import MetricSample

HOSTS_KEPT = 100  # whose result is kept until the next window is over


class _Sent(NamedTuple):
    """Windows of one request, and the context of its caller, who is in the audit log."""

    flats: Sequence[Flat]
    context: contextvars.Context


class TelemetryService:
    """What was measured of hosts and instances; thread-safe. `stored` is called after samples were stored."""

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
        self._samples = transactions.samples
        self._audit = audit
        self._clock = clock
        self._stored = stored
        self._layouts = Layouts()
        self._together = Together(self._store_quick)
        self._slowing: LRUCache[tuple[object, ...], SlowingHere] = LRUCache(HOSTS_KEPT)

    def ingest(self, samples: Sequence[MetricSample], *, only: str | None = None) -> Mapping[str, Any]:
        """Store samples: `accepted`, `duplicate`, and `dropped` as (position, reason) of each sample not taken.

        `only` is the one host that the sender may speak for, None = any.
        """
        return self._ingest(samples, only)[0]

    def ingest_windows(self, windows: Sequence[SentWindow], *, only: str | None = None) -> Mapping[str, Any]:
        """The same of whole windows of hosts; positions count their values in the order of `SentWindow.samples`."""
        number = sum(window.number for window in windows)
        if number <= self._settings.max_batch and (counts := self._quick(windows, only)) is not None:
            return counts
        of_window = [window.samples() for window in windows]
        counts, checked, seen = self._ingest([sample for samples in of_window for sample in samples], only)
        if not counts["dropped"] and checked.lasting:
            self._keep(windows, of_window, list(checked.taken.values()), only, seen)
        return counts

    def _quick(self, windows: Sequence[SentWindow], only: str | None) -> Mapping[str, Any] | None:
        """Windows whose layouts are all known; None = they go the long way."""
        flats = [window.flat(only) for window in windows]
        if self._samples.elsewhere:
            end_s = self._clock().timestamp() + CLOCK_SKEW.total_seconds()
            with self._read() as connection:
                begin_s = rollups.rolled_until(connection)
                self._layouts.follow(connection)
                found = self._layouts.find(flats, begin_s, end_s)
            if not found or not all(self._samples.send_pack(one.layout.series, one.time_s, one.sent) for one in found):
                return None
        deadline.check()
        return self._together(_Sent(flats, contextvars.copy_context()))

    def _store_quick(self, sent: Sequence[_Sent]) -> Sequence[Mapping[str, Any] | None]:
        """Windows of several requests in one transaction, with what each is answered."""
        now = self._clock()
        end_s = now.timestamp() + CLOCK_SKEW.total_seconds()
        # one caller's time may be up, the others' is not
        with deadline.within(math.inf), self._write() as connection:
            begin_s = rollups.rolled_until(connection)
            self._layouts.follow(connection)
            found = [self._layouts.find(one.flats, begin_s, end_s) or [] for one in sent]
            if not any(found):
                return [None] * len(sent)
            accepted, news = ingest.store_quick(
                connection,
                [window for windows in found for window in windows],
                now=now,
                fresh_s=self._settings.fresh_s,
                stall_percent=self._settings.memory_stall_percent,
                samples=self._samples,
            )
            numbers, said = iter(accepted), []
            for one, windows in zip(sent, found, strict=True):
                new = sum(islice(numbers, len(windows)))
                ingested = Ingested(new, sum(len(window.values) for window in windows) - new, (), {})
                said.append(one.context.run(self._counted, connection, ingested) if windows else None)
            if is_alone(connection) and news:  # no other writer could wait for what this one holds
                demands.tell(connection, news)
                news = {}
        self._publish(news)
        return said

    def _keep(
        self,
        windows: Sequence[SentWindow],
        of_window: Sequence[Sequence[MetricSample]],
        taken: Sequence[MetricSample],
        only: str | None,
        seen: Counts,
    ) -> None:
        """Know the layouts of windows that were taken whole."""
        begin = 0
        with self._write() as connection:
            for window, sent in zip(windows, of_window, strict=True):
                if not sent:  # it has no value
                    continue
                layout = ingest.kept(connection, sent, taken[begin : begin + len(sent)])
                begin += len(sent)
                if layout is not None:
                    self._layouts.keep(window.flat(only).key, layout, seen)

    def _counted(self, connection: Connection, ingested: Ingested) -> Mapping[str, Any]:
        counts = {name: getattr(ingested, name) for name in ("accepted", "duplicate", "dropped")}
        self._audit.record(connection, "samples.add", **(counts | {"dropped": len(counts["dropped"])}))
        return counts

    def _publish(self, news: News) -> None:
        if news:
            with deadline.within(math.inf), self._write() as connection:
                demands.tell(connection, news)
        self._stored()

    def _ingest(self, samples: Sequence[MetricSample], only: str | None) -> tuple[Mapping[str, Any], Checked, Counts]:
        if len(samples) > self._settings.max_batch:
            message = f"{len(samples)} samples in one batch, at most {self._settings.max_batch} are taken; send fewer"
            raise InvalidInput(message, field="samples")
        now, sent = self._clock(), self._sent(samples, only) if self._samples.elsewhere else None
        with self._write() as connection:
            seen = counters.read(connection)
            checked = sent or ingest.check(connection, samples, now=now, only=only)
            ingested = ingest.store(
                connection,
                checked,
                now=now,
                fresh_s=self._settings.fresh_s,
                stall_percent=self._settings.memory_stall_percent,
                samples=self._samples,
            )
            counts = self._counted(connection, ingested)
        self._publish(ingested.news)
        return counts, checked, seen

    def _sent(self, samples: Sequence[MetricSample], only: str | None) -> Checked:
        """Samples that the store elsewhere has taken: no transaction is open meanwhile, and none learns from others."""
        with self._read() as connection:
            checked = ingest.check(connection, samples, now=self._clock(), only=only, samples=self._samples)
        positions = list(checked.taken)
        refused = self._samples.send(list(checked.taken.values()))
        dropped = {positions[at]: reason for at, reason in refused.items()}
        taken = {at: sample for at, sample in checked.taken.items() if at not in dropped}
        return Checked(taken, {**checked.dropped, **dropped}, lasting=checked.lasting)

    def take_probes(self, reports: Sequence[ProbeReport], *, only: str | None = None) -> Mapping[str, Any]:
        """Keep the newest result of each probe, and each one about two instances of a host as a co-location that moves
        answers: `accepted`, `older`, and `dropped` as (position, reason) of the others.

        `only` is the one host that the sender may speak for, None = any.
        """
        with self._write() as connection:
            taken = host_reports.take_probes(connection, reports, now=self._clock(), only=only, sender=actor())
            counts = asdict(taken)
            self._audit.record(connection, "probes.add", **(counts | {"dropped": len(taken.dropped)}))
        self._stored()
        return counts

    def probes(
        self,
        *,
        host: str | None = None,
        instance: str | None = None,
        probe: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[ProbeReport]:
        """The newest result of every probe, or those of one host, one instance, one kind of probe."""
        with self._read() as connection:
            page = probes.list_page(connection, host=host, instance=instance, probe=probe, cursor=cursor, limit=limit)
            return replace(page, items=host_reports.with_pair_faults(connection, page.items))

    def take_history(
        self,
        source: str,
        *,
        since: str,
        options: SourceOptions | None = None,
        dry_run: bool = False,
        progress: Callable[[int, int], None] = lambda _done, _of: None,
    ) -> tuple[MonitoringHistory, tuple[str, ...]]:
        """Learn demands from the store that `prometheus_url` names, or from what a system keeps of its own guests; what
        was found, and whose demand that changes.

        `source` is a preset's name or file, or a system with a history (`options` say which one). With a preset,
        `options.cloud` is the cloud whose Prometheus is asked in place of `prometheus_url`.
        `progress` is called with the parts that were read, and of how many. SeriesUnavailable where the other side
        does not answer.
        """
        since_s = profiles.parse_since(since)
        if keeps_history(source):
            history = self._own_history(source, options or SourceOptions(), since_s, progress)
        else:
            instances_here, now = self._instances(), self._clock()
            chosen, store = self._watched(source, options or SourceOptions(), instances_here)
            history = monitoring_history.read(
                store, chosen, instances_here, since_s=since_s, now=now, progress=progress
            )
        if dry_run:
            with self._read() as connection:
                return history, tuple(sorted(demands.news_of_history(connection, history.demands)))
        changed: list[str] = []
        for part in chunks(sorted(history.demands)):  # others write in between
            with self._write() as connection:
                counters.hold(connection, "inventory")
                news = demands.news_of_history(connection, {name: history.demands[name] for name in part})
                if news:
                    demands.tell(connection, news)
            changed += news
        with self._write() as connection:
            counts = {"instances": len(history.demands), "changed": len(changed), "unknown": len(history.unknown)}
            self._audit.record(connection, "history.take", source=Path(source).stem, **counts)
        return history, tuple(changed)

    def _own_history(
        self, source: str, options: SourceOptions, since_s: float, progress: Callable[[int, int], None]
    ) -> MonitoringHistory:
        """What a system keeps of its guests that are in the inventory; SeriesUnavailable where it lists none."""
        from advisor.inventories.calls import CallError  # requests takes its time to import

        system = open_history(source, options)
        try:
            listed = system.guests()
        except ValueError as error:
            raise InvalidInput(str(error), field="source") from error
        except CallError as error:
            raise SeriesUnavailable(str(error)) from error
        instances_by_id = {instance.id: instance for instance in self._instances() if instance.id in listed}
        unknown = sorted(listed.keys() - instances_by_id.keys())
        found = system.histories({name: listed[name] for name in instances_by_id}, since_s, self._clock().timestamp())
        return monitoring_history.demands_of(found, instances_by_id, unknown=unknown, progress=progress)

    def _watched(
        self, source: str, options: SourceOptions, there: Sequence[Instance]
    ) -> tuple[monitoring_history.Preset, monitoring_history.WatchedSeries]:
        """What is asked for, and who is asked: a service of a cloud, its Prometheus, or the store of the settings."""
        if options.ca_file or options.fingerprint:
            raise InvalidInput(
                "--ca-file and --fingerprint go with a system that keeps a history of its guests",
                field="source",
            )
        check_installed(source)
        if monitoring_history.keeps_metrics(source):
            return monitoring_history.opened_history(source, options.cloud, there)
        chosen = monitoring_history.load_preset(source)
        if options.cloud:
            return chosen, monitoring_history.opened_prometheus(options.cloud, there)
        return chosen, SeriesStore.of(self._settings)

    def _instances(self) -> Sequence[Instance]:
        with self._read() as connection:
            return list(instances.load_all(connection))

    def profile(self, instance_id: str, *, since: str = "24h") -> InstanceProfile:
        """What an instance does, phase by phase, by its samples of the last `since` (such as 90m, 24h, 7d).

        They are in the database, or in the store that `prometheus_url` names. NotFound where there are none,
        InvalidInput where there are more windows than are looked at.
        """
        now, elsewhere = self._clock(), None
        if self._settings.only_scraped:
            elsewhere = series_store.read(self._settings, instance_id, since=since, now=now)
        with self._read() as connection:
            stored = profiles.read_stored(
                connection, instance_id, since=since, now=now, elsewhere=elsewhere, samples=self._samples
            )
        return profiles.profile_stored(stored)

    def save_profile(
        self, profile: InstanceProfile, name: str, *, phase: int | None, anyway: bool = False, extrapolate: bool = False
    ) -> WorkloadProfile:
        """Store a phase as a workload on the platform of its host; InvalidInput when it is not enough for one.

        No instance changes: callers say themselves which instances run this workload.
        """
        with self._write() as connection:
            host = hosts.get(connection, profile.host)
            workload = profiles.workload_of(
                profile, phase, name, platform=host.platform if host else "", anyway=anyway, extrapolate=extrapolate
            )
            writes.put_workload(connection, workload)
            self._audit.record_change(connection, "workload.put", [name, profile.instance])
        return workload

    def slowing(self, host_id: str, *, since: str = "24h") -> SlowingHere:
        """Which instances slow which on a host as it was measured in the last `since` (such as 90m, 24h, 7d).

        NotFound when there is no such host, InvalidInput when `since` is no such time.
        """
        now = self._clock()
        with self._read() as connection:
            if hosts.get(connection, host_id) is None:
                raise NotFound(f"there is no host {host_id}")
            if self._settings.only_scraped:
                return SlowingHere(host_id, now, now, 0, (), (), elsewhere=True)
            residents = instances.on_hosts(connection, [host_id])
            key = (host_id, since, now.timestamp() // BUCKET_S, tuple(resident.id for resident in residents))
            slowing = self._slowing.find(key)
            if slowing is None:
                try:
                    slowing = antagonists.of_host(
                        connection, host_id, residents, since=since, now=now, samples=self._samples
                    )
                except SeriesUnavailable:
                    return SlowingHere(host_id, now, now, 0, (), (), elsewhere=True)
                self._slowing.keep(key, slowing)
        return slowing

    def obtained(self, instance_id: str, *, since: str = "24h") -> InstanceObtained:
        """What an instance obtained in the last `since` (such as 90m, 24h, 7d): CPU time, and its stalls.

        NotFound when there is no such instance, InvalidInput when `since` is no such time.
        """
        now = self._clock()
        if self._settings.only_scraped:
            return histories.scraped_obtained(self._settings, instance_id, since=since, now=now)
        with self._read() as connection:
            return histories.stored_obtained(connection, instance_id, since=since, now=now, samples=self._samples)

    def histories(self, *, host: str | None = None, instance: str | None = None, since: str = "1h") -> Histories:
        """The eight metrics of every instance on a host, or of one instance, in the last `since` (such as 90m, 24h,
        7d).

        Empty where nothing was measured, or where the store of `prometheus_url` cannot be asked, which `missing` says;
        InvalidInput when `since` is no such time.
        """
        now = self._clock()
        if self._settings.only_scraped:
            return histories.scraped(self._settings, instance, since=since, now=now)
        with self._read() as connection:
            return histories.stored(connection, host, instance, since=since, now=now, samples=self._samples)
