"""Scores and their order: the new VM and every neighbour count alike, and equal is equal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import Objective
from advisor.scheduling.scoring import (
    CAUTION,
    HARM_COUNTS,
    KEPT,
    OTHERS_COUNT,
    PIN_GAIN,
    SHORT_COUNTS,
    Ceiling,
    Scores,
    choose_options,
    order,
    score,
    tied,
)
from tests.advisor.core.core_clouds import prediction
from tests.examples import examples

NAN = float("nan")


def scores(
    expected: Sequence[Sequence[float]],
    *,
    before: Sequence[Sequence[float]] | None = None,
    limits: Sequence[Sequence[float]] | None = None,
    present: Sequence[Sequence[bool]] | None = None,
    used: Sequence[float] | None = None,
    half: float | Sequence[Sequence[float]] = 0.0,
    objective: Objective = "worst",
    **more: Any,
) -> Scores:
    """Scores of scenes whose last instance is the new VM; before and limits are 1 and none by default."""
    shape = np.shape(expected)
    return score(
        prediction(expected, half),
        np.ones(shape, dtype=bool) if present is None else np.array(present),
        np.ones(shape) if before is None else np.array(before, dtype=float),
        np.full(shape, np.nan) if limits is None else np.array(limits, dtype=float),
        np.zeros(shape[0]) if used is None else np.array(used, dtype=float),
        objective,
        **more,
    )


def test_the_worst_off_decides_and_of_what_others_lose_a_part_counts() -> None:
    scored = scores([[0.9, 0.6, 1.0], [0.6, 1.0, 0.9], [0.7, 0.7, 0.7]])
    np.testing.assert_allclose(scored.score, np.array([0.6, 0.6, 0.7]) - OTHERS_COUNT * np.array([0.1, 0.1, 0.6]))
    np.testing.assert_allclose(scored.expected, [0.6, 0.6, 0.7])
    np.testing.assert_allclose(scored.combined, [2.5, 2.5, 2.1])


def test_among_dozens_what_all_lose_together_decides() -> None:
    scored = scores([[0.9] + [1.0] * 20, [0.97] * 21])
    np.testing.assert_allclose(scored.score, [0.9, 1 - (0.03 + OTHERS_COUNT * 20 * 0.03)])


def test_a_host_with_few_residents_is_no_place_where_they_may_be_harmed() -> None:
    scored = scores([[0.6, 0.6, NAN, NAN], [0.6, 0.9, 0.9, 0.9]], present=[[True, True, False, False], [True] * 4])
    assert scored.score[1] > scored.score[0]


def test_time_short_counts_as_much_as_speed_where_it_is_known() -> None:
    scored = scores([[0.8, 0.8]] * 3, more_short=np.array([[0.0, 0.0], [0.4, 0.0], [NAN, 0.0]]))
    one, other = 0.2 * (1 - SHORT_COUNTS), 0.2 * (1 - SHORT_COUNTS) + 0.4 * SHORT_COUNTS
    expected = [1 - (max(both) + OTHERS_COUNT * min(both)) for both in ((one, one), (one, other), (0.2, one))]
    np.testing.assert_allclose(scored.score, expected)
    slower, later = (scores([[ratio]], more_short=np.array([[at]])) for ratio, at in ((0.9, 0.0), (1.0, 0.1)))
    assert slower.score[0] == pytest.approx(later.score[0])


def test_doubt_that_was_there_before_does_not_count_against_a_placement() -> None:
    found = [scores([[0.8]], half=0.3, half_before=before).score[0] for before in (0.3, 0.1, 0.5)]
    np.testing.assert_allclose(found, [0.8, 0.8 - CAUTION * 0.2, 0.8])


def test_neighbours_are_measured_by_what_this_placement_does_to_them() -> None:
    """A neighbour that was at a half before and stays there is not harmed."""
    scored = scores([[0.5, 0.9], [0.8, 0.9]], before=[[0.5, 1.0], [1.0, 1.0]])
    np.testing.assert_allclose(scored.expected, [0.9, 0.8])
    assert scored.score[0] > scored.score[1]


def test_scores_go_by_the_lower_bound() -> None:
    scored = scores([[0.8], [0.77]], half=[[0.4], [0.04]])
    np.testing.assert_allclose(scored.score, [0.8 - CAUTION * 0.4, 0.77 - CAUTION * 0.04])
    assert scored.score[1] > scored.score[0]  # a wide interval costs a rank


def test_an_interval_is_measured_on_the_scale_of_the_score() -> None:
    """A neighbour at a half before: 0.4 +/- 0.1 of its own speed is 0.8 +/- 0.2 of what it had."""
    scored = scores([[0.4, 1.0]], before=[[0.5, 1.0]], half=[[0.1, 0.0]])
    assert scored.expected[0] == pytest.approx(0.8)
    assert scored.half_width[0] == pytest.approx(0.2)
    assert scored.score[0] == pytest.approx(0.8 - CAUTION * 0.2)


def test_total_is_the_ratio_of_the_new_vm_minus_all_losses() -> None:
    scored = scores([[0.7, 0.9], [0.9, 0.8]], before=[[0.9, 1.0], [0.9, 1.0]], objective="total")
    np.testing.assert_allclose(scored.score, [0.9 - 0.2, 0.8])


def test_limits_counts_by_how_much_the_chance_grows_that_each_is_below_its_limit() -> None:
    """One with a limit of its own, one that is far below already, and the new VM, beside NormalDist of the library."""
    half, spread = 0.1645, 0.1
    scored = scores(
        [[0.85, 0.5, 0.95]],
        before=[[0.98, 0.6, 1.0]],
        limits=[[0.8, NAN, NAN]],
        half=half,
        objective="limits",
    )
    pairs = [(0.8, 0.85, 0.98), (KEPT, 0.5, 0.6), (KEPT, 0.95, 1.0)]
    more = [NormalDist(after, spread).cdf(least) - NormalDist(was, spread).cdf(least) for least, after, was in pairs]
    assert scored.expected[0] == pytest.approx(1 - sum(more))
    assert scored.half_width[0] == pytest.approx(1.645 * math.sqrt(sum(one * (1 - one) for one in more)))
    worst = scores([[0.85, 0.5, 0.95]], before=[[0.98, 0.6, 1.0]], half=half)
    assert scored.score[0] == pytest.approx(scored.expected[0] - HARM_COUNTS * (1 - worst.score[0]))


def test_limits_prefers_one_deep_loss_to_two_instances_below_and_of_equals_the_less_harmed() -> None:
    scored = scores([[0.5, 1.0], [0.85, 0.85], [0.6, 1.0]], objective="limits")
    assert np.argsort(-scored.score).tolist() == [2, 0, 1]
    np.testing.assert_allclose(scored.expected, [0.0, -1.0, 0.0], atol=1e-6)


def test_pack_takes_the_fullest_host_on_which_every_ratio_is_kept() -> None:
    scored = scores([[0.95, 0.95], [0.91, 0.95], [0.5, 1.0]], used=[0.5, 0.75, 3.0], objective="pack")
    assert order(scored.score, np.array(["a", "b", "c"])).tolist() == [1, 0, 2]
    assert scored.score[2] < 1 < scored.score[0]


def test_pack_keeps_an_instances_own_limit_and_else_nine_tenths() -> None:
    limits = [[0.7, NAN], [NAN, NAN], [NAN, NAN]]
    scored = scores([[0.75, 1.0], [0.75, 1.0], [KEPT, 1.0]], limits=limits, used=[1.0] * 3, objective="pack")
    assert (scored.score > 1).tolist() == [True, False, True]


def test_pack_does_not_ask_for_more_than_an_instance_had_before() -> None:
    scored = scores([[0.6, 1.0]], before=[[0.6, 1.0]], used=[0.5], objective="pack")
    assert scored.score[0] == pytest.approx(1.5)


def test_a_limit_is_broken_where_it_was_held_before() -> None:
    scored = scores(
        [[0.6, 0.95], [0.6, 0.95], [0.8, 0.5]],
        before=[[1.0, 1.0], [0.65, 1.0], [1.0, 1.0]],
        limits=[[0.7, NAN], [0.7, NAN], [0.7, 0.6]],
    )
    assert scored.breaks_neighbour.tolist() == [True, False, False]
    assert scored.breaks_new_vm.tolist() == [False, False, True]


@pytest.mark.parametrize("ratio", [0.7, 0.7 - 1e-12])
def test_a_ratio_at_its_limit_keeps_it_whatever_rounding_made_of_it(ratio: float) -> None:
    scored = scores([[ratio, ratio]], limits=[[0.7, 0.7]])
    assert not scored.breaks_neighbour[0] and not scored.breaks_new_vm[0]
    packed = scores([[ratio, ratio]], limits=[[0.7, 0.7]], used=[0.5], objective="pack")
    assert packed.score[0] == pytest.approx(1.5)


def test_a_limit_from_above_is_broken_where_it_was_held_before() -> None:
    waits, before = np.full((3, 2), 2.0), np.array([[1.0, 1.0], [1.95, 1.0], [1.0, 1.0]])
    most = np.array([[1.9, NAN], [1.9, NAN], [NAN, 1.9]])
    scored = scores([[0.5, 0.5]] * 3, ceilings=[Ceiling(most * NAN, waits, before), Ceiling(most, waits, before)])
    assert scored.breaks_neighbour.tolist() == [True, False, False]
    assert scored.breaks_new_vm.tolist() == [False, False, True]


@pytest.mark.parametrize("objective", ["worst", "total", "limits", "pack"])
def test_empty_slots_count_nothing_whatever_stands_in_them(objective: Objective) -> None:
    common: dict[str, Any] = {"half": 0.05, "used": [0.5], "objective": objective}
    bare = scores([[0.8, 0.9]], **common)
    slots: dict[str, Any] = {"present": [[False, True, False, True]], "limits": [[0.99, NAN, 0.99, NAN]]}
    for junk in (0.01, 5.0, NAN):
        padded = scores([[junk, 0.8, junk, 0.9]], **slots, **common)
        for figure in ("score", "combined", "half_width"):
            np.testing.assert_allclose(getattr(padded, figure), getattr(bare, figure))
        assert not padded.breaks_neighbour.any()


RATIO = st.floats(0.05, 1.0)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(RATIO, min_size=2, max_size=5), st.data(), st.sampled_from(["worst", "total", "limits"]))
def test_a_better_ratio_never_lowers_the_score(ratios: list[float], data: st.DataObject, objective: Objective) -> None:
    better = list(ratios)
    at = data.draw(st.integers(0, len(ratios) - 1))
    better[at] = min(1.0, better[at] + data.draw(st.floats(0, 0.5)))
    scored = scores([ratios, better], objective=objective)
    assert scored.score[1] >= scored.score[0] - 1e-12


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(RATIO, min_size=3, max_size=5), st.data(), st.sampled_from(["worst", "total", "limits", "pack"]))
def test_the_order_of_neighbours_does_not_matter(
    ratios: list[float], data: st.DataObject, objective: Objective
) -> None:
    mixed = [*data.draw(st.permutations(ratios[:-1])), ratios[-1]]
    scored = scores([ratios, mixed], half=0.03, objective=objective)
    assert scored.score[0] == pytest.approx(scored.score[1])
    assert scored.half_width[0] == pytest.approx(scored.half_width[1]) or objective == "worst"


# the choice among pinnings


def chosen(values: Sequence[Sequence[float]], *, fine: object = True, usable: object = True) -> list[int]:
    """Options by hosts; the first leaves the new VM free, the others pin it."""
    shape = np.shape(values)
    breaks = ~np.broadcast_to(np.array(fine), shape).ravel()
    flat = np.array(values, dtype=float).ravel()
    found = Scores(flat, flat, np.zeros_like(flat), flat, breaks, np.zeros_like(breaks))
    pins = np.arange(shape[0]) > 0
    numbers = choose_options(found, shape[0], pins, np.broadcast_to(np.array(usable), shape).ravel())
    return [int(number) for number in numbers]


@pytest.mark.parametrize(
    ("values", "more", "options"),
    [
        ([[0.8, 0.8, 0.8], [0.8 + PIN_GAIN / 2, 0.8 + 2 * PIN_GAIN, 0.7]], {}, [0, 1, 0]),
        ([[0.9, 0.9], [0.1, 0.1]], {"fine": [[False, True], [True, True]]}, [1, 0]),
        ([[0.1, 0.1], [0.9, 0.9]], {"usable": [[True, True], [False, True]]}, [0, 1]),
        ([[0.1], [0.9], [0.9]], {}, [1]),
    ],
    ids=["a pin gains more than its price", "no limit breaks", "it can be used", "of equal pins the first"],
)
def test_the_option_is_the_best_that_may_be_chosen(
    values: list[list[float]], more: dict[str, Any], options: list[int]
) -> None:
    assert chosen(values, **more) == options


# the order


def test_scores_that_are_equal_but_for_rounding_are_ordered_by_host_id() -> None:
    assert order(np.array([0.5, 0.5, 0.9, 0.5]), np.array(["c", "a", "z", "b"])).tolist() == [2, 1, 3, 0]
    assert order(np.array([0.3, 0.1 + 0.2]), np.array(["a", "b"])).tolist() == [0, 1]
    assert order(np.array([0.1 + 0.2, 0.3]), np.array(["b", "a"])).tolist() == [1, 0]


def test_candidates_are_tied_where_their_difference_lies_inside_both_uncertainties() -> None:
    expected, half = np.array([0.9, 0.85, 0.5]), np.array([0.03, 0.05, 0.0])
    assert tied(expected[0] - expected[1], half[0], half[1])
    assert not tied(expected[0] - expected[2], half[0], half[2])
    assert tied(0.0, 0.0, 0.0)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(RATIO, st.floats(0, 0.3)), min_size=2, max_size=5))
def test_ties_are_mutual(values: list[tuple[float, float]]) -> None:
    for one, width in values:
        for other, margin in values:
            assert tied(one - other, width, margin) == tied(other - one, margin, width)
