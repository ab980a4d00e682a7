"""Leaves of small trees: bit by bit what LightGBM says, whatever the trees and the rows, and nothing of other trees."""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Floats
from models.learning.kernel_ridge import KernelRidge, fit_kernel_ridge
from models.learning.quickscorer import CELLS, MOST_LEAVES, QuickScorer
from models.learning.residual_model import BaseLearners
from tests.examples import examples

COLUMNS = 5


def data(seed: int, rows: int = 300, unknown: float = 0.1) -> tuple[Floats, Floats]:
    """Rows with whole numbers, zeros, infinities and what is unknown, and a target that depends on some of them."""
    random = np.random.default_rng(seed)
    x = np.round(random.normal(0, 3, (rows, COLUMNS)), random.integers(0, 3))
    target = np.where(x[:, 0] > 0, x[:, 1], x[:, 2]) + random.normal(0, 0.1, rows)
    x[random.random(x.shape) < unknown] = np.nan
    x[random.random(x.shape) < 0.05] = np.inf
    return x, target


def trained(seed: int, leaves: int, unknown: float = 0.1, **options: Any) -> lightgbm.Booster:
    x, target = data(seed, unknown=unknown)
    how = {"num_leaves": leaves, "min_data_in_leaf": 2, "verbosity": -1, "num_threads": 1, "seed": seed, **options}
    return lightgbm.train(how, lightgbm.Dataset(x, target, params={"verbosity": -1}), num_boost_round=12)


def walked(boosters: list[lightgbm.Booster], x: Floats) -> Floats:
    return np.stack([booster.predict(x, num_threads=1) for booster in boosters])


@pytest.fixture(scope="module")
def smooth() -> tuple[KernelRidge, Floats]:
    """A smooth member, as it is trained on rows that are known, and these rows."""
    x, target = data(0, unknown=0.0)
    x[~np.isfinite(x)] = 0.0
    folds = [(np.arange(200), np.arange(200, len(x)))]
    return fit_kernel_ridge(x, target, np.ones(len(x)), ["own a"] * COLUMNS, folds, seed=0), x


@settings(max_examples=examples(40), deadline=None)
@given(
    leaves=st.integers(2, MOST_LEAVES),
    unknown=st.sampled_from([0.0, 0.1, 0.6]),
    rows=st.sampled_from([1, 2, 3, 40, CELLS // 24 + 1]),
    seed=st.integers(0, 99),
)
def test_the_answer_is_that_of_walking_through_every_tree(leaves: int, unknown: float, rows: int, seed: int) -> None:
    """Unknown values that training had and had not, infinite ones, values that are thresholds, one row and many."""
    boosters = [trained(seed, leaves, unknown), trained(seed + 1, max(leaves - 1, 2), 0.0)]
    fast = QuickScorer.of(boosters)
    assert fast is not None
    x = data(seed + 7, rows, 0.3)[0]
    x[0, : len(fast.threshold)] = fast.threshold[:COLUMNS, 0]
    np.testing.assert_array_equal(fast(x), walked(boosters, x))


def test_the_answer_to_a_row_does_not_depend_on_who_is_asked_about_with_it() -> None:
    fast = QuickScorer.of([trained(0, 8)])
    assert fast is not None
    x, _ = data(5, 700)
    np.testing.assert_array_equal(fast(x)[0], np.concatenate([fast(x[[row]])[0] for row in range(len(x))]))


def test_a_tree_that_never_splits_says_the_same_to_everybody() -> None:
    x, _ = data(0)
    same = lightgbm.Dataset(x, np.full(len(x), 2.5), params={"verbosity": -1})
    boosters = [lightgbm.train({"verbosity": -1, "num_leaves": 4}, same, 2)]
    fast = QuickScorer.of(boosters)
    assert fast is not None
    np.testing.assert_array_equal(fast(x), walked(boosters, x))


@pytest.mark.parametrize(
    ("leaves", "options"),
    [(MOST_LEAVES + 8, {}), (4, {"zero_as_missing": True})],
    ids=["too many leaves", "zero is unknown"],
)
def test_other_trees_are_left_to_lightgbm(
    smooth: tuple[KernelRidge, Floats], leaves: int, options: dict[str, Any]
) -> None:
    booster = trained(0, leaves, 0.4, **options)
    assert QuickScorer.of([booster]) is None
    one, x = smooth
    members, base = BaseLearners((booster,), booster, one, (booster,)), np.full(len(x), 0.5)
    np.testing.assert_array_equal(members.answer(x, base), members.predict(x, base))


def test_members_answer_as_they_do_while_they_are_judged(smooth: tuple[KernelRidge, Floats]) -> None:
    one, x = smooth
    base = np.full(len(x), 0.5)
    for direct in ((), (trained(3, 7), trained(4, 7))):
        members = BaseLearners((trained(0, 7), trained(1, 7)), trained(2, 20), one, direct)
        np.testing.assert_array_equal(members.answer(x, base), members.predict(x, base))
