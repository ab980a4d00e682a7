"""Turns waits for a CPU by control group into those of instances: percentiles, and for which they waited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from profiler.collectors.windows import Key, Statistic
from profiler.metrics import WAITED_FOR
from profiler.parse.run_queue import NOT_KNOWN, RunQueueCounts, bucket_bounds

# In place of an instance's id, which has no brackets: who ran meanwhile, where that is no instance.
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
    """One window. `percentiles` by instance and metric, in us; `waited_for` seconds by (victim, who ran meanwhile)."""

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
