"""Aligns stored samples of an instance, its neighbours and their host as arrays on one time axis."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from models.arrays import Floats
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
