"""The precision of a campaign's ratios T/B so far: the width of each group's 95 % interval."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, median

from lab.records import THROUGHPUT, MemberRecord, Record
from lab.statistics import MemberRepeat, RatioBootstrap, rounds_interval

_NORMAL = 1.96


class Precision:
    """Intervals of T/B from finished runs; what was computed for a run is kept, so that asking again is cheap."""

    def __init__(self) -> None:
        self._redraws = RatioBootstrap()

    def widths(self, records: Iterable[Record]) -> dict[str, float]:
        """Half the width of the widest member's interval relative to its median T/B, by group run.

        Infinite where there is no interval yet: one repeat, no solo run beside it, or nothing reached at all.
        """
        records = list(records)
        widths = _on_off_widths(records)
        for run, members in _paired(records).items():
            widths[run] = max((self._width(pairs) for pairs in members.values()), default=math.inf)
        return widths

    def interval(self, pairs: Sequence[tuple[MemberRepeat, MemberRepeat]]) -> tuple[float, float, float] | None:
        """Median T/B and its 95 % interval from (together, alone) of each round; None below two repeats."""
        ratios = [together.value / alone.value for together, alone in pairs]
        ends = rounds_interval(ratios, [self._redraws.ratios(together, alone) for together, alone in pairs])
        return None if ends is None else (median(ratios), *ends)

    def _width(self, pairs: Sequence[tuple[MemberRepeat, MemberRepeat]]) -> float:
        interval = self.interval(pairs)
        if interval is None or interval[0] <= 0:
            return math.inf
        middle, low, high = interval
        return (high - low) / 2 / middle


def _on_off_widths(records: Iterable[Record]) -> dict[str, float]:
    """The same of runs on/off, whose ratios have errors of their own: over rounds the mean ratio counts."""
    values: dict[str, dict[object, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        for state in record.states if record.kind == "group" else ():
            if state.outcome == THROUGHPUT:
                key = state.state, state.place
                values[record.run][key].append((state.together / state.alone, state.error))
    return {run: max(_mean_width(pairs) for pairs in states.values()) for run, states in values.items()}


def _mean_width(pairs: Sequence[tuple[float, float]]) -> float:
    mean = fmean(ratio for ratio, _ in pairs)
    error = math.sqrt(sum(error**2 for _, error in pairs)) / len(pairs)
    return _NORMAL * error / mean if mean > 0 else math.inf


def _paired(records: Iterable[Record]) -> dict[str, dict[str, list[tuple[MemberRepeat, MemberRepeat]]]]:
    """By group run and instance: what it reached (together, alone) in each round that has both."""
    groups: list[Record] = []
    alone: dict[tuple[str, int], MemberRepeat] = {}
    for record in records:
        if record.states:
            continue
        if record.kind == "solo":
            alone[record.run, record.round] = _repeat(record, record.members[0], "")
        elif record.kind == "group":
            groups.append(record)
    paired: dict[str, dict[str, list[tuple[MemberRepeat, MemberRepeat]]]] = defaultdict(lambda: defaultdict(list))
    for record in groups:
        for member in record.members:
            pairs = paired[record.run][member.instance]
            solo = alone.get((member.solo_key, record.round))
            if solo is not None and solo.value > 0:
                pairs.append((_repeat(record, member, member.instance), solo))
    return paired


def _repeat(record: Record, member: MemberRecord, instance: str) -> MemberRepeat:
    """A repeat under the key that `lab show` uses, so that both get the same interval; alone `instance` is empty."""
    key = f"{record.run} {record.round} {instance}"
    return MemberRepeat(key, member.outcomes.get("throughput", 0.0), record.series.activity(member.instance))
