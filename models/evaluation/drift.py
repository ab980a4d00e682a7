"""Whether a model has become worse, since when and by how much; and when measurements contradict a prediction.

Both detectors run over all stored rows each time; no state is kept between calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from models.arrays import Floats
from models.evaluation.prediction_checks import (
    COVERAGE,
    FEW,
    STRANGEST,
    CheckedPrediction,
    by_scene,
    chance_of_coverage,
    clip,
    covered,
    is_short,
    log_off,
    residual,
)
from models.figures import Known

# Of 400 windows of 200 normal residuals whose intervals cover 90 %, none alarmed; of 400 with heavy tails (Student's t
# of 4 degrees of freedom, same spread) 3 did. A shift by one half width was found after 12 scenes (median; 18 in 95 %)
# by Page-Hinkley, after 26 (35) by ADWIN. Measured by simulation; tests/models/test_models_drift.py holds it.
ALLOWED, THRESHOLD, FORGETTING = 0.2, 10.0, 0.9999  # of Page-Hinkley, in half widths
CONFIDENCE = 0.002  # of ADWIN: about how often a whole window of stationary values alarms
IMPLAUSIBLE = 0.001  # of a coverage alarm: there is a group per platform and workload, so each must be rare
SHORTEST = 5  # scenes on either side of a change


@dataclass(frozen=True, slots=True)
class DriftAlarm:
    """Something got worse, since when, and how far; `since` is by the best split of the window."""

    kind: Annotated[
        Literal["shift", "coverage"],
        Field(description="shift: observations moved away from what is expected; coverage: intervals fail"),
    ]
    detectors: Annotated[tuple[str, ...], Field(description="which noticed: adwin, page_hinkley, binomial")]
    since: Annotated[datetime, Field(description="when it began")]
    detected: Annotated[datetime, Field(description="when it was noticed")]
    scenes: Annotated[int, Field(description="scenes seen since then")]
    before: Annotated[Known, Field(description="mean residual in half widths of the interval, or share covered")]
    after: Annotated[Known, Field(description="the same since then")]
    off: Annotated[Known, Field(description="mean observed over expected since then; 0.86 = 14 % below")]


def alarms(rows: Sequence[CheckedPrediction]) -> tuple[DriftAlarm, ...]:
    """The alarms of one group's window of rows, which are in order of time; none below FEW scenes."""
    scenes = by_scene(rows)
    if len(scenes) < FEW:
        return ()
    found = (_shift(scenes), _short(rows, scenes))
    return tuple(alarm for alarm in found if alarm is not None)


def detect(series: Floats) -> dict[str, int]:
    """Which detectors report a change in a series of mean residuals (n,), and the first position where one does."""
    values = np.clip(series, -STRANGEST, STRANGEST)
    found = {"page_hinkley": _page_hinkley(values), "adwin": _adwin(values)}
    return {name: position for name, position in found.items() if position is not None}


def _page_hinkley(values: Floats) -> int | None:
    """The first position at which the two-sided test of Page and Hinkley alarms (Page, Biometrika 41, 1954).

    The sums forget as in Sebastiao and Fernandes (ISMIS 2017); the mean is that of all values so far.
    """
    means = np.cumsum(values) / np.arange(1, len(values) + 1)
    rise = fall = 0.0
    lowest, highest = np.inf, -np.inf
    for position, away in enumerate((values - means).tolist()):
        rise, fall = FORGETTING * rise + away - ALLOWED, FORGETTING * fall + away + ALLOWED
        lowest, highest = min(lowest, rise), max(highest, fall)
        if position + 1 >= FEW and max(rise - lowest, highest - fall) > THRESHOLD:
            return position
    return None


def _adwin(values: Floats) -> int | None:
    """The first cut of ADWIN (Bifet & Gavalda, SIAM 2007, section 3) whose two sides have different means.

    All cuts with SHORTEST values on either side are tried: a window this small needs no histogram of buckets.
    """
    sums = np.cumsum(values)
    for end in range(2 * SHORTEST + 1, len(values) + 1):
        older = np.arange(SHORTEST, end - SHORTEST + 1)
        newer = end - older
        apart = np.abs(sums[older - 1] / older - (sums[end - 1] - sums[older - 1]) / newer)
        harmonic = 1 / (older - SHORTEST + 1) + 1 / (newer - SHORTEST + 1)
        surprise = np.log(2 * np.log(end) / CONFIDENCE)
        if (apart > np.sqrt(2 * harmonic * values[:end].var() * surprise) + 2 / 3 * harmonic * surprise).any():
            return end - 1
    return None


def split(series: Floats) -> int:
    """The best split of a series (n,) into two parts with different means: the first position of the second part."""
    count = len(series)
    places = np.arange(SHORTEST, count - SHORTEST + 1)
    sums = np.cumsum(series)
    first = sums[places - 1] / places
    second = (sums[-1] - sums[places - 1]) / (count - places)
    return int(places[np.argmax(np.abs(second - first) * np.sqrt(places * (count - places)))])


def _shift(scenes: Sequence[Sequence[CheckedPrediction]]) -> DriftAlarm | None:
    """An alarm for a shift to worse residuals; a shift to better ones gives none."""
    series = np.array([np.mean([residual(row) for row in scene]) for scene in scenes])
    found = detect(series)
    if not found:
        return None
    begin = split(series)
    before, after = float(series[:begin].mean()), float(series[begin:].mean())
    if abs(after) <= abs(before):
        return None
    return _alarm("shift", tuple(sorted(found)), scenes, begin, min(found.values()), before, after)


def _short(rows: Sequence[CheckedPrediction], scenes: Sequence[Sequence[CheckedPrediction]]) -> DriftAlarm | None:
    """An alarm for implausibly low coverage, since it fell, or since the window's start where it never was good."""
    if not is_short(rows, IMPLAUSIBLE):
        return None
    series = np.array([np.mean([covered(row) for row in scene]) for scene in scenes])
    begin = split(series)
    before, after = float(series[:begin].mean()), float(series[begin:].mean())
    if after >= before or chance_of_coverage(before, begin) < IMPLAUSIBLE:
        begin, before, after = 0, COVERAGE, float(series.mean())
    return _alarm("coverage", ("binomial",), scenes, begin, len(scenes) - 1, before, after)


def _alarm(
    kind: Literal["shift", "coverage"],
    detectors: tuple[str, ...],
    scenes: Sequence[Sequence[CheckedPrediction]],
    begin: int,
    noticed: int,
    before: float,
    after: float,
) -> DriftAlarm:
    off = np.mean([log_off(row) for scene in scenes[begin:] for row in scene])
    return DriftAlarm(
        kind=kind,
        detectors=detectors,
        since=scenes[begin][0].time,
        detected=scenes[max(noticed, begin)][-1].time,
        scenes=len(scenes) - begin,
        before=before,
        after=after,
        off=float(np.exp(off)),
    )


# When what was measured contradicts what was predicted: a one-sided cumulative sum per instance, one number of state.
#
# How often it errs at steady load: research/results/cloud.md, "Alarms".

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
