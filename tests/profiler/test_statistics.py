"""Intervals and spreads, against published ranks and against simulation."""

from __future__ import annotations

import random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.lab.statistics import bootstrap_interval, describe, interval, order_interval, variation


@pytest.mark.parametrize(("count", "low", "high"), [(6, 1, 6), (10, 2, 9), (20, 6, 15), (30, 10, 21)])
def test_order_intervals_use_the_known_ranks(count: int, low: int, high: int) -> None:
    values = [float(rank) for rank in range(1, count + 1)]
    assert order_interval(values) == (low, high)


def test_order_intervals_hold_the_median_about_as_often_as_they_say() -> None:
    draw = random.Random(1)
    held = 0
    for _ in range(1000):
        low, high = order_interval([draw.expovariate(1.0) for _ in range(10)])
        held += low <= 0.6931 <= high
    assert held / 1000 > 0.95


def test_one_value_has_no_interval_and_no_variation() -> None:
    assert interval([3.0]) == (None, None)
    assert describe([3.0]).cv is None


def test_no_values_cannot_be_described() -> None:
    with pytest.raises(ValueError, match="no values"):
        describe([])


def test_variation_is_the_sample_deviation_over_the_mean() -> None:
    assert variation([9.0, 11.0]) == pytest.approx(2**0.5 / 10)


def test_the_same_seed_gives_the_same_bootstrap() -> None:
    values = [1.0, 2.0, 5.0, 9.0]
    assert bootstrap_interval(values, median, 3) == bootstrap_interval(values, median, 3)


@given(st.lists(st.floats(0.1, 1e6), min_size=2, max_size=40))
def test_an_interval_holds_the_median_and_stays_within_the_values(values: list[float]) -> None:
    low, high = interval(values)
    assert low is not None
    assert high is not None
    assert min(values) <= low <= median(values) <= high <= max(values)
