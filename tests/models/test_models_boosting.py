"""Boosted trees and the forest: more pressure never helps and a higher cap never hurts, whatever the data say."""

from __future__ import annotations

from functools import cache

import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Floats
from models.features.feature_matrix import FeatureMatrix, build_matrix
from models.learning.boosting import MANY_ROWS, SEEDS, SEEDS_OF_MANY, booster_options, fit_boosters, fit_forest, predict
from tests.examples import examples
from tests.models.made_models import limit_trees
from tests.models.synthetic import TABLE, batch, host, instance

ROWS = 300


@cache
def rows() -> tuple[FeatureMatrix, Floats]:
    """Rows of real scenes with features drawn at random and residuals that say the contrary of physics."""
    matrix = build_matrix(batch((host("kvm", 2), [instance("a"), instance("b")])), TABLE.columns)
    random = np.random.default_rng(0)
    x = random.uniform(0, 100, (ROWS, len(matrix.names)))
    x[random.random(x.shape) < 0.1] = np.nan
    x[:, matrix.names.index("cap")] = random.choice([0.1, 0.5, 1.5, np.inf], ROWS)
    return matrix, x


@cache
def members(kind: str) -> tuple[lightgbm.Booster, ...]:
    matrix, x = rows()
    pressing, cap = matrix.names.index("near cpu"), matrix.names.index("cap")
    noise = np.random.default_rng(1).normal(0, 0.3, ROWS)
    odd = np.nan_to_num(x[:, pressing]) / 50 - np.minimum(x[:, cap], 2.0) + noise
    if kind == "boosters":
        return fit_boosters(x, odd, np.ones(ROWS), matrix.monotone, seed=0, count=2)
    return (fit_forest(x, odd, np.ones(ROWS), matrix.monotone, seed=0),)


RISING, PRESSING = (
    [name for name, way in zip(rows()[0].names, rows()[0].monotone, strict=True) if way == wanted] for wanted in (1, -1)
)


def changed(name: str, row: int, low: float, high: float, kind: str) -> tuple[float, float]:
    """What trees say of a row with a feature at one value and at another."""
    matrix, x = rows()
    two = np.repeat(x[[row]], 2, axis=0)
    two[:, matrix.names.index(name)] = low, high
    one, other = predict(members(kind), two)
    return float(one), float(other)


VALUES = st.floats(0, 200) | st.just(np.inf)


@pytest.mark.parametrize("kind", ["boosters", "forest"])
@pytest.mark.parametrize(
    ("names", "way"), [(PRESSING, -1), (RISING, 1)], ids=["more-pressure-never-helps", "a-higher-limit-never-hurts"]
)
@pytest.mark.hypothesis
def test_trees_heed_the_constraints(names: list[str], way: int, kind: str) -> None:
    @settings(max_examples=examples(60), deadline=None)
    @given(st.sampled_from(names), st.integers(0, ROWS - 1), st.tuples(VALUES, VALUES))
    def check(name: str, row: int, values: tuple[float, float]) -> None:
        low, high = changed(name, row, min(values), max(values), kind)
        assert way * (high - low) >= -1e-12

    check()


def test_without_the_constraints_the_same_data_teach_the_contrary() -> None:
    """So that the test above can fail."""
    matrix, x = rows()
    at = matrix.names.index("near cpu")
    free = fit_boosters(x, np.nan_to_num(x[:, at]), None, np.zeros_like(matrix.monotone), seed=0, count=1)
    two = np.repeat(x[:50], 2, axis=0)
    two[0::2, at], two[1::2, at] = 5.0, 95.0
    said = predict(free, two)
    assert (said[1::2] > said[0::2]).all()


def test_what_is_constrained_is_what_physics_says() -> None:
    assert {"near cpu", "host net_mbit", "near disk_mb_s", "neighbours", "cpu_crowd"} <= set(PRESSING)
    assert set(RISING) == {"cap", "net_rate", "disk_limit"}
    assert not {"near block", "prior", "prior cpu", "own cpu", "load"} & {*PRESSING, *RISING}


def test_few_rows_are_answered_by_more_boosters_than_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_trees(monkeypatch)
    random = np.random.default_rng(2)
    x, free = random.random((60, 2)), np.zeros(2, dtype=np.int8)
    assert len(fit_boosters(x, x[:, 0], None, free, seed=0)) == SEEDS
    many = random.random((MANY_ROWS, 1))
    few, rounds = booster_options(100, seed=0)[1], booster_options(MANY_ROWS, seed=0)[1]
    assert rounds > few
    assert len(fit_boosters(many, many[:, 0], None, free[:1], seed=0)) == SEEDS_OF_MANY < SEEDS


def test_several_boosters_answer_by_their_mean_and_the_same_seed_says_the_same() -> None:
    random = np.random.default_rng(3)
    x = random.random((80, 3))
    y = x @ [1.0, -1.0, 0.0]
    free = np.zeros(3, dtype=np.int8)
    found, again = (fit_boosters(x, y, None, free, seed=4, count=3) for _ in range(2))
    np.testing.assert_allclose(predict(found, x), np.mean([predict([one], x) for one in found], axis=0))
    np.testing.assert_array_equal(predict(found, x), predict(again, x))
    assert np.abs(predict(found[:1], x) - predict(found[1:2], x)).max() > 0
    assert np.abs(predict(found[:1], x) - y).mean() < np.abs(y - y.mean()).mean() / 2


def test_a_row_that_counts_nothing_teaches_nothing() -> None:
    x = np.repeat([[0.0], [1.0]], 60, axis=0)
    y = np.repeat([0.0, 1.0, 5.0], [60, 30, 30])
    weight = np.repeat([1.0, 1.0, 1e-6], [60, 30, 30])
    found = fit_boosters(x, y, weight, np.zeros(1, dtype=np.int8), seed=0, count=1)
    assert predict(found, np.array([[1.0]]))[0] == pytest.approx(1.0, abs=0.1)
