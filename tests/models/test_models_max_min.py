"""Weighted max-min sharing against plain slow references, and what must hold of every sharing."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Bools, Floats
from models.physics.max_min import cpu_classes, fill, share_sets

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


def plain_share(demand: Floats, weight: Floats, allowed: Bools, capacity: Floats) -> Floats:
    """Progressive filling: everybody's level rises together; who is satisfied stops, and so does everybody confined to
    resources that are used up. A set of resources is used up by those who may use no other (Hall's condition)."""
    got = np.zeros(len(demand))
    still = (demand > 0) & allowed.any(axis=1)
    subsets = [np.array(subset) for subset in product([False, True], repeat=len(capacity)) if any(subset)]
    confined = [allowed.any(axis=1) & ~(allowed & ~subset).any(axis=1) for subset in subsets]
    while still.any():
        tight = [
            ((capacity[subset].sum() - got[inside & ~still].sum()) / weight[inside & still].sum(), inside)
            for subset, inside in zip(subsets, confined, strict=True)
            if (inside & still).any()
        ]
        level = min(float((demand / weight)[still].min()), *(at for at, _ in tight), np.inf)
        stopped = still & (demand / weight <= level + 1e-12)
        for at, inside in tight:
            stopped |= still & inside if at <= level + 1e-12 else False
        got = np.where(stopped, np.clip(level * weight, 0.0, demand), got)
        still &= ~stopped
    return got


@st.composite
def fills(draw: st.DrawFn) -> tuple[float, Floats, Floats]:
    count = draw(st.integers(1, 6))
    demand = np.array(draw(st.lists(DEMANDS, min_size=count, max_size=count)))
    weight = np.array(draw(st.lists(WEIGHTS, min_size=count, max_size=count)))
    return draw(st.sampled_from([0.0, 0.5, 1.0, 3.0]) | st.floats(0, 8)), demand, weight


@st.composite
def shares(draw: st.DrawFn) -> tuple[Floats, Floats, Bools, Floats]:
    count, classes = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    flags = draw(st.lists(st.booleans(), min_size=count * classes, max_size=count * classes))
    return (
        np.array(draw(st.lists(DEMANDS, min_size=count, max_size=count))),
        np.array(draw(st.lists(WEIGHTS, min_size=count, max_size=count))),
        np.array(flags).reshape(count, classes),
        np.array(draw(st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=classes, max_size=classes))),
    )


def one(demand: Floats, weight: Floats, allowed: Bools, capacity: Floats) -> Floats:
    """`share_sets` for a single scene."""
    return np.asarray(share_sets(demand[None], weight[None], allowed[None], capacity[None])[0])


@settings(max_examples=150, deadline=None)
@given(fills())
def test_filling_agrees_with_a_bisection_for_the_common_level(case: tuple[float, Floats, Floats]) -> None:
    capacity, demand, weight = case
    got = fill(np.array([capacity]), demand[None], weight[None])[0]
    np.testing.assert_allclose(got, plain_fill(capacity, demand, weight), atol=1e-9)


@settings(max_examples=100, deadline=None)
@given(fills())
def test_filling_hands_out_all_there_is_and_no_more_than_is_wanted(case: tuple[float, Floats, Floats]) -> None:
    capacity, demand, weight = case
    got = fill(np.array([capacity]), demand[None], weight[None])[0]
    assert got.sum() == pytest.approx(min(capacity, demand.sum()), abs=1e-9)
    assert (got <= demand).all()
    assert (got >= 0).all()


def test_a_capacity_that_differs_from_the_demand_by_rounding_still_serves_everybody() -> None:
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


def test_nobody_and_nothing_can_be_shared() -> None:
    assert fill(np.zeros(0), np.zeros((0, 3)), np.ones((0, 3))).shape == (0, 3)
    np.testing.assert_array_equal(fill(np.array([0.0]), np.ones((1, 2)), np.ones((1, 2))), [[0.0, 0.0]])
    assert share_sets(np.zeros((0, 2)), np.ones((0, 2)), np.ones((0, 2, 3), bool), np.ones((0, 3))).shape == (0, 2)


