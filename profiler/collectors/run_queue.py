"""Waits for a CPU by control group, made into what instances waited: percentiles, and for whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from profiler.collectors.windows import Key, Statistic
from profiler.metrics import WAITED_FOR
from profiler.parse.run_queue import NOT_KNOWN, RunQueueCounts, bucket_bounds

# In place of an instance's id, which has no brackets: who else was waited for.
HOST = "(host)"  # the host's own work, and groups that are no instance
CAP = "(cap)"  # nobody: the instance's own quota held it back
UNKNOWN = "(unknown)"  # more of others than was remembered
OTHERS = frozenset({HOST, CAP, UNKNOWN})

_PERCENTILES = (("run_queue_p50_us", 0.5), ("run_queue_p99_us", 0.99), ("run_queue_p999_us", 0.999))
_LEAST_PART = 0.001  # of the time of a window: who was waited for less is not told
_MOST_TOLD = 8  # for whom each waited the longest
_LONGEST_NAME = 255 - len(WAITED_FOR)
_BEYOND = 1.0  # waits that must be beyond a percentile, or it is no more than the longest one


@dataclass(frozen=True, slots=True)
class InstanceWaits:
    """One window. `percentiles` by instance and metric, in us; `waited_for` seconds by (victim, who ran meanwhile)."""

    seconds: float
    percentiles: Mapping[str, Mapping[str, float]]
    waited_for: Mapping[tuple[str, str], float]

    def series(self, present: Collection[str]) -> dict[Key, Statistic]:
        """As metrics of the window, of those who waited and, with no wait for the host, of all who are there."""
        values = {(name, metric): one for name, metrics in self.percentiles.items() for metric, one in metrics.items()}
        parts: dict[str, dict[str, float]] = {name: {} for name in present}
        for (victim, who), seconds in self.waited_for.items():
            if victim in parts:
                parts[victim][who] = seconds / self.seconds
        for name, of in parts.items():
            values[name, "waited_for_host"] = 100 * of.get(HOST, 0.0)
            told = sorted((part, who) for who, part in of.items() if _is_told(name, who, part))
            for part, who in told[-_MOST_TOLD:]:
                values[name, f"{WAITED_FOR}{who}"] = 100 * part
        return {(name, "instance", metric): Statistic(one, one, 1) for (name, metric), one in values.items()}


def _is_told(victim: str, who: str, part: float) -> bool:
    return who != victim and who not in OTHERS and part >= _LEAST_PART and len(who) <= _LONGEST_NAME


class RunQueueWindow:
    """The window in progress."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._delays: dict[int, Counter[int]] = {}
        self._throttled_ns: Counter[int] = Counter()
        self._pairs: Counter[tuple[int, int]] = Counter()

    def add(self, counts: RunQueueCounts) -> None:
        """Take one period."""
        self._seconds += counts.seconds
        for number, group in counts.groups.items():
            self._delays.setdefault(number, Counter()).update(group.delays)
            self._throttled_ns[number] += group.throttled_ns
        self._pairs.update(counts.pairs)

    def waits_of(self, instances: Mapping[int, str]) -> InstanceWaits:
        """What the instances waited in it; `instances` by number of group."""
        delays: dict[str, Counter[int]] = {}
        waited_ns: Counter[tuple[str, str]] = Counter()
        for number, counts in self._delays.items():
            if number in instances:
                delays.setdefault(instances[number], Counter()).update(counts)
                waited_ns[instances[number], CAP] += self._throttled_ns[number]
        for (victim, runner), ns in self._pairs.items():
            if victim in instances:
                who = UNKNOWN if runner == NOT_KNOWN else instances.get(runner, HOST)
                waited_ns[instances[victim], who] += ns
        percentiles = {name: percentiles_of(counts) for name, counts in delays.items()}
        return InstanceWaits(self._seconds, percentiles, {pair: ns / 1e9 for pair, ns in waited_ns.items() if ns})


def percentiles_of(delays: Mapping[int, int]) -> dict[str, float]:
    """Percentiles in us, to 6 % of themselves, of waits that are counted by bucket; without those that too few say."""
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
    raise ValueError("there are fewer waits than that")
