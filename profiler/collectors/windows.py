"""Windows of one length from readings, and the run queue within each."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from profiler.collectors.samples import Collected
from profiler.metrics import WAITED_FOR, Scope
from profiler.parse.proc import NOT_KNOWN, RunQueueCounts, bucket_bounds

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


# Turns waits for a CPU by control group into those of instances: percentiles, and for which they waited.

# In place of an instance's id, which has no brackets: what ran meanwhile, where that is no instance.
HOST = "(host)"  # the host's own work, and groups that are no instance
CAP = "(cap)"  # none: the instance's own quota throttled it
UNKNOWN = "(unknown)"  # more groups than the BPF program remembers
OTHERS = frozenset({HOST, CAP, UNKNOWN})

_PERCENTILES = (("run_queue_p50_us", 0.5), ("run_queue_p99_us", 0.99), ("run_queue_p999_us", 0.999))
_LEAST_SHARE = 0.001  # of the time of a window: a pair that waited less is not reported
_MOST_PAIRS = 8  # per instance: those for which it waited longest
_LONGEST_NAME = 255 - len(WAITED_FOR)
_BEYOND = 1.0  # waits that must lie beyond a percentile; with fewer it would only be the longest wait


@dataclass(frozen=True, slots=True)
class InstanceWaits:
    """One window. `percentiles` by instance and metric, in us; `waited_for` seconds by (victim, what ran meanwhile)."""

    seconds: float
    percentiles: Mapping[str, Mapping[str, float]]
    waited_for: Mapping[tuple[str, str], float]

    def series(self, present: Collection[str]) -> dict[Key, Statistic]:
        """As metrics of the window: percentiles of instances that waited; for which, of all that are `present`."""
        values = {(name, metric): wait for name, waits in self.percentiles.items() for metric, wait in waits.items()}
        shares: dict[str, dict[str, float]] = {name: {} for name in present}
        for (victim, antagonist), seconds in self.waited_for.items():
            if victim in shares:
                shares[victim][antagonist] = seconds / self.seconds
        for victim, by_antagonist in shares.items():
            values[victim, "waited_for_host"] = 100 * by_antagonist.get(HOST, 0.0)
            reported = sorted(
                (share, name) for name, share in by_antagonist.items() if _is_reported(victim, name, share)
            )
            for share, antagonist in reported[-_MOST_PAIRS:]:
                values[victim, f"{WAITED_FOR}{antagonist}"] = 100 * share
        return {(name, "instance", metric): Statistic(value, value, 1) for (name, metric), value in values.items()}


def _is_reported(victim: str, antagonist: str, share: float) -> bool:
    named = antagonist != victim and antagonist not in OTHERS
    return named and share >= _LEAST_SHARE and len(antagonist) <= _LONGEST_NAME


class RunQueueWindow:
    """The window in progress."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._delays: dict[int, Counter[int]] = {}
        self._throttled_ns: Counter[int] = Counter()
        self._pairs: Counter[tuple[int, int]] = Counter()

    def add(self, counts: RunQueueCounts) -> None:
        """Add the counts of one period."""
        self._seconds += counts.seconds
        for number, group in counts.groups.items():
            self._delays.setdefault(number, Counter()).update(group.delays)
            self._throttled_ns[number] += group.throttled_ns
        self._pairs.update(counts.pairs)

    def waits_of(self, instances: Mapping[int, str]) -> InstanceWaits:
        """The waits of instances in this window; `instances` by number of group."""
        delays: dict[str, Counter[int]] = {}
        waited_ns: Counter[tuple[str, str]] = Counter()
        for number, counts in self._delays.items():
            if number in instances:
                delays.setdefault(instances[number], Counter()).update(counts)
                waited_ns[instances[number], CAP] += self._throttled_ns[number]
        for (victim, runner), ns in self._pairs.items():
            if victim in instances:
                antagonist = UNKNOWN if runner == NOT_KNOWN else instances.get(runner, HOST)
                waited_ns[instances[victim], antagonist] += ns
        percentiles = {name: percentiles_of(counts) for name, counts in delays.items()}
        return InstanceWaits(self._seconds, percentiles, {pair: ns / 1e9 for pair, ns in waited_ns.items() if ns})


def percentiles_of(delays: Mapping[int, int]) -> dict[str, float]:
    """Percentiles in us, exact to 6 %, of waits counted by bucket; without those for which there are too few waits."""
    total = sum(delays.values())
    return {
        metric: _percentile(delays, share * total) / 1e3
        for metric, share in _PERCENTILES
        if total * (1 - share) >= _BEYOND - 1e-9
    }


def _percentile(delays: Mapping[int, int], rank: float) -> float:
    """The wait, in ns, that `rank` of them do not exceed; within a bucket they count as evenly spread."""
    below = 0
    for bucket, number in sorted(delays.items()):
        if below + number >= rank:
            lower, upper = bucket_bounds(bucket)
            return lower + (upper - lower) * (rank - below) / number
        below += number
    raise ValueError("the rank is beyond the number of waits")
