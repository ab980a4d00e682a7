"""When what was measured contradicts what was predicted: a one-sided cumulative sum per instance, one number of state.

How often it errs at steady load is computed by research/contradiction_alarms.py.
"""

from __future__ import annotations

import math

from models.evaluation.prediction_checks import clip

# A window counts by how far it lies below the lower edge, in half widths, at most 1 either way; so an alarm needs at
# least ALARM windows, and more where they lie close to the edge.
ALARM = 4.0
LEAST_HALF = 0.05  # of the logarithm: a loss of less than 5 % is no alarm, however narrow the interval


def beyond(expected: float, lower: float, factor: float, observed: float) -> float:
    """How far a share lies below the lower edge of its interval, widened by `factor`, in half widths, within +-1; below
    0 = it is inside."""
    half = max(math.log(clip(expected) / clip(lower)) * factor, LEAST_HALF)
    off = math.log(clip(expected) / clip(observed))
    return min(max(off / half - 1.0, -1.0), 1.0)


def accumulated(before: float, more: float) -> float:
    """The sum after one more window, from 0 to ALARM: at ALARM an alarm is raised, and at 0 it ends."""
    return min(max(before + more, 0.0), ALARM)
