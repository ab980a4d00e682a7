"""Windows of hosts whose series are known: what was checked once is not checked again while the inventory is the same.

A host sends the same series each minute. After the first window was taken whole, its layout (who was measured in which
metrics) is kept with the numbers of its series; of the next windows of that layout only time and values are looked at.
Anything else goes the long way of `ingest`: another layout, a value that is none, a new day, a host or an instance that
was changed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection

from advisor.store import counters, engine
from advisor.store.counters import Counts
from advisor.store.packs import Ids, Values
from advisor.store.samples import DAY_S, SeriesKey
from profiler.agent.store_connection import SAMPLE, labels_of, literals, varint
from profiler.metrics import Scope
from profiler.observed import MetricSample

MOST_VALUES = 5_000_000  # of all layouts, of 130 bytes each: 10,000 hosts with 30 instances; the least used go
MOST_OF_HOST = 4  # layouts: where they differ from window to window none comes again
Key = tuple[object, ...]


class Flat(NamedTuple):
    """A window in one row: its host, when it ended, the key of its layout, and its values."""

    host: str
    time_s: float
    key: Key
    values: Values


@dataclass(frozen=True, slots=True)
class WindowRow:
    """An instance, the host or its driver domain: a value for each of the window's metrics, None = not measured, and
    other metrics by name."""

    instance: str | None
    scope: Scope
    values: Sequence[float | None]
    others: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SentWindow:
    """What was measured of a host at one time (s since the epoch; of a window, its end)."""

    host: str
    time_s: float
    metrics: Sequence[str]
    rows: Sequence[WindowRow]

    @property
    def number(self) -> int:
        """How many values were measured."""
        return sum(len(row.values) - row.values.count(None) + len(row.others) for row in self.rows)

    def samples(self) -> list[MetricSample]:
        """Row by row, each one's metrics and then its others."""
        found = []
        for row in self.rows:
            values = {name: value for name, value in zip(self.metrics, row.values, strict=True) if value is not None}
            found += [
                MetricSample(self.host, row.instance, row.scope, metric, value, self.time_s)
                for metric, value in (*values.items(), *row.others.items())
            ]
        return found

    def flat(self, only: str | None) -> Flat:
        """Its host and time, the key of its layout, and the values in the order of `samples`."""
        table = np.array([row.values for row in self.rows], np.float64).reshape(len(self.rows), len(self.metrics))
        there = ~np.isnan(table)
        rows = tuple((row.instance, row.scope, *row.others) for row in self.rows)
        key = (only, self.host, tuple(self.metrics), rows, there.tobytes())
        if not any(row.others for row in self.rows):
            return Flat(self.host, self.time_s, key, table[there])
        parts = [
            np.concatenate([of_row[here], np.array([*row.others.values()], np.float64)])
            for of_row, here, row in zip(table, there, self.rows, strict=True)
        ]
        return Flat(self.host, self.time_s, key, np.concatenate(parts))


@dataclass(slots=True)
class Layout:
    """Series in the order of a window's values, by their names in the inventory. `ids` are ascending, `order` the
    positions of their values. `*_s` are up to when what comes from samples has been done for this layout here."""

    host: str
    series: Sequence[SeriesKey]
    ids: Ids
    order: Ids
    day: int
    names: frozenset[str]
    resources: frozenset[tuple[str, str]]
    memory: Sequence[int]
    has_busy: bool
    learned_s: float = 0.0
    own_s: float = 0.0
    seen_s: float = 0.0


class Quick(NamedTuple):
    """A window whose layout is known, its values in order of the layout's ids and as they came."""

    layout: Layout
    time_s: float
    values: Values
    sent: Values


