"""Three verdicts on a printed statement: agrees, disagrees, undetermined; and the margins, which are stated here.

A statement is the set of values that agree with it. What was measured agrees where its whole interval lies in that set,
its median with it, disagrees where the whole interval lies outside, and is undetermined otherwise. For "flat" and for
figures the set is what is as good as the printed value, so that agreement is an equivalence test: an interval that is
wide never agrees, and one that only holds the printed value says nothing (Schuirmann 1987, two one-sided tests).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["agrees", "disagrees", "undetermined"]

# The margins. They are round numbers, the same for all claims, and were not chosen by any result.
NO_CHANGE = 0.05  # a relative change up to this is none: `flat` lies within, `up` and `down` beyond
POINTS = 5.0  # of a printed percentage
SHARE = 0.1  # of any other printed figure
# With four rounds a range misses the median with 12.5 %, 6.25 on each side; below, a verdict would be a guess.
FEWEST_JUDGED = 4
# Only what is relative is compared with a paper from other hardware: an absolute figure is shown and never judged,
# unless its claim says which values agree.
RELATIVE = frozenset({"%", "x", "ratio"})


@dataclass(frozen=True, slots=True)
class Region:
    """The values that agree with a statement: from `low` to `high`, both included."""

    low: float = -math.inf
    high: float = math.inf

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def verdict(self, lower: float, upper: float) -> Verdict:
        """On an interval; ValueError where it is none."""
        if not lower <= upper:
            raise ValueError(f"{lower} to {upper} is no interval")
        if self.low <= lower and upper <= self.high:
            return "agrees"
        return "disagrees" if upper < self.low or lower > self.high else "undetermined"


def above(value: float) -> Region:
    """More than a value."""
    return Region(low=math.nextafter(value, math.inf))


def below(value: float) -> Region:
    """Less than a value."""
    return Region(high=math.nextafter(value, -math.inf))


def around(value: float, room: float) -> Region:
    """As good as the same as a value."""
    return Region(value - room, value + room)


DIRECTIONS: Mapping[str, Region] = {"flat": around(0.0, NO_CHANGE), "up": above(NO_CHANGE), "down": below(-NO_CHANGE)}


def figure_region(value: float, unit: str) -> Region:
    """What counts as a printed figure: 5 points around a percentage, 10 % around anything else."""
    return around(value, POINTS if unit == "%" else SHARE * abs(value))


def region_of(printed: Mapping[str, str]) -> Region | None:
    """The values that agree with a printed statement; None where hardware decides on them, or where it is no figure.

    A direction is about a relative change.
    """
    relation = printed["relation"]
    if relation == "direction":
        return DIRECTIONS.get(printed["value"])
    if printed["unit"] not in RELATIVE or relation in {"order", "fact"}:
        return None
    if relation == "range":
        return Region(float(printed["low"]), float(printed["high"]))
    value = float(printed["value"])
    bounds = {"<": below(value), "<=": Region(high=value), ">": above(value), ">=": Region(low=value)}
    return bounds.get(relation) or figure_region(value, printed["unit"])


def order_verdict(order: Sequence[Sequence[str]], bounds: Mapping[str, tuple[float, float]]) -> Verdict:
    """On a strict order, from the intervals of its members, all of which must be there.

    Agrees where every interval of an earlier group lies above those of all later ones, disagrees where one lies
    nowhere above one of them. With four rounds each, ranges that do not meet are as unlikely by chance as 1 in 70.
    """
    pairs = [
        (above, below)
        for position, group in enumerate(order)
        for later in order[position + 1 :]
        for above in group
        for below in later
    ]
    if any(bounds[first][1] <= bounds[second][0] for first, second in pairs):
        return "disagrees"
    return "agrees" if all(bounds[first][0] > bounds[second][1] for first, second in pairs) else "undetermined"
