"""Effects are found where they are, beside controls that changed by themselves, and doubted where windows vary."""

from __future__ import annotations

import random

import pytest

from advisor.changes.guard import Span, measure, verdict_of
from advisor.domain import Band, PredictedEffect
from advisor.domain.changes import SHARED

SPAN = Span(begin=0.0, changed=1200.0, settled=1260.0, end=2520.0, window_s=60.0)
BEFORE = [60.0 * number for number in range(1, 21)]
AFTER = [1320.0 + 60.0 * number for number in range(21)]


def series(before: float, after: float, noise: float = 0.01, seed: int = 1) -> dict[float, float]:
    draw = random.Random(seed)
    return {at: (before if at <= 1200 else after) + draw.gauss(0, noise) for at in (*BEFORE, *AFTER)}


def predicted(before: float, after: float, width: float = 0.05, controls: tuple[str, ...] = ()) -> PredictedEffect:
    was, then = (Band(value, value - width, value + width) for value in (before, after))
    return PredictedEffect("vm", was, then, controls)


def test_an_effect_as_predicted_is_found_with_an_interval_around_it() -> None:
    found = measure(predicted(0.6, 0.8), series(0.6, 0.8), {}, SPAN)
    assert found.verdict == "as predicted"
    assert found.effect is not None
    assert found.effect.lower < 0.2 < found.effect.upper
    assert found.effect.upper - found.effect.lower < 0.02
    assert (found.windows_before, found.windows_after) == (20, 21)


def test_what_happened_to_the_controls_too_is_no_effect() -> None:
    controls = {name: series(0.9, 0.7, seed=seed) for seed, name in enumerate("ab", 2)}
    found = measure(predicted(0.6, 0.8, controls=("a", "b")), series(0.6, 0.6), controls, SPAN)
    assert found.effect is not None
    assert found.effect.expected == pytest.approx(0.2, abs=0.02)
    assert found.controls == ("a", "b")
    alone = measure(predicted(0.6, 0.8), series(0.6, 0.6), {}, SPAN)
    assert alone.verdict == "less"


def test_a_control_without_windows_is_left_out() -> None:
    found = measure(predicted(0.6, 0.8, controls=("a",)), series(0.6, 0.8), {"a": {60.0: 0.5}}, SPAN)
    assert (found.controls, found.verdict) == ((), "as predicted")


def test_too_few_windows_tell_nothing() -> None:
    few = {at: value for at, value in series(0.6, 0.8).items() if at < 1500}
    found = measure(predicted(0.6, 0.8), few, {}, SPAN)
    assert (found.verdict, found.effect) == ("unknown", None)
    assert "3 after" in found.why


@pytest.mark.parametrize(
    ("after", "verdict"), [(0.8, "as predicted"), (0.65, "less"), (0.5, "harmful"), (0.95, "more")]
)
def test_verdicts_follow_the_measured_difference(after: float, verdict: str) -> None:
    assert measure(predicted(0.6, 0.8), series(0.6, after), {}, SPAN).verdict == verdict


def test_a_loss_that_was_predicted_is_no_harm() -> None:
    assert measure(predicted(0.8, 0.6), series(0.8, 0.6), {}, SPAN).verdict == "as predicted"
    assert measure(predicted(0.8, 0.6), series(0.8, 0.3), {}, SPAN).verdict == "harmful"


def test_windows_that_vary_widely_are_not_taken_for_an_effect() -> None:
    assert verdict_of(Band(0.1, 0.05, 0.15), Band(0.1, -0.4, 0.6))[0] == "unknown"
    draw = random.Random(5)
    level, wandering = 0.6, {}
    for at in (*BEFORE, *AFTER):  # each window is like the one before it
        level += draw.gauss(0, 0.03)
        wandering[at] = level
    steady = measure(
        predicted(0.6, 0.6), dict(zip(wandering, draw.sample(list(wandering.values()), 41), strict=True)), {}, SPAN
    )
    wide = measure(predicted(0.6, 0.6), wandering, {}, SPAN)
    assert steady.effect is not None
    assert wide.effect is not None
    assert wide.effect.upper - wide.effect.lower > 1.2 * (steady.effect.upper - steady.effect.lower)


def test_intervals_cover_the_true_effect_as_often_as_they_say() -> None:
    covered = 0
    for seed in range(200):
        found = measure(predicted(0.6, 0.7), series(0.6, 0.7, noise=0.05, seed=seed), {}, SPAN)
        assert found.effect is not None
        covered += found.effect.lower <= 0.1 <= found.effect.upper
    assert 165 <= covered <= 198


def test_doubt_that_both_states_share_does_not_widen_a_difference() -> None:
    wide = PredictedEffect("vm", Band(0.5, 0.25, 1.0), Band(0.8, 0.57, 1.05)).change
    assert wide.expected == pytest.approx(0.3)
    independent = (0.23**2 + 0.5**2) ** 0.5, (0.25**2 + 0.25**2) ** 0.5
    alike = 0.3 - 0.05, 0.02
    for side, alone, shared in zip((0.3 - wide.lower, wide.upper - 0.3), independent, alike, strict=True):
        assert side == pytest.approx((1 - SHARED) * alone + SHARED * shared)
    same = PredictedEffect("vm", Band(0.5, 0.25, 1.0), Band(0.5, 0.25, 1.0)).change
    assert same.lower < 0.0 < same.upper, "two states that are alike are still two predictions"
