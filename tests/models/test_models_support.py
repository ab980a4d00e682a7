"""Support instead of guards: continuous in every feature, and never more of it with more distance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.learning.fitted_target import LearnerTask, agreement, fit_learner
from models.learning.support import HALF, Ranges, Support, TierErrors, calibrate, fit_support, hints_of
from tests.examples import examples

FEATURES = 3
NEAR = st.floats(-3, 3)


def support(reach: float = 0.5, rows: int = 60) -> Support:
    random = np.random.default_rng(0)
    x = random.normal(0, 1, (rows, FEATURES))
    return fit_support(x, np.array([0.5, 0.3, 0.2]), ["one", "other"] * (rows // 2), reach)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(NEAR, min_size=FEATURES, max_size=FEATURES), st.integers(0, FEATURES - 1), st.floats(1e-6, 0.2))
def test_a_small_step_along_any_feature_changes_support_by_little(at: list[float], which: int, step: float) -> None:
    """exp(-d2 / 2 r2) has a slope of at most 0.61 / r for each row, in spreads of the feature; support is bounded."""
    known = support()
    x = np.array([at, at])
    x[1, which] += step
    here, there = known.of(x).value
    assert abs(here - there) <= step * 0.61 / (0.5 * known.scale[which]) * known.count.sum() / HALF


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(NEAR, min_size=FEATURES, max_size=FEATURES), st.floats(1.5, 5))
def test_far_from_all_training_support_falls_with_distance(direction: list[float], further: float) -> None:
    away = np.array(direction)
    if np.abs(away).max() < 0.5:
        return
    known = support()
    x = np.outer([10.0, 10.0 * further], away / np.abs(away).max())
    near, far = known.of(x).value
    assert far <= near + 1e-12
    assert known.of(x).similar[1] <= known.of(x).similar[0] + 1e-12


def test_rows_like_those_of_training_are_counted_with_their_machines() -> None:
    x = np.zeros((12, 2))
    known = fit_support(x, np.array([0.5, 0.5]), ["one"] * 8 + ["other"] * 4, 1.0)
    found = known.of(np.array([[0.0, 0.0], [100.0, 0.0]]))
    assert found.similar[0] == pytest.approx(12)
    assert found.machines[0] == pytest.approx(2)
    assert found.value[0] == pytest.approx(12 / (12 + HALF))
    assert found.similar[1] == pytest.approx(0)


def test_an_unknown_value_is_apart_from_a_known_one_and_like_another_unknown_one() -> None:
    x = np.array([[0.0, np.nan]] * 10)
    known = fit_support(x, np.array([0.5, 0.5]), ["m"] * 10, 0.5)
    same, other = known.of(np.array([[0.0, np.nan], [0.0, 0.0]])).value
    assert same > other > 0


def test_what_is_not_known_of_a_question_is_not_supported_however_much_was_measured() -> None:
    x = np.column_stack([np.zeros(1000), np.zeros(1000), np.full(1000, np.nan)])
    known = fit_support(x, np.array([0.6, 0.3, 0.1]), ["m"] * 1000, 1.0)
    whole, half, nothing = known.of(np.array([[0.0, 0.0, 0.0], [np.nan, 0.0, 0.0], [np.nan] * 3])).value
    assert whole == pytest.approx(1, abs=0.02)  # of the third column training knew nothing, and it counts for nothing
    assert half == pytest.approx(1 / 3, abs=0.02)
    assert nothing == 0


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1))
def test_members_that_differ_more_agree_less(mean: float, little: float, more: float) -> None:
    deviations = np.sort([little, more])
    agreed = agreement(np.full(2, mean), deviations)
    assert 1 >= agreed[0] >= agreed[1] > 0
    assert agreement(np.array([mean]), np.zeros(1)) == 1


def test_members_that_each_miss_a_part_disagree_where_parts_contradict() -> None:
    """Two campaigns that say the opposite of the same rows, three that agree with each other on theirs."""
    random = np.random.default_rng(0)
    x = np.column_stack([np.repeat([0.0, 1.0], 200), random.normal(0, 1, 400)])
    unit = np.concatenate([np.arange(200) % 2, 2 + np.arange(200) % 3])
    residual = np.where(x[:, 0] > 0, -0.5, np.where(unit == 0, 0.5, -0.5)) + random.normal(0, 0.02, 400)
    learner = fit_learner(LearnerTask(x, residual, np.ones(400), unit, np.zeros(2, dtype=np.int8)))
    mean, deviation = learner.predict(np.array([[0.0, 0.0], [1.0, 0.0]]))
    contradicted, agreed = agreement(mean, deviation)
    assert mean[1] == pytest.approx(-0.5, abs=0.1)
    assert agreed > 0.9 > contradicted
    assert abs(mean[0] * contradicted) < 0.25


def test_the_same_rows_give_the_same_learner() -> None:
    random = np.random.default_rng(1)
    task = LearnerTask(
        random.normal(0, 1, (80, 2)), random.normal(0, 1, 80), np.ones(80), np.arange(80) % 7,
        np.zeros(2, dtype=np.int8),
    )  # fmt: skip
    one, other = (fit_learner(task).trees.to_json() for _ in range(2))
    assert one == other


def ranges() -> Ranges:
    return Ranges(-3.0, (0.5, 0.5, 0.5, 0.5), {"elsewhere": (3.0, 3.0), "workload": (2.0, 2.0), "pair": (1.0, 1.0)})


@settings(max_examples=examples(60), deadline=None)
@given(st.floats(0, 1), st.floats(0, 1), st.booleans(), st.floats(0, 1), st.floats(0.01, 1))
def test_a_range_never_narrows_with_distance(one: float, other: float, here: bool, familiar: float, own: float) -> None:
    nearness = np.sort([one, other])
    hints = np.full((2, 4), 0.2)
    widths = ranges().half_widths(
        hints, np.full(2, here), np.full(2, familiar), nearness, (np.full(2, own), np.full(2, own))
    )
    for width in widths:
        assert width[0] >= width[1] - 1e-12


def test_what_is_known_less_has_the_wider_range() -> None:
    hints, near, own = np.zeros((3, 4)), np.ones(3), (np.zeros(3), np.zeros(3))
    width = ranges().half_widths(hints, np.array([True, True, False]), np.array([1.0, 0.0, 0.0]), near, own)[0]
    assert width[0] < width[1] < width[2]


def test_calibrated_bounds_hold_in_nine_of_ten_new_rows() -> None:
    random = np.random.default_rng(0)

    def drawn(count: int) -> TierErrors:
        base = random.uniform(0.2, 1.0, count)
        hints = hints_of(base, base, np.zeros(count), np.zeros(count))
        error = random.normal(0, 0.02 + 0.3 * (1 - base))
        nothing = np.zeros(count)
        return TierErrors(error, nothing + np.nan, hints, nothing + 1, nothing + 1, (nothing, nothing), nothing + 1)

    found = calibrate({"pair": drawn(2000)}, 20)
    new = drawn(5000)
    down, up = found.half_widths(new.hints, np.full(5000, True), new.familiar, new.nearness, new.own)
    assert ((new.error >= -down) & (new.error <= up)).mean() == pytest.approx(0.9, abs=0.025)
    assert (new.error >= -down).mean() == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("of_the_largest", [13, 12, 9])
def test_members_learn_where_one_campaign_has_nearly_all_rows(of_the_largest: int) -> None:
    unit = np.where(np.arange(13) < of_the_largest, 0, 1)
    x = np.arange(13.0).reshape(-1, 1)
    task = LearnerTask(x, np.full(13, 0.2), np.ones(13), unit, np.zeros(1, np.int8), 0)
    assert fit_learner(task).predict(x)[0] == pytest.approx(np.full(13, 0.2), abs=0.1)


def test_a_range_is_never_narrower_than_repeats_of_one_pair_scatter() -> None:
    """Left-out medians are predicted well, and repeats differ by a factor either way."""
    count, nothing = 200, np.zeros(200)
    scatter = np.tile([-1.0, 1.0], count // 2)
    own = (nothing, nothing)
    rows = TierErrors(0.1 * scatter, scatter, np.zeros((count, 4)), nothing + 1, nothing + 1, own, nothing + 1)
    found = calibrate({"pair": rows}, 20)
    for width in found.half_widths(
        np.zeros((1, 4)), np.array([True]), np.ones(1), np.ones(1), (nothing[:1], nothing[:1])
    ):
        assert width[0] == pytest.approx(1.0, rel=1e-3)
