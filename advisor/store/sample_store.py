"""The seam to samples of windows: what is written and read of them, whichever store keeps them.

`StoredSamples` keeps them in the database. Another store, such as `telemetry.remote_samples`, takes what agents push
before the transaction in which the service learns from it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import sqlalchemy as sa

from advisor.domain import Usage
from advisor.store import demands, predictions, rollups, samples
from advisor.store.demands import Means
from advisor.store.packs import Values
from advisor.store.rollups import WaitSums
from models.profiling.windows import Readings
from profiler.observed import MetricSample

Metrics = Sequence[tuple[str, str]]  # scope, name
Series = Mapping[Any, Any]  # a store's own name of a series → what the caller knows it by


@dataclass(frozen=True, slots=True)
class HostWindow:
    """One window of a host's instances: those whose CPU use was ever measured there lately, how many samples of it each
    has in this window, and the means of their metrics."""

    ever: Collection[str]
    counts: Mapping[str, int]
    means: Mapping[str, Mapping[str, float]]


class SampleStore(Protocol):
    """Samples of windows; thread-safe. `connection` is the caller's transaction on the database.

    Times are in seconds since the epoch. Each raises SeriesUnavailable where samples are kept elsewhere and that store
    does not answer.
    """

    elsewhere: bool  # samples are not in the database

    def send(self, taken: Sequence[MetricSample]) -> Mapping[int, str]:
        """Hand samples over to a store elsewhere, before any transaction; by position, why one was refused."""
        ...

    def add(self, connection: sa.Connection, taken: Sequence[MetricSample]) -> int:
        """Keep what is learned from; returns how many samples are new, as far as the database knows."""
        ...

    def add_packs(self, connection: sa.Connection, coming: Sequence[samples.Pack]) -> list[int]:
        """The same, of each pack, of series that are known and whose names `send_pack` was given."""
        ...

    def send_pack(self, series: Sequence[samples.SeriesKey], time_s: float, values: Values) -> bool:
        """As `send`, of one time; False = it was not taken whole, and is to be sent with `send`."""
        ...

    def learned(self, connection: sa.Connection, until: Mapping[str, float]) -> None:
        """By host: windows that end up to then were learned, and are not asked for again by `windows`."""
        ...

    def metric_names(self, connection: sa.Connection, hosts: Iterable[str]) -> dict[str, set[str]]:
        """As `samples.metric_names`."""
        ...

    def series_of(
        self, connection: sa.Connection, hosts: Iterable[str], ids: Iterable[str], metrics: Sequence[str]
    ) -> Series:
        """Of instances on these hosts → instance and metric; for `windows` and `first_after`."""
        ...

    def windows(
        self, connection: sa.Connection, of: Series, begin_s: float, end_s: float, hosts: Collection[str]
    ) -> Means:
        """As `demands.windows`."""
        ...

    def first_after(self, connection: sa.Connection, of: Series, since_s: float) -> float | None:
        """As `demands.first_after`."""
        ...

    def busy(
        self, connection: sa.Connection, host: str, begin_s: float, end_s: float
    ) -> Mapping[str, tuple[float, int]]:
        """As `samples.busy`."""
        ...

    def host_window(
        self, connection: sa.Connection, host: str, metrics: Sequence[str], begin_s: float, end_s: float
    ) -> HostWindow:
        """A window of all instances on a host."""
        ...

    def around(
        self, connection: sa.Connection, instance: str, since_s: float, now_s: float, whole_s: float
    ) -> Readings:
        """What a profile is made of: one by one where samples span at most `whole_s`, else means of five minutes."""
        ...

    def of_host(self, connection: sa.Connection, host: str, instances: Sequence[str], metrics: Metrics) -> Series:
        """As `histories.of_host`; for `means`."""
        ...

    def of_instance(self, connection: sa.Connection, instance: str, hosts: Sequence[str], metrics: Metrics) -> Series:
        """As `histories.of_instance`; for `means`."""
        ...

    def means(
        self, connection: sa.Connection, of: Series, begin_s: float, end_s: float, step_s: float
    ) -> dict[Any, rollups.Means]:
        """As `histories.means`."""
        ...

    def wait_sums(
        self, connection: sa.Connection, host: str, instances: Sequence[str], since_s: float, now_s: float
    ) -> tuple[WaitSums, ...]:
        """As `waits.sums`."""
        ...

    def usage(
        self, connection: sa.Connection, instances: Sequence[str], since_s: float, now_s: float
    ) -> Mapping[str, Usage]:
        """As `samples.usage`."""
        ...

    def memory(
        self, connection: sa.Connection, instances: Sequence[str], since_s: float, now_s: float
    ) -> Mapping[str, tuple[float | None, float | None]]:
        """As `samples.memory`."""
        ...

    def last_measured(self, connection: sa.Connection) -> Mapping[str, float]:
        """As `samples.last_measured`."""
        ...

    def run_and_wait(
        self, connection: sa.Connection, since_s: float, now_s: float
    ) -> Mapping[tuple[str, str], Mapping[str, float]]:
        """As `samples.run_and_wait`."""
        ...


class StoredSamples:
    """Samples in the database, SQLite or PostgreSQL: a pack for each host and time, and means of what is older."""

    elsewhere = False

    def send(self, taken: Sequence[MetricSample]) -> Mapping[int, str]:  # noqa: ARG002 - `add` stores them
        return {}

    def add(self, connection: sa.Connection, taken: Sequence[MetricSample]) -> int:
        return samples.add(connection, taken)

    def add_packs(self, connection: sa.Connection, coming: Sequence[samples.Pack]) -> list[int]:
        return samples.add_packs(connection, coming)

    def send_pack(self, series: Sequence[samples.SeriesKey], time_s: float, values: Values) -> bool:  # noqa: ARG002
        return True

    def learned(self, connection: sa.Connection, until: Mapping[str, float]) -> None:
        """Nothing: retention rolls up what is old."""

    def metric_names(self, connection: sa.Connection, hosts: Iterable[str]) -> dict[str, set[str]]:
        return samples.metric_names(connection, hosts)

    def series_of(
        self, connection: sa.Connection, hosts: Iterable[str], ids: Iterable[str], metrics: Sequence[str]
    ) -> Series:
        return demands.series_of(connection, hosts, ids, metrics)

    def windows(
        self, connection: sa.Connection, of: Series, begin_s: float, end_s: float, hosts: Collection[str]
    ) -> Means:
        return demands.windows(connection, of, begin_s, end_s, hosts)

    def first_after(self, connection: sa.Connection, of: Series, since_s: float) -> float | None:
        return demands.first_after(connection, of, since_s)

    def busy(
        self, connection: sa.Connection, host: str, begin_s: float, end_s: float
    ) -> Mapping[str, tuple[float, int]]:
        return samples.busy(connection, host, begin_s, end_s)

    def host_window(
        self, connection: sa.Connection, host: str, metrics: Sequence[str], begin_s: float, end_s: float
    ) -> HostWindow:
        series = predictions.series_on(connection, host, metrics)
        counts = predictions.counts(connection, series, begin_s, end_s)
        means = demands.windows(connection, {number: series[number] for number in counts}, begin_s, end_s)
        return HostWindow(
            ever={name for name, metric in series.values() if metric == "cpu"},
            counts={series[number][0]: count for number, count in counts.items() if series[number][1] == "cpu"},
            means={name: of_window for (name, _), of_window in means.items()},
        )

    def around(
        self, connection: sa.Connection, instance: str, since_s: float, now_s: float, whole_s: float
    ) -> Readings:
        if now_s - since_s <= whole_s or rollups.reach_s(connection, instance, since_s) <= whole_s:
            return samples.around_instance(connection, instance, since_s)
        keys = samples.series_around(connection, instance)
        return rollups.history_means(connection, keys, since_s, math.inf, rollups.BUCKET_S)

    def of_host(self, connection: sa.Connection, host: str, instances: Sequence[str], metrics: Metrics) -> Series:
        return rollups.history_of_host(connection, host, instances, metrics)

    def of_instance(self, connection: sa.Connection, instance: str, hosts: Sequence[str], metrics: Metrics) -> Series:
        return rollups.history_of_instance(connection, instance, hosts, metrics)

    def means(
        self, connection: sa.Connection, of: Series, begin_s: float, end_s: float, step_s: float
    ) -> dict[Any, rollups.Means]:
        return rollups.history_means(connection, of, begin_s, end_s, step_s)

    def wait_sums(
        self,
        connection: sa.Connection,
        host: str,
        instances: Sequence[str],
        since_s: float,
        now_s: float,  # noqa: ARG002 - nothing is stored of later
    ) -> tuple[WaitSums, ...]:
        return rollups.wait_sums(connection, host, instances, since_s)

    def usage(
        self,
        connection: sa.Connection,
        instances: Sequence[str],
        since_s: float,
        now_s: float,  # noqa: ARG002
    ) -> Mapping[str, Usage]:
        return samples.usage(connection, instances, since_s)

    def memory(
        self,
        connection: sa.Connection,
        instances: Sequence[str],
        since_s: float,
        now_s: float,  # noqa: ARG002
    ) -> Mapping[str, tuple[float | None, float | None]]:
        return samples.memory(connection, instances, since_s)

    def last_measured(self, connection: sa.Connection) -> Mapping[str, float]:
        return samples.last_measured(connection)

    def run_and_wait(
        self,
        connection: sa.Connection,
        since_s: float,
        now_s: float,  # noqa: ARG002
    ) -> Mapping[tuple[str, str], Mapping[str, float]]:
        return samples.run_and_wait(connection, since_s)


STORED = StoredSamples()