class Layouts:
    """One per process; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, OrderedDict[Key, Layout]] = OrderedDict()  # by host
        self._values = 0  # of all of them
        self._inventory = self._series = -1

    def find(self, flats: Sequence[Flat], begin_s: float, end_s: float) -> list[Quick] | None:
        """All windows, where each is of a layout that may be taken as it is, after `follow`; None = they go the long
        way."""
        found = []
        for host, time_s, key, values in flats:
            with self._lock:
                of_host = self._known.get(host, OrderedDict())
                layout = of_host.get(key)
                if layout is not None:
                    self._known.move_to_end(host)
                    of_host.move_to_end(key)
            if layout is None or not begin_s <= time_s <= end_s or int(time_s // DAY_S) > layout.day:
                return None
            if not ((values >= 0) & (values < np.inf)).all():
                return None
            found.append(Quick(layout, time_s, values[layout.order], values))
        return found

    def keep(self, key: Key, layout: Layout, seen: Counts) -> None:
        """Know a layout of which a window was taken whole, by an inventory that was as `seen` or newer."""
        with self._lock:
            if (seen.inventory, seen.series) != (self._inventory, self._series):
                return
            of_host = self._known.setdefault(layout.host, OrderedDict())
            self._known.move_to_end(layout.host)
            self._forget(of_host, [key] if key in of_host else [])
            of_host[key] = layout
            self._values += len(layout.ids)
            self._forget(of_host, list(of_host)[:-MOST_OF_HOST])
            while self._values > MOST_VALUES and len(self._known) > 1:
                _, least_used = self._known.popitem(last=False)
                self._forget(least_used, list(least_used))

    def _forget(self, of_host: OrderedDict[Key, Layout], keys: Iterable[Key]) -> None:
        self._values -= sum(len(of_host.pop(key).ids) for key in keys)

    def follow(self, connection: Connection) -> None:
        """Forget what rests on a host or an instance that was changed since; what is left holds until this transaction
        ends."""
        engine.shared_with(connection, "series")  # no other writer removes one of these meanwhile
        now = counters.read(connection)
        if (now.inventory, now.series) == (self._inventory, self._series):
            return
        changes = counters.changes_since(connection, self._inventory) if now.series == self._series else None
        with self._lock:
            touched = None if changes is None else changes.hosts | changes.instances  # None = all
            for of_host in self._known.values() if touched is None or touched else ():
                gone = [key for key, one in of_host.items() if touched is None or not one.names.isdisjoint(touched)]
                self._forget(of_host, gone)
            self._inventory, self._series = now.inventory, now.series


def layout_of(
    taken: Sequence[MetricSample], ids: Mapping[SeriesKey, int], named: Collection[str], resources: Collection[str]
) -> Layout | None:
    """The layout of a window that was taken whole; `named` are names as they came, which may be others than the
    inventory's. None where a series is there twice."""
    keys = [(one.host, one.instance or "", one.scope, one.metric) for one in taken]
    numbers = np.array([ids[key] for key in keys], np.int64)
    order = np.argsort(numbers)
    if len(set(keys)) < len(keys):
        return None
    learned = ((one.instance, one.metric) for one in taken if one.instance and one.scope == "instance")
    return Layout(
        host=taken[0].host,
        series=keys,
        ids=numbers[order],
        order=order,
        day=int(taken[0].time_s // DAY_S),
        names=frozenset({taken[0].host, *(one.instance for one in taken if one.instance), *named}),
        resources=frozenset((name, metric) for name, metric in learned if metric in resources),
        memory=[at for at, one in enumerate(taken) if one.scope == "host" and one.metric != "busy"],
        has_busy=any(one.scope == "host" and one.metric == "busy" for one in taken),
    )


# Bodies of remote writes whose series are known.

TODAY_MS = 1 << 40  # as many bytes as any time from 2004 to 2109


class Template:
    """A body of the same series each time, of which only values and one time change."""

    def __init__(self, data: bytes, places: Sequence[int], factors: Sequence[float], time_bytes: int) -> None:
        self._data = np.frombuffer(data, np.uint8)
        self._values = np.array(places)[:, None] + np.arange(8)
        self._times = np.array(places)[:, None] + 9 + np.arange(time_bytes)
        self._factors = np.array(factors)

    @classmethod
    def of(cls, series: Iterable[tuple[str, str, str, str]]) -> Template:
        """Of host, instance (empty = the host's own), scope and metric of each."""
        parts, places, factors, at = [], [], [], 0
        time = varint(TODAY_MS)
        for host, instance, scope, metric in series:
            labels, factor = labels_of(host, instance or None, scope, metric)
            value = SAMPLE.pack(0x09, 0.0, 0x10) + time
            body = labels + b"\x12" + varint(len(value)) + value
            part = b"\x0a" + varint(len(body)) + body
            parts.append(part)
            factors.append(factor)
            at += len(part)
            places.append(at - len(time) - 9)
        return cls(b"".join(parts), places, factors, len(time))

    def body(self, values: Any, time_s: float) -> bytes:
        """As `store_connection.write_request` of these values, an array in the order of the series."""
        written = np.frombuffer(varint(int(time_s * 1000)), np.uint8)
        if len(written) != self._times.shape[1]:
            raise ValueError(f"time {time_s} is not of this age")
        data = self._data.copy()
        data[self._values] = (values * self._factors).astype("<f8").view(np.uint8).reshape(-1, 8)
        data[self._times] = written
        return literals(data.tobytes())