@settings(max_examples=150, deadline=None)
@given(shares())
def test_sharing_by_sets_agrees_with_progressive_filling(case: tuple[Floats, Floats, Bools, Floats]) -> None:
    np.testing.assert_allclose(one(*case), plain_share(*case), atol=1e-6)


def test_sharing_by_sets_agrees_with_progressive_filling_where_sets_overlap_at_random() -> None:
    random = np.random.default_rng(3)
    for consumers, classes in ((9, 5), (7, 6)):
        demand = random.choice([0.05, 0.2, 0.5, 1, 2, 4], (12, consumers)) * random.uniform(0.5, 1, (12, consumers))
        weight = random.choice([1.0, 2.0, 7.0], (12, consumers))
        allowed = random.random((12, consumers, classes)) < 0.4
        capacity = random.integers(1, 4, (12, classes)).astype(float)
        got = share_sets(demand, weight, allowed, capacity)
        for row in range(12):
            expected = plain_share(demand[row], weight[row], allowed[row], capacity[row])
            np.testing.assert_allclose(got[row], expected, atol=1e-6)


SETS = {
    "one CPU for both": ([1.0, 1.0], [[1], [1]], [1.0], [0.5, 0.5]),
    "each its own": ([1.0, 1.0], [[1, 0], [0, 1]], [1.0, 1.0], [1.0, 1.0]),
    "a confined one and a free one": ([1.0, 1.0], [[1, 0], [1, 1]], [1.0, 1.0], [1.0, 1.0]),
    "nested, all hungry": ([9.0, 9.0, 9.0], [[1, 0], [1, 1], [1, 1]], [1.0, 2.0], [1.0, 1.0, 1.0]),
    "nested, two confined": ([9.0, 9.0, 9.0], [[1, 0], [1, 0], [1, 1]], [1.0, 1.0], [0.5, 0.5, 1.0]),
    "chained": ([9.0, 9.0, 9.0], [[1, 0, 0], [1, 1, 0], [0, 1, 1]], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]),
    "the small one makes way": ([1.0, 0.2, 0.3], [[1, 0], [1, 1], [0, 1]], [1.0, 1.0], [1.0, 0.2, 0.3]),
    "two small ones make way, one after the other": (
        [1.0, 0.5, 0.5, 0.1],
        [[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1]],
        [1.0, 0.5, 1.0],
        [1.0, 0.5, 0.5, 0.1],
    ),
    "a CPU that nobody may use": ([1.0, 1.0], [[1, 0], [1, 0]], [1.0, 5.0], [0.5, 0.5]),
    "who may use nothing gets nothing": ([1.0, 1.0], [[0], [1]], [1.0], [0.0, 1.0]),
}


@pytest.mark.parametrize("name", SETS)
def test_limiting_cases_of_sharing_by_sets_are_exact(name: str) -> None:
    demand, allowed, capacity, expected = SETS[name]
    got = one(np.array(demand), np.ones(len(demand)), np.array(allowed, dtype=bool), np.array(capacity))
    np.testing.assert_allclose(got, expected, atol=1e-9)


@settings(max_examples=100, deadline=None)
@given(shares())
def test_sharing_by_sets_gives_away_no_more_than_any_set_of_cpus_holds(
    case: tuple[Floats, Floats, Bools, Floats],
) -> None:
    demand, _, allowed, capacity = case
    got = one(*case)
    assert (got <= demand + 1e-9).all()
    for subset in product([False, True], repeat=len(capacity)):
        inside = ~(allowed & ~np.array(subset)).any(axis=1)
        assert got[inside].sum() <= capacity[list(subset)].sum() + 1e-6


