"""Windows that are not over, where samples are kept in another store: sums by host, from which the service learns.

One row for each host that sends, of 5-15 KB with 30 instances: what a push says of demand is added to it, and a window
is taken out once it was learned. So the service learns the same whichever store keeps the samples, asks that store for
nothing meanwhile, and counts each sample once, whatever is sent again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from advisor.store.demands import Means
from advisor.store.rollups import BUCKET_S
from advisor.store.schema import ID, VALUE, metadata, selected, upsert
from models.profiling.windows import MOST
from profiler.observed import MetricSample

MOST_WINDOWS = 5_000  # of a host: the oldest go
_BUSY = frozenset({"busy", "driver_domain", "cpu"})  # what shows a host's own load
_OF_HOSTS = frozenset({("host", "busy"), ("driver_domain", "cpu")})
_time = attrgetter("time_s")
BUSY_S = 3600.0  # for which a host's own load is kept
Key = tuple[str, str, str]  # host, instance, metric

open_windows = sa.Table(
    "open_windows",
    metadata,
    sa.Column("host", ID, primary_key=True),
    sa.Column("newest_s", sa.Double, nullable=False),  # of its samples
    sa.Column("state", VALUE, nullable=False),
)


@dataclass(slots=True)
class _Host:
    """A row. `windows` are by their end: the times of samples, and by instance and metric the sum of values with the
    bits of the times that are in it. `busy` has by time the sum and number of values under the scopes of
    `samples.busy`."""

    newest_s: float = 0.0
    closed_s: float = 0.0  # windows that end up to then are out
    windows: dict[str, dict[str, Any]] = field(default_factory=dict)
    busy: list[list[Any]] = field(default_factory=list)

    @classmethod
    def of(cls, row: Any) -> _Host:
        state = row.state
        return cls(row.newest_s, state["closed_s"], state["windows"], state["busy"])

    def row(self, host: str) -> dict[str, Any]:
        state = {"closed_s": self.closed_s, "windows": self.windows, "busy": self.busy}
        return {"host": host, "newest_s": self.newest_s, "state": state}

    def add(self, time_s: float, samples: Iterable[MetricSample]) -> int:
        """Samples of one time; returns how many are new."""
        self.newest_s = max(self.newest_s, time_s)
        if time_s < self.closed_s:
            return 0
        ends = f"{(time_s // BUCKET_S + 1) * BUCKET_S:.0f}"
        window = self.windows.setdefault(ends, {"times": [], "sums": {}})
        times, sums = window["times"], window["sums"]
        if time_s not in times:
            times.append(time_s)
        bit, new = 1 << times.index(time_s), 0
        busy: dict[str, list[Any]] = {}
        for sample in samples:
            # the driver domain's CPU use under a name of its own: it has no instance, as the host's
            metric = sample.metric if sample.scope != "driver_domain" else "driver_domain"
            cells = sums.setdefault(sample.instance or "", {})
            cell = cells.get(metric) or cells.setdefault(metric, [0.0, 0])
            if cell[1] & bit:
                continue
            cell[0] += sample.value
            cell[1] |= bit
            new += 1
            if metric in _BUSY:
                total = busy.setdefault(sample.scope, [0.0, 0])
                total[0], total[1] = total[0] + sample.value, total[1] + 1
        if busy:
            self.busy.append([time_s, busy])
        return new

    def trim(self) -> None:
        self.busy = [entry for entry in self.busy if entry[0] > self.newest_s - BUSY_S]
        for ends in sorted(self.windows, key=float)[: max(len(self.windows) - MOST_WINDOWS, 0)]:
            del self.windows[ends]


def add(connection: sa.Connection, taken: Sequence[MetricSample], metrics: Collection[str]) -> int:
    """Add what is learned from: `metrics` of instances, and what shows a host's own load; returns how many samples are
    new. Of a batch in which everything that is learned from is there already, none is."""
    by_host: dict[str, list[MetricSample]] = {}
    for sample in taken:
        if _counts(sample, metrics):
            by_host.setdefault(sample.host, []).append(sample)
    hosts = _held(connection, by_host)
    new = 0
    for name, samples in by_host.items():
        host = hosts.setdefault(name, _Host())
        samples.sort(key=_time)
        new += sum(host.add(time_s, of_time) for time_s, of_time in groupby(samples, _time))
        host.trim()
    _put(connection, hosts)
    return len(taken) if new or not by_host else 0


def series_of(
    connection: sa.Connection, hosts: Iterable[str], ids: Iterable[str], metrics: Sequence[str]
) -> dict[Key, tuple[str, str]]:
    """Instance and metric of what is summed of these instances on these hosts."""
    wanted, names = set(ids), set(metrics)
    return {
        (host, instance, metric): (instance, metric)
        for host, state in _read(connection, hosts).items()
        for window in state.windows.values()
        for instance in window["sums"].keys() & wanted
        for metric in window["sums"][instance].keys() & names
    }


def windows(connection: sa.Connection, of: Mapping[Key, Any], begin_s: float, end_s: float) -> Means:
    """Means of these series in windows from one border to another."""
    sums: dict[tuple[str, float], dict[str, tuple[float, int]]] = {}
    for (_, instance, metric), ends_s, _, (total, bits) in _cells(connection, of):
        if begin_s < ends_s <= end_s:
            of_window = sums.setdefault((instance, ends_s), {})
            before, count = of_window.get(metric, (0.0, 0))
            of_window[metric] = before + total, count + bits.bit_count()
    return {key: {name: total / count for name, (total, count) in means.items()} for key, means in sums.items()}


def first_after(connection: sa.Connection, of: Mapping[Key, Any], since_s: float) -> float | None:
    """When the first sample of these series since a time was taken."""
    times = (time_s for _, _, times, _ in _cells(connection, of) for time_s in times if time_s >= since_s)
    return min(times, default=None)


def busy(connection: sa.Connection, host: str, begin_s: float, end_s: float) -> dict[str, tuple[float, int]]:
    """As `samples.busy`; what is up to `end_s` is taken out, for it is asked for once."""
    state = _held(connection, [host]).get(host, _Host())
    sums: dict[str, tuple[float, int]] = {}
    for time_s, totals in state.busy:
        if begin_s < time_s <= end_s:
            for scope, (total, number) in totals.items():
                before, count = sums.get(scope, (0.0, 0))
                sums[scope] = before + total, count + number
    state.busy = [entry for entry in state.busy if entry[0] > end_s]
    _put(connection, {host: state})
    return sums


def close(connection: sa.Connection, until: Mapping[str, float]) -> None:
    """Take out the windows of each host that end up to a time."""
    hosts = _held(connection, until)
    for name, host in hosts.items():
        host.closed_s = max(host.closed_s, until[name])
        host.windows = {ends: window for ends, window in host.windows.items() if float(ends) > host.closed_s}
    _put(connection, hosts)


def newest(connection: sa.Connection) -> dict[str, float]:
    """When the newest sample of each host was taken, s since the epoch."""
    rows = connection.execute(sa.select(open_windows.c.host, open_windows.c.newest_s))
    return {row.host: row.newest_s for row in rows}


def expire(connection: sa.Connection, before_s: float) -> None:
    """Forget hosts that sent nothing since a time."""
    connection.execute(sa.delete(open_windows).where(open_windows.c.newest_s < before_s))


def _counts(sample: MetricSample, metrics: Collection[str]) -> bool:
    if sample.value > MOST:
        return False
    if sample.instance is not None:
        return sample.scope == "instance" and sample.metric in metrics
    return (sample.scope, sample.metric) in _OF_HOSTS


def _cells(
    connection: sa.Connection, of: Mapping[Key, Any]
) -> Iterator[tuple[Key, float, Sequence[float], tuple[float, int]]]:
    """Of each series and window: the series, the end, the times of its samples, sum and bits."""
    hosts = _read(connection, {host for host, _, _ in of})
    for key in of:
        host, instance, metric = key
        for ends, window in hosts[host].windows.items() if host in hosts else ():
            cell = window["sums"].get(instance, {}).get(metric)
            if cell is not None:
                times = [time_s for at, time_s in enumerate(window["times"]) if cell[1] >> at & 1]
                yield key, float(ends), times, (cell[0], cell[1])


def _read(connection: sa.Connection, hosts: Iterable[str]) -> dict[str, _Host]:
    rows = selected(connection, sa.select(open_windows), open_windows.c.host, hosts)
    return {row.host: _Host.of(row) for row in rows}


def _held(connection: sa.Connection, hosts: Iterable[str]) -> dict[str, _Host]:
    """The same; no other writer changes them before this transaction ends."""
    query = sa.select(open_windows).order_by(open_windows.c.host).with_for_update()
    return {row.host: _Host.of(row) for row in selected(connection, query, open_windows.c.host, hosts)}


def _put(connection: sa.Connection, hosts: Mapping[str, _Host]) -> None:
    upsert(connection, open_windows, [host.row(name) for name, host in hosts.items()])
