"""Records resource use of all instances in sub-second windows, for under 1 % of a CPU."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from profiler.backends import Backend, DomainCounters

_SHORTEST_S = 0.25
_LONGEST_S = 0.5
_WINDOWS = 12  # in a run, where that keeps them between shortest and longest …
_MOST_WINDOWS = 240  # … and the most in a long run
_SHARE = 0.01  # of one CPU that readings may take; costly ones are taken less often
_DIGITS = 4
_SCALES = {"cpu": 1e-7, "net_mbit": 8e-6, "disk_mb_s": 1e-6}  # ns and bytes per second into %, Mbit/s and MB/s
_BUSY = 1.0  # Mbit/s or MB/s: the progress of an instance that moves less shows in its CPU time


@dataclass(frozen=True, slots=True)
class UsageSeries:
    """Windows of a run: window i ended `at_s[i]` seconds after the measured time began, warm-up before 0.

    `values[instance][metric][i]` is its mean rate, 100 % = one CPU; metrics that this host does not count are missing.
    """

    at_s: tuple[float, ...] = ()
    values: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)

    def of(self, instance: str) -> Mapping[str, tuple[float, ...]]:
        return self.values.get(instance, {})

    def activity(self, instance: str, *, measured: bool = True) -> tuple[float, ...]:
        """The windows that follow its progress best: traffic or disk where it moves any, its CPU time otherwise."""
        metrics = self.of(instance)
        for metric in ("net_mbit", "disk_mb_s", "cpu"):
            windows = tuple(
                value for at_s, value in zip(self.at_s, metrics.get(metric, ()), strict=False) if (at_s > 0) is measured
            )
            if windows and (metric == "cpu" or median(windows) > _BUSY):
                return windows
        return ()


class UsageWatch:
    """Takes readings when they are due; `look` is to be called often, and returns at once where none is."""

    def __init__(self, backend: Backend, seconds: float) -> None:
        self._backend = backend
        self._usual_s = max(min(max(seconds / _WINDOWS, _SHORTEST_S), _LONGEST_S), seconds / _MOST_WINDOWS)
        self._ticks: list[tuple[float, Mapping[str, DomainCounters]]] = []
        self._due = 0.0
        self.mark()  # finds files and opens them, which costs more than usual …
        self.mark()  # … and must not decide when the next reading is due

    def look(self) -> bool:
        """Read when a reading is due; whether it was."""
        if time.monotonic() < self._due:
            return False
        self.mark()
        return True

    def mark(self) -> float:
        """Read now: a window ends here and the next begins; returns the time of the reading on the monotonic clock."""
        begin = time.thread_time()
        counters = self._backend.read_counters()
        cost_s = time.thread_time() - begin
        self._ticks.append((counters.monotonic_s, counters.instances))
        self._due = time.monotonic() + max(self._usual_s, cost_s / _SHARE)
        return counters.monotonic_s

    def series(self, begin: float) -> UsageSeries:
        """Everything so far; `begin` is when the measured time began, on the monotonic clock."""
        pairs = [
            (first, second)
            for first, second in zip(self._ticks, self._ticks[1:], strict=False)
            if second[0] - first[0] > _SHORTEST_S / 2  # a mark right after a reading makes no window
        ]
        names = {name for _, instances in self._ticks for name in instances}
        values: dict[str, dict[str, tuple[float, ...]]] = {}
        for name in sorted(names):
            rates = [_rates(first, second, name) for first, second in pairs]
            values[name] = {
                metric: tuple(float(f"{rate[metric]:.{_DIGITS}g}") for rate in rates)
                for metric in _SCALES
                if rates and all(metric in rate for rate in rates)
            }
        return UsageSeries(tuple(round(second[0] - begin, 2) for _, second in pairs), values)


def _rates(
    first: tuple[float, Mapping[str, DomainCounters]], second: tuple[float, Mapping[str, DomainCounters]], name: str
) -> dict[str, float]:
    if name not in first[1] or name not in second[1]:
        return {}
    before, after = _used(first[1][name]), _used(second[1][name])
    seconds = second[0] - first[0]
    return {
        metric: max(0, after[metric] - before[metric]) * scale / seconds
        for metric, scale in _SCALES.items()
        if metric in before and metric in after
    }


def _used(counters: DomainCounters) -> dict[str, int]:
    """What was used so far: ns of CPU time, bytes of traffic and disk; only what is counted."""
    cpu_ns = counters.cpu_ns
    if cpu_ns is None and "tasks" not in counters.absent:
        cpu_ns = sum(task.run_ns for task in counters.tasks.values())
    used = {"cpu": cpu_ns, "net_mbit": counters.net_bytes, "disk_mb_s": counters.disk_bytes}
    return {metric: value for metric, value in used.items() if value is not None}
