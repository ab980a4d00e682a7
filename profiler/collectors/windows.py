"""Aggregates samples into windows: time-weighted mean and 95th percentile of each series, and running totals."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass

from profiler.collectors.samples import Collected
from profiler.metrics import Scope

Key = tuple[str | None, Scope, str]  # instance (None = of the host), scope, metric
_ENOUGH = 0.5  # share of its samples without which a series says nothing about its window


@dataclass(frozen=True, slots=True)
class Statistic:
    """One series in one window, in the metric's own unit; `samples` = how many readings had a value."""

    mean: float
    p95: float
    samples: int


@dataclass(frozen=True, slots=True)
class MetricWindow:
    """The series of one window; `end_s` is wall clock time (epoch seconds), `seconds` monotonic.

    `thin` counts the series that are left out because under half of the readings had a value.
    """

    host: str
    end_s: float
    seconds: float
    series: Mapping[Key, Statistic]
    thin: int


class _SeriesSum:
    __slots__ = ("seconds", "total", "values", "weighted")

    def __init__(self) -> None:
        self.values = array("d")
        self.weighted = 0.0  # sum of value · seconds, of this window
        self.seconds = 0.0
        self.total = 0.0  # the same sum, of all windows before


class WindowAggregator:
    """The window in progress. Windows follow each other on a grid of `window_s`; readings come every `interval_s`."""

    def __init__(self, window_s: float, interval_s: float) -> None:
        self._window_s = window_s
        self._interval_s = interval_s
        self._series: dict[Key, _SeriesSum] = {}
        self._begin_s: float | None = None  # monotonic; None = nothing was read yet
        self._host = ""
        self._end_s = 0.0

    def add(self, collected: Collected, monotonic_s: float) -> None:
        """Add the rates of one reading, made at `monotonic_s`."""
        if self._begin_s is None:
            self._begin_s = monotonic_s - collected.seconds
        self._host, self._end_s = collected.host, collected.time_s
        seconds, series = collected.seconds, self._series
        for row in collected.rows:
            instance, scope = row.instance, row.scope
            for metric, value in row.values.items():  # the hot loop: a hundred instances have 1500 every second
                key = instance, scope, metric
                sums = series.get(key)
                if sums is None:
                    sums = series[key] = _SeriesSum()
                sums.values.append(value)
                sums.weighted += value * seconds
                sums.seconds += seconds

    def due(self, monotonic_s: float) -> bool:
        """Whether the window in progress is over: a reading may be half an interval early."""
        return self._begin_s is not None and monotonic_s >= self._begin_s + self._window_s - self._interval_s / 2

    def close(self, monotonic_s: float) -> MetricWindow:
        """End the current window now, and begin the next one at the next grid time.

        An instance without any value in this window is forgotten, totals included, unless no instance has one.
        """
        begin_s = monotonic_s if self._begin_s is None else self._begin_s
        seconds = max(0.0, monotonic_s - begin_s)
        expected = max(1, round(min(seconds, self._window_s) / self._interval_s))
        window = self._window(seconds, expected)
        self._forget_vanished()
        self._start_anew()
        passed = int((seconds + self._interval_s / 2) / self._window_s)
        self._begin_s = begin_s + passed * self._window_s
        return window

    def abandon(self) -> None:
        """Drop the window in progress; the next reading begins a new grid. Totals stay."""
        self._start_anew()
        self._begin_s = None

    def totals(self) -> dict[Key, float]:
        """Sum of value · seconds of each series since it appeared; counters are made of it."""
        return {key: sums.total + sums.weighted for key, sums in self._series.items()}

    def _window(self, seconds: float, expected: int) -> MetricWindow:
        statistics: dict[Key, Statistic] = {}
        thin = 0
        for key, sums in self._series.items():
            known = len(sums.values)
            if known and known >= _ENOUGH * expected:
                statistics[key] = _statistic(sums)
            elif known:
                thin += 1
        return MetricWindow(self._host, self._end_s, seconds, statistics, thin)

    def _forget_vanished(self) -> None:
        seen = {key[0] for key, sums in self._series.items() if sums.values}
        if seen:
            self._series = {key: sums for key, sums in self._series.items() if key[0] in seen or key[0] is None}

    def _start_anew(self) -> None:
        for sums in self._series.values():
            sums.total += sums.weighted
            sums.weighted = sums.seconds = 0.0
            del sums.values[:]


def _statistic(series: _SeriesSum) -> Statistic:
    ordered = sorted(series.values)
    lowest, highest = ordered[0], ordered[-1]
    mean = series.weighted / series.seconds
    return Statistic(min(max(mean, lowest), highest), percentile(ordered, 0.95), len(ordered))


def percentile(ordered: list[float], share: float) -> float:
    """Linear interpolation between the nearest two of sorted values (R's type 7, what most tools mean)."""
    position = share * (len(ordered) - 1)
    below = int(position)
    if below + 1 >= len(ordered):
        return ordered[-1]
    return ordered[below] + (ordered[below + 1] - ordered[below]) * (position - below)
