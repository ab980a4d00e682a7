"""Samples of an instance, its neighbours and their host as windows on one time axis; which count, and their means."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.arrays import Bools, Floats, Ints
from models.figures import Figure, Known
from models.profiling.phases import Phases
from profiler.metrics import SCOPES, join_key
from profiler.observed import MetricSample

SeriesKey = tuple[str, str | None, str, str]  # host, instance (None = the host's own), scope, metric
Readings = Mapping[SeriesKey, tuple[Sequence[float], Sequence[float]]]  # → times in s, values in the metric's unit

MOST = 1e15  # beyond anything measured; larger values, negative ones and nan count as missing
FILLED = 6  # windows: an instance silent for no longer was there all the time, as busy as before or after


@dataclass(frozen=True, slots=True)
class InstanceWindows:
    """Measurements of T windows, in order of time; nan = missing.

    `times` (T,) are when windows ended, in seconds since the epoch. `own` has the instance's metrics by key
    (`cpu`, `driver_domain.cpu` is its part of the driver domain), `around` those of its driver domain and host as a
    whole, `others` the CPU (%) of every other instance on the host, 0 where it was not there. Arrays are (T,).
    `elsewhere` counts windows of the instance on other hosts, which are not in here.
    """

    instance: str
    host: str
    period_s: float
    times: Floats
    own: Mapping[str, Floats]
    around: Mapping[str, Floats]
    others: Mapping[str, Floats]
    elsewhere: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.times)

    @property
    def others_cpu(self) -> Floats:
        """CPU of all other instances together, %, 100 = one CPU; (T,)."""
        return np.asarray(np.sum([*self.others.values(), np.zeros(len(self))], axis=0))

    @property
    def unbroken(self) -> NDArray[np.int64]:
        """The index of the run of consecutive windows that each window belongs to; (T,)."""
        gaps = np.diff(self.times) > 1.5 * self.period_s
        return np.concatenate([[0], np.cumsum(gaps)]) if len(self) else np.zeros(0, dtype=np.int64)


def by_series(samples: Iterable[MetricSample]) -> Readings:
    """Samples sorted into their series."""
    found: dict[SeriesKey, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for sample in samples:
        times, values = found[sample.host, sample.instance, sample.scope, sample.metric]
        times.append(sample.time_s)
        values.append(sample.value)
    return found


def hosts_of(readings: Readings, instance: str) -> Mapping[str, tuple[float, int]]:
    """Where an instance was measured: host → when last, and in how many windows."""
    found: dict[str, tuple[float, int]] = {}
    for (host, owner, scope, _), (times, _) in readings.items():
        if owner == instance and scope == "instance" and len(times):
            last, count = found.get(host, (0.0, 0))
            found[host] = max(last, *times), max(count, len(times))
    return found


def align(readings: Readings, instance: str, host: str | None = None) -> InstanceWindows:
    """The windows of an instance on one host, by default the one where it was measured last.

    ValueError when nothing was measured of it there. The order of samples does not matter; of two at one time the
    first counts.
    """
    hosts = hosts_of(readings, instance)
    if host is None and hosts:
        host = max(hosts, key=lambda name: (hosts[name][0], name))
    if host is None or host not in hosts:
        raise ValueError(f"nothing was measured of instance {instance}{f' on host {host}' if host else ''}")
    times = _axis(readings, instance, host)
    period = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    own: dict[str, Floats] = {}
    around: dict[str, Floats] = {}
    others: dict[str, Floats] = {}
    for (where, owner, scope, metric), (at, values) in readings.items():
        known = next((name for name in SCOPES if name == scope), None)
        if where != host or known is None:
            continue
        if owner in {instance, None}:
            (own if owner else around)[join_key(known, metric)] = _match(times, at, values, period)
        elif known == "instance" and metric == "cpu":
            others[str(owner)] = _fill(_match(times, at, values, period))
    elsewhere = {name: count for name, (_, count) in sorted(hosts.items()) if name != host}
    return InstanceWindows(instance, host, period, times, dict(sorted(own.items())), around, others, elsewhere)


def _axis(readings: Readings, instance: str, host: str) -> Floats:
    """The ends of its windows from all metrics; times less than half a window apart are one window."""
    of_it = [at for (where, owner, _, _), (at, _) in readings.items() if (where, owner) == (host, instance)]
    longest = np.unique(np.asarray(max(of_it, key=len), dtype=float))
    period = float(np.median(np.diff(longest))) if len(longest) > 1 else 0.0
    times = np.unique(np.concatenate([np.asarray(at, dtype=float) for at in of_it]))
    kept = [times[0]]
    for time in times[1:]:
        if time - kept[-1] > period / 2:
            kept.append(time)
    return np.array(kept)


def _match(times: Floats, at: Sequence[float], values: Sequence[float], period: float) -> Floats:
    """Assign values to the windows with the nearest ends, at most half a window away."""
    ends, first = np.unique(np.asarray(at, dtype=float), return_index=True)
    matched = np.full(len(times), np.nan)
    if len(ends) == 0:
        return matched
    taken = np.asarray(values, dtype=float)[first]
    taken = np.where((taken >= 0) & (taken <= MOST), taken, np.nan)
    right = np.clip(np.searchsorted(ends, times), 0, len(ends) - 1)
    left = np.maximum(right - 1, 0)
    nearest = np.where(np.abs(ends[left] - times) < np.abs(ends[right] - times), left, right)
    near = np.abs(ends[nearest] - times) <= max(period / 2, 1e-3)
    matched[near] = taken[nearest[near]]
    return matched


def _fill(cpu: Floats) -> Floats:
    """A neighbour's CPU: short gaps get the larger adjacent value, longer absences are 0."""
    present = np.flatnonzero(np.isfinite(cpu))
    filled = np.where(np.isfinite(cpu), cpu, 0.0)
    for before, after in pairwise(present):
        if 1 < after - before <= FILLED + 1:
            filled[before + 1 : after] = max(cpu[before], cpu[after])
    return filled


