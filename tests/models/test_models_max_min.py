"""Weighted max-min sharing against plain slow references, and what must hold of every sharing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Floats
from models.physics.demands import fill
from tests.examples import examples

DEMANDS = st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0, 1.5, 4.0]) | st.floats(0.01, 5)
WEIGHTS = st.sampled_from([1.0, 2.0, 10.0]) | st.floats(0.1, 50)


def plain_fill(capacity: float, demand: Floats, weight: Floats) -> Floats:
    """The common level by bisection."""
    if demand.sum() <= capacity:
        return demand
    low, high = 0.0, float((demand / weight).max())
    for _ in range(200):
        level = (low + high) / 2
        low, high = (low, level) if np.clip(level * weight, 0, demand).sum() > capacity else (level, high)
    return np.clip(low * weight, 0.0, demand)


@st.composite
def fills(draw: st.DrawFn) -> tuple[float, Floats, Floats]:
    count = draw(st.integers(1, 6))
    demand = np.array(draw(st.lists(DEMANDS, min_size=count, max_size=count)))
    weight = np.array(draw(st.lists(WEIGHTS, min_size=count, max_size=count)))
    return draw(st.sampled_from([0.0, 0.5, 1.0, 3.0]) | st.floats(0, 8)), demand, weight


@settings(max_examples=examples(150), deadline=None)
@given(fills())
def test_filling_agrees_with_a_bisection_for_the_common_level(case: tuple[float, Floats, Floats]) -> None:
    capacity, demand, weight = case
    got = fill(np.array([capacity]), demand[None], weight[None])[0]
    np.testing.assert_allclose(got, plain_fill(capacity, demand, weight), atol=1e-9)


@settings(max_examples=examples(100), deadline=None)
@given(fills())
def test_filling_hands_out_all_there_is_and_no_more_than_is_wanted(case: tuple[float, Floats, Floats]) -> None:
    capacity, demand, weight = case
    got = fill(np.array([capacity]), demand[None], weight[None])[0]
    assert got.sum() == pytest.approx(min(capacity, demand.sum()), abs=1e-9)
    assert (got <= demand).all()
    assert (got >= 0).all()


def test_a_capacity_that_differs_from_the_demand_by_rounding_still_serves_all_of_it() -> None:
    random = np.random.default_rng(0)
    for count in range(1, 7):
        demand, weight = random.uniform(0, 1e6, (2000, count)), random.uniform(1, 65_535, (2000, count))
        total = demand.sum(axis=1)
        got = fill(total - random.integers(-4, 12, 2000) * np.spacing(total), demand, weight)
        np.testing.assert_allclose(got, demand, rtol=1e-6)


def test_equal_consumers_get_equal_parts() -> None:
    np.testing.assert_allclose(fill(np.array([1.0]), np.ones((1, 4)), np.ones((1, 4))), 0.25)


def test_who_wants_little_gets_it_and_the_rest_is_shared() -> None:
    got = fill(np.array([1.0]), np.array([[0.1, 1.0, 1.0]]), np.ones((1, 3)))
    np.testing.assert_allclose(got, [[0.1, 0.45, 0.45]])


def test_unsatisfied_consumers_get_parts_in_proportion_to_their_weights() -> None:
    got = fill(np.array([3.0]), np.full((1, 2), 9.0), np.array([[1.0, 2.0]]))
    np.testing.assert_allclose(got, [[1.0, 2.0]])


def test_an_empty_scene_can_be_shared() -> None:
    assert fill(np.zeros(0), np.zeros((0, 3)), np.ones((0, 3))).shape == (0, 3)
    np.testing.assert_array_equal(fill(np.array([0.0]), np.ones((1, 2)), np.ones((1, 2))), [[0.0, 0.0]])
