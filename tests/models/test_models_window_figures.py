"""Figures of measured windows: what they count, from when on they calibrate, and that they do not grow."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest

from models.evaluation.prediction_checks import (
    ENOUGH_S,
    ENOUGH_SCENES,
    MOST_SCENES,
    WIDEST,
    CheckedPrediction,
    WindowFigures,
    grouped,
    groups_of,
)
from tests.models.checked_rows import HALF, Z90, one

HOUR = 3600.0


def row(observed: float, *, expected: float = 0.8, instance: str = "a") -> CheckedPrediction:
    """A row with a half width of 0.1 on the log scale."""
    lower, upper = expected * math.exp(-HALF), expected * math.exp(HALF)
    return one(observed=observed, expected=expected, lower=lower, upper=upper, instance=instance, version="m")


def figures(observed: Sequence[float], step_s: float = HOUR) -> WindowFigures:
    found = WindowFigures()
    for at, value in enumerate(observed):
        found.add([row(value)], at * step_s)
    return found


def test_sums_are_those_of_the_rows() -> None:
    found = WindowFigures()
    found.add([row(0.8), row(0.6)], 0.0)
    found.add([row(0.85)], 300.0)
    (reported,) = groups_of("m", {next(iter(grouped([row(0.8)], "forecast", {"a": "measured"}))): found})
    assert (reported.rows, reported.scenes) == (3, 2)
    assert reported.coverage == pytest.approx(2 / 3)
    assert reported.error == pytest.approx(0.25 / 3)
    assert reported.bias == pytest.approx(-0.15 / 3)
    assert reported.coverage_low < reported.coverage < reported.coverage_high


def test_a_row_counts_for_its_level_and_for_all_and_calm_ones_apart() -> None:
    rows = [row(0.8), row(0.9, instance="b"), row(1.0, expected=1.0, instance="c")]
    found = grouped(rows, "forecast", {"a": "measured", "b": "class", "c": "class"})
    counted = {(key.level, key.contended): len(there) for key, there in found.items()}
    assert counted == {("", True): 2, ("measured", True): 1, ("class", True): 1, ("", False): 1, ("class", False): 1}


def test_nothing_is_calibrated_before_there_are_enough_windows_over_a_day() -> None:
    assert figures([0.8] * (ENOUGH_SCENES - 1)).factor is None
    assert figures([0.8] * (2 * ENOUGH_SCENES), step_s=ENOUGH_S / (3 * ENOUGH_SCENES)).factor is None
    assert figures([0.8] * ENOUGH_SCENES).factor == 1.0


def test_intervals_that_are_too_narrow_widen_until_nine_of_ten_of_what_follows_are_inside() -> None:
    """Residuals are twice as wide as a 90 % interval allows: what calibrated on 400 scenes holds on others."""
    drawn = 0.8 * np.exp(np.random.default_rng(1).normal(0, 2 * HALF / Z90, 5000))
    known = figures(drawn[:400].tolist())
    assert known.short
    assert known.factor is not None
    assert 1.8 < known.factor < 2.4
    after = np.abs(np.log(drawn[400:] / 0.8)) <= known.factor * HALF
    assert 0.87 < after.mean() < 0.96


def test_an_interval_that_holds_is_not_narrowed_nor_one_widened_beyond_the_widest() -> None:
    assert figures([0.8] * 200).factor == 1.0
    assert figures([0.1] * 200).factor == WIDEST


def test_what_is_older_counts_less_and_nothing_grows() -> None:
    found = figures([0.3] * MOST_SCENES)
    size = len(json.dumps(found.as_json()))
    for at in range(3 * MOST_SCENES):
        found.add([row(0.8)], (MOST_SCENES + at) * HOUR)
    assert found.scenes <= MOST_SCENES
    assert found.coverage > 0.85, "of 4 in 4 rows the newest 3 hold"
    assert len(json.dumps(found.as_json())) < size + 200
    assert WindowFigures.from_json(json.loads(json.dumps(found.as_json()))) == found