# Windows of five minutes from means over half an hour, in shapes that were seen: the method of fragments.
#
# A mean says how much was wanted and at which hour, but not how it varied within. Each mean takes the shape of the half
# hour with the most similar mean that was seen window by window (Svanidze, 1964, for the flow of rivers).

HALF_HOUR_S = 1800


@dataclass(frozen=True, slots=True)
class Shapes:
    """Half hours that were seen window by window: their means in order, and each one's windows over its mean."""

    window_s: int
    means: Sequence[float]
    ratios: Sequence[Sequence[float]]

    def broken_down(self, end_s: float, step_s: float, mean: float, most: float = math.inf) -> Mapping[float, float]:
        """The windows of `step_s` seconds up to `end_s` that had this mean: end of each → demand, at most `most`.

        Empty where no half hour was seen, or where the seconds are not whole windows.
        """
        count = round(step_s / self.window_s)
        if not self.means or count < 1 or abs(count * self.window_s - step_s) > 1:
            return {}
        ratios = self.ratios[self._nearest(mean)]
        begin_s = end_s - step_s
        return {begin_s + (at + 1) * self.window_s: min(mean * ratios[at % len(ratios)], most) for at in range(count)}

    def _nearest(self, mean: float) -> int:
        at = bisect.bisect_left(self.means, mean)
        near = [one for one in (at - 1, at) if 0 <= one < len(self.means)]
        return min(near, key=lambda one: abs(self.means[one] - mean))


