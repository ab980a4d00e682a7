"""Intervals and spreads, against published ranks and against simulation."""

from __future__ import annotations

import math
import random
from statistics import fmean, median, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.statistics import (
    hierarchical_interval,
    order_interval,
    variation,
    window_replicates,
)


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


def test_variation_is_the_sample_deviation_over_the_mean() -> None:
    assert variation([9.0, 11.0]) == pytest.approx(2**0.5 / 10)


def test_replicates_spread_as_the_mean_of_so_many_windows_does() -> None:
    draw = random.Random(1)
    windows = [draw.gauss(50.0, 5.0) for _ in range(16)]
    replicates = window_replicates(1000.0, windows, 4000, random.Random(2))
    assert fmean(replicates) == pytest.approx(1000.0, rel=5e-3)
    wanted = 1000.0 * stdev(windows) / fmean(windows) / math.sqrt(len(windows))
    assert stdev(replicates) == pytest.approx(wanted, rel=0.1)


@pytest.mark.parametrize("windows", [[], [5.0], [0.0, 0.0]])
def test_without_windows_that_tell_a_value_has_no_spread(windows: list[float]) -> None:
    assert set(window_replicates(7.0, windows, 10, random.Random(1))) == {7.0}


@given(st.lists(st.lists(st.floats(0.5, 2.0), min_size=20, max_size=20), min_size=2, max_size=5), st.floats(0.1, 10))
def test_a_hierarchical_interval_holds_its_middle_and_scales_with_the_values(
    rounds: list[list[float]], factor: float
) -> None:
    middle = median(median(replicates) for replicates in rounds)
    low, high = hierarchical_interval(middle, rounds)
    assert low <= middle <= high
    scaled = hierarchical_interval(middle * factor, [[value * factor for value in replicates] for replicates in rounds])
    assert scaled == pytest.approx((low * factor, high * factor))


def test_the_exact_interval_is_what_drawing_rounds_and_replicates_gives() -> None:
    draw = random.Random(3)
    rounds = [[draw.gauss(centre, 0.02) for _ in range(400)] for centre in (0.48, 0.50, 0.51, 0.53, 0.49)]
    drawn = sorted(median(draw.choice(draw.choice(rounds)) for _ in rounds) for _ in range(20_000))
    middle = 0.50
    low, high = hierarchical_interval(middle, rounds)
    stretch = math.sqrt(5 / 4)
    assert low == pytest.approx(middle - stretch * (middle - drawn[500]), abs=0.002)
    assert high == pytest.approx(middle + stretch * (drawn[19_500] - middle), abs=0.002)


@pytest.mark.parametrize(
    ("count", "between", "within", "least"),
    [(3, 0.02, 0.05, 0.95), (3, 0.03, 0.02, 0.85), (5, 0.02, 0.05, 0.95), (5, 0.03, 0.02, 0.93)],
)
def test_hierarchical_intervals_hold_a_true_ratio_about_as_often_as_they_say(
    count: int, between: float, within: float, least: float
) -> None:
    """Rounds and windows are noisy around a true T/B of 0.5; `between` and `within` are their standard deviations."""
    draw = random.Random(5)
    held = 0
    for _ in range(300):
        ratios, rounds = [], []
        for _ in range(count):
            together, alone = (centre * math.exp(draw.gauss(0, between)) for centre in (0.5, 1.0))
            top = [together * draw.gauss(1, within) for _ in range(12)]
            bottom = [alone * draw.gauss(1, within) for _ in range(12)]
            ratios.append(fmean(top) / fmean(bottom))
            pools = [window_replicates(fmean(windows), windows, 100, draw) for windows in (top, bottom)]
            rounds.append([one / other for one, other in zip(*pools, strict=True)])
        low, high = hierarchical_interval(median(ratios), rounds)
        held += low <= 0.5 <= high
    assert held / 300 >= least
