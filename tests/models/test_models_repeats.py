"""Repeats as one row: the middle of them, counted by how many there were, whatever order they come in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.features.examples import Examples, group_repeats, target_of
from tests.examples import examples
from tests.models.made_examples import made_up

RATIOS = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=12)


def repeated(ratios: list[list[float]]) -> Examples:
    """One situation for each inner list, measured as often as the list is long."""
    which = np.repeat(np.arange(len(ratios)), [len(one) for one in ratios])
    x = np.stack([which * 1.0, np.full(len(which), np.nan)], axis=1)
    return made_up([("a", "b")] * len(which), np.concatenate([np.array(one) for one in ratios]), x=x)


def test_of_repeats_the_median_counts_and_an_outlier_changes_nothing() -> None:
    found = group_repeats(repeated([[0.5, 0.51, 0.001], [0.7]]))
    np.testing.assert_allclose(found.residual, np.log([0.5 / 0.8, 0.7 / 0.8]))
    assert found.group.tolist() == [0, 0, 0, 1]


def test_each_further_repeat_adds_less_weight_and_weights_have_a_mean_of_one() -> None:
    weight = group_repeats(repeated([[0.5], [0.5] * 2, [0.5] * 3, [0.5] * 50])).weight
    assert weight.mean() == pytest.approx(1.0)
    np.testing.assert_allclose(weight / weight[0], np.array([1 / 2, 2 / 3, 3 / 4, 50 / 51]) / 0.5)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(RATIOS, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(ratios: list[list[float]], random: object) -> None:
    examples = repeated(ratios)
    order = list(range(len(examples)))
    random.shuffle(order)  # type: ignore[attr-defined]
    plain, mixed = group_repeats(examples), group_repeats(examples.take(np.array(order)))
    np.testing.assert_allclose(mixed.residual[mixed.group], plain.residual[plain.group][order])
    np.testing.assert_allclose(mixed.weight[mixed.group], plain.weight[plain.group][order])


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(RATIOS, min_size=1, max_size=5))
def test_a_repeat_of_every_repeat_changes_no_residual(ratios: list[list[float]]) -> None:
    twice = group_repeats(repeated([one * 2 for one in ratios]))
    np.testing.assert_allclose(twice.residual, group_repeats(repeated(ratios)).residual)


@pytest.mark.parametrize("what", ["victim", "pair", "platform", "setting"])
def test_what_differs_in_a_label_is_no_repeat(what: str) -> None:
    same = repeated([[0.5, 0.6]])
    assert len(group_repeats(same).examples) == 1
    first = getattr(same, what)[0]
    changed: Any = {what: (first, first + "x")}
    assert len(group_repeats(replace(same, **changed)).examples) == 2


def test_what_differs_in_one_feature_is_no_repeat_and_unknown_is_like_unknown() -> None:
    same = repeated([[0.5, 0.6]])
    assert np.isnan(same.x).any()
    other = same.x.copy()
    other[1, 1] = 0.0
    assert len(group_repeats(replace(same, x=other)).examples) == 2


def test_no_rows_make_no_groups() -> None:
    none = group_repeats(made_up([]))
    assert len(none.examples) == len(none.residual) == len(none.weight) == len(none.group) == 0


def test_the_target_is_the_log_of_measured_over_prior() -> None:
    np.testing.assert_allclose(target_of(made_up([("a", "b")], np.array([0.4]), base=0.8)), [np.log(0.5)])