def shapes(windows: Mapping[float, float], window_s: int) -> Shapes:
    """Of windows (end → demand): every half hour of which all are there."""
    count = HALF_HOUR_S // window_s
    blocks: dict[int, list[float]] = {}
    for end_s in sorted(windows):
        blocks.setdefault(int(end_s - window_s) // HALF_HOUR_S, []).append(windows[end_s])
    seen = sorted((sum(block) / count, block) for block in blocks.values() if len(block) == count)
    ratios = [[one / mean for one in block] if mean > 0 else [1.0] * count for mean, block in seen]
    return Shapes(window_s, [mean for mean, _ in seen], ratios)


# Means of autocorrelated windows with 90 % intervals, by the effective number of independent windows.

_TAIL = 0.95  # of a two-sided 90 % interval
_ROUNDING = 1e-12  # spread over mean of values that differ by rounding only


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    """A metric's mean in its unit with its 90 % interval; null = too few windows to say."""

    value: Annotated[Known, Field(description="mean")]
    lower: Annotated[Figure | None, Field(description="lower end of its 90 % interval")]
    upper: Annotated[Figure | None, Field(description="upper end of its 90 % interval")]
    effective_windows: Annotated[Known, Field(description="independent windows that it is worth")]

    @property
    def doubt(self) -> float | None:
        """Half width of the interval over the value; None where either is unknown or 0."""
        if self.lower is None or self.upper is None or self.value <= 0:
            return None
        return (self.upper - self.lower) / 2 / self.value


def estimate(values: Floats, runs: Ints) -> MeanEstimate | None:
    """Mean of the known values (n,) with a 90 % interval that accounts for autocorrelation within runs of windows.

    The effective number is n / (1 + 2 Σ ρₖ); lags are summed while sums of pairs are positive and fall (Geyer 1992).
    None where no value is known.
    """
    from scipy.special import stdtrit  # here, so that commands which estimate nothing start faster

    known = np.isfinite(values)
    values, runs = values[known], runs[known]
    count = len(values)
    if count == 0:
        return None
    mean = float(values.mean())
    if values.std() <= _ROUNDING * mean:
        return MeanEstimate(mean, mean, mean, float(count)) if count > 1 else MeanEstimate(mean, None, None, 1.0)
    effective = count / _inflation(values - mean, runs)
    if effective < 2:
        return MeanEstimate(mean, None, None, effective)
    half = float(stdtrit(effective - 1, _TAIL) * values.std() / np.sqrt(effective - 1))
    return MeanEstimate(mean, max(0.0, mean - half), mean + half, effective)


def _inflation(rest: Floats, runs: Ints) -> float:
    """1 + 2 Σ ρₖ of values around their mean, within runs; at least 1."""
    power = float(rest @ rest)
    total, last = -1.0, np.inf
    for lag in range(0, len(rest) - 1, 2):
        pair = _lagged(rest, runs, lag) / power + _lagged(rest, runs, lag + 1) / power
        if pair <= 0:
            break
        last = min(pair, last)
        total += 2 * last
    return float(np.clip(total, 1.0, len(rest)))


def _lagged(rest: Floats, runs: Ints, lag: int) -> float:
    same = runs[lag:] == runs[: len(runs) - lag]
    return float((rest[lag:] * rest[: len(rest) - lag])[same].sum())


# Selects the windows that a phase's profile is made of: solo windows, away from changes, where there are enough.

LEAST_WINDOWS = 12  # solo windows of a profile: two minutes at the agent's ten seconds
_EDGE = 4  # windows of a stretch from which on those beside a change, which may hold some of both, are left out
_FROM_HOST = ("event", "switch")  # what solo windows say of the host belongs to the workload; busy and steal do not


@dataclass(frozen=True, slots=True)
class PhaseWindows:
    """The windows of one phase and the estimates from them.

    `all` are its windows, `used` those that the `estimates` are made of: only solo ones if `solo`. `alone` counts the
    solo windows that are not next to a change.
    """

    number: int
    spans: tuple[tuple[float, float], ...]
    all: Ints
    used: Ints
    solo: bool
    solo_windows: int
    alone: int
    estimates: Mapping[str, MeanEstimate]

    @classmethod
    def of(cls, windows: InstanceWindows, phases: Phases, solo: Bools, number: int) -> PhaseWindows:
        stretches = [(a, b) for a, b in phases.stretches if phases.labels[a] == number]
        inner = np.concatenate([_inner(a, b, len(windows)) for a, b in stretches])
        alone = inner[solo[inner]]
        is_solo = len(alone) >= min(LEAST_WINDOWS, len(inner)) and len(alone) > 0
        used = alone if is_solo else inner
        runs = np.searchsorted([a for a, _ in stretches], used, side="right") + len(windows) * windows.unbroken[used]
        spans = tuple(span for a, b in stretches for span in _spans(windows, a, b))
        found = {key: estimate(values[used], runs) for key, values in _columns(windows, solo=is_solo).items()}
        known = {key: one for key, one in found.items() if one is not None}
        rows = np.flatnonzero(phases.labels == number)
        return cls(number, spans, rows, used, is_solo, int(solo[rows].sum()), len(alone), known)


def _spans(windows: InstanceWindows, begin: int, end: int) -> list[tuple[float, float]]:
    """Begin and end of the windows of a segment, split where windows are missing."""
    gaps = begin + 1 + np.flatnonzero(np.diff(windows.unbroken[begin:end]))
    edges = [begin, *(int(gap) for gap in gaps), end]
    return [(float(windows.times[a] - windows.period_s), float(windows.times[b - 1])) for a, b in pairwise(edges)]


def _inner(begin: int, end: int, count: int) -> Ints:
    """The windows of a segment without those next to a change, where there are enough."""
    if end - begin < _EDGE:
        return np.arange(begin, end)
    return np.arange(begin + (begin > 0), end - (end < count))


def _columns(windows: InstanceWindows, *, solo: bool) -> dict[str, Floats]:
    """Metrics that can be attributed to the instance: its own and, in solo windows, those of driver domain and host."""
    columns = {key: values for key, values in windows.own.items() if not key.endswith("_p95")}
    if solo:
        for key, values in windows.around.items():
            of_driver = key.startswith("driver_domain.") and not key.endswith("_p95")
            if key not in columns and (of_driver or key in _FROM_HOST):
                columns[key] = values
    return dict(sorted(columns.items()))
