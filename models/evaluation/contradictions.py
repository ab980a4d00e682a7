"""When what was measured contradicts what was predicted: a one-sided cumulative sum per instance, one number of state.

How often it errs at steady load: research/results/cloud.md, "Alarms".
"""

from __future__ import annotations

import math

from models.evaluation.prediction_checks import clip

# A window counts by how far it lies beyond EDGE half widths below what was expected, in half widths, at most 1 either
# way; so an alarm needs at least ALARM windows, and more where they lie close to the edge. EDGE is beyond the interval,
# for intervals may be a quarter too narrow.
ALARM, EDGE = 5.0, 1.25
LEAST_HALF = 0.05  # of the logarithm: a loss of less than 5 % is no alarm, however narrow the interval


def beyond(expected: float, lower: float, factor: float, observed: float) -> float:
    """How far a share lies beyond EDGE half widths below what was expected, in half widths, within +-1; below 0 = it
    agrees. `lower` is the interval's edge, which `factor` widens."""
    off = math.log(clip(expected) / clip(observed))
    return min(max(off / half_width(expected, lower, factor) - EDGE, -1.0), 1.0)


def half_width(expected: float, lower: float, factor: float = 1.0) -> float:
    """From what was expected to the lower edge of its interval, widened by `factor`, on the log scale."""
    return max(math.log(clip(expected) / clip(lower)) * factor, LEAST_HALF)


def accumulated(before: float, more: float) -> float:
    """The sum after one more window, from 0 to ALARM: at ALARM an alarm is raised, and at 0 it ends."""
    return min(max(before + more, 0.0), ALARM)