@settings(max_examples=100, deadline=None)
@given(shares(), st.data())
def test_more_demand_of_another_never_gives_me_more(
    case: tuple[Floats, Floats, Bools, Floats], data: st.DataObject
) -> None:
    demand, weight, allowed, capacity = case
    greedy = data.draw(st.integers(0, len(demand) - 1))
    more = demand.copy()
    more[greedy] += data.draw(st.floats(0.05, 3))
    gain = one(more, weight, allowed, capacity) - one(demand, weight, allowed, capacity)
    assert (np.delete(gain, greedy) <= 1e-6).all()
    assert gain[greedy] >= -1e-6


@settings(max_examples=80, deadline=None)
@given(shares(), st.data())
def test_a_higher_weight_never_hurts_its_owner(case: tuple[Floats, Floats, Bools, Floats], data: st.DataObject) -> None:
    demand, weight, allowed, capacity = case
    heavy = data.draw(st.integers(0, len(demand) - 1))
    more = weight.copy()
    more[heavy] *= data.draw(st.floats(1.1, 20))
    gain = one(demand, more, allowed, capacity) - one(demand, weight, allowed, capacity)
    assert gain[heavy] >= -1e-6
    assert (np.delete(gain, heavy) <= 1e-6).all()


@settings(max_examples=80, deadline=None)
@given(shares(), st.data())
def test_shares_do_not_depend_on_the_order_of_consumers_or_cpus(
    case: tuple[Floats, Floats, Bools, Floats], data: st.DataObject
) -> None:
    demand, weight, allowed, capacity = case
    consumers = data.draw(st.permutations(range(len(demand))))
    classes = data.draw(st.permutations(range(len(capacity))))
    mixed = one(demand[consumers], weight[consumers], allowed[consumers][:, classes], capacity[classes])
    np.testing.assert_allclose(mixed, one(*case)[consumers], atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.lists(shares(), min_size=2, max_size=4))
def test_a_scene_is_shared_alike_whatever_other_scenes_are_with_it(
    cases: list[tuple[Floats, Floats, Bools, Floats]],
) -> None:
    consumers, classes = max(len(case[0]) for case in cases), max(len(case[3]) for case in cases)
    demand, weight = np.zeros((len(cases), consumers)), np.ones((len(cases), consumers))
    allowed, capacity = np.zeros((len(cases), consumers, classes), bool), np.zeros((len(cases), classes))
    for row, case in enumerate(cases):
        mine, its = len(case[0]), len(case[3])
        demand[row, :mine], weight[row, :mine] = case[0], case[1]
        allowed[row, :mine, :its], capacity[row, :its] = case[2], case[3]
    together = share_sets(demand, weight, allowed, capacity)
    for row, case in enumerate(cases):
        np.testing.assert_allclose(together[row, : len(case[0])], one(*case), atol=1e-9)
        assert not together[row, len(case[0]) :].any()


@settings(max_examples=80, deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(0, 9), st.integers(1, 6))
def test_cpu_classes_join_the_cpus_that_the_same_consumers_may_use(
    data: st.DataObject, count: int, consumers: int, width: int
) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=count * consumers * width, max_size=count * consumers * width))
    affinity = np.array(flags, dtype=bool).reshape(count, consumers, width)
    pcpus = np.array(data.draw(st.lists(st.integers(1, width), min_size=count, max_size=count)), dtype=float)
    allowed, capacity = cpu_classes(affinity, pcpus)
    for scene in range(count):
        naive: dict[tuple[bool, ...], float] = {}
        for cpu in range(int(pcpus[scene])):
            who = tuple(bool(flag) for flag in affinity[scene, :, cpu])
            if any(who):
                naive[who] = naive.get(who, 0.0) + 1.0
        found = {
            tuple(bool(flag) for flag in allowed[scene, :, one]): float(capacity[scene, one])
            for one in range(capacity.shape[1])
            if capacity[scene, one]
        }
        assert found == naive
        assert not allowed[scene][:, capacity[scene] == 0].any()
