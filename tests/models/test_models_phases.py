"""Change points: exact against a plain reference, quiet on noise, found where they are; series here are simulated."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Floats
from models.profiling.phases import SHORTEST, LevelSeries, Phases, as_levels, find_phases, partition
from tests.examples import examples
from tests.models.profiling_cases import resembling

SEEDS = st.integers(0, 2**31)
BOUNDS = settings(max_examples=examples(60), deadline=None)
TRACES = Path(__file__).parents[3] / "shared" / "data" / "traces" / "planetlab-20110303.csv.gz"
RUNS = 50  # simulated series behind each stated rate


def noise(seed: int, windows: int, metrics: int = 3, sigma: float = 0.1, correlation: float = 0.0) -> Floats:
    """Lognormal factors around 1, each window like the one before to the degree of `correlation`."""
    return np.asarray(np.exp(sigma * resembling(seed, windows, metrics, correlation)))


def phases_of(values: Floats) -> Phases:
    return find_phases(values, np.ones(values.shape[1]))


def steps(seed: int, *parts: tuple[float, int], sigma: float = 0.05) -> Floats:
    """A series of levels that last so many windows."""
    levels = np.concatenate([np.full(length, level) for level, length in parts])
    return levels[:, None] * noise(seed, len(levels), sigma=sigma)


def slow_partition(levels: LevelSeries, shortest: int) -> float:
    """Every way to cut a series, without any pruning and without running sums."""

    def cost(begin: int, end: int) -> float:
        y, weight = levels.y[begin:end], levels.weight[begin:end]
        total = weight.sum(axis=0)
        mean = np.divide((weight * y).sum(axis=0), total, out=np.zeros_like(total), where=total > 0)
        return float((weight * (y - mean) ** 2).sum())

    count = len(levels.y)
    best = [-levels.penalty] + [np.inf] * count
    for end in range(shortest, count + 1):
        begins = [begin for begin in range(end - shortest + 1) if np.isfinite(best[begin])]
        best[end] = min(best[begin] + cost(begin, end) + levels.penalty for begin in begins)
    return best[count]


@BOUNDS
@given(SEEDS, st.integers(2, 60), st.integers(1, 3), st.integers(1, 8), st.floats(0.1, 30), st.floats(0, 0.5))
def test_the_fast_search_finds_a_cheapest_partition(
    seed: int, windows: int, metrics: int, shortest: int, penalty: float, missing: float
) -> None:
    random = np.random.default_rng(seed)
    jumps = np.cumsum(random.normal(size=(windows, metrics)) * (random.random((windows, 1)) < 0.1) * 4, axis=0)
    weight = random.uniform(0.2, 3, (windows, metrics)) * (random.random((windows, metrics)) >= missing)
    levels = LevelSeries(jumps + random.normal(size=(windows, metrics)), weight, penalty)
    if windows < shortest:
        return
    changes, found = partition(levels, shortest)
    assert found == pytest.approx(slow_partition(levels, shortest), rel=1e-9, abs=1e-6)
    edges = (0, *changes, windows)
    assert all(end - begin >= shortest for begin, end in pairwise(edges))


@BOUNDS
@given(SEEDS, st.integers(12, 120))
def test_stationary_noise_is_one_phase_whatever_its_scale(seed: int, windows: int) -> None:
    quiet = phases_of(1e-3 + 50 * noise(seed, windows, sigma=0.02))
    assert quiet.count == 1
    assert quiet.changes == ()


@pytest.mark.parametrize(
    ("windows", "correlation", "most"),
    # Measured with 400 series each, at correlations of 0, 0.3, 0.6 and 0.8: 0.0, 0.0, 0.3, 2.0 % at 60 windows;
    # 0.0, 0.0, 0.0, 0.3 % at 360.
    [(60, 0.0, 0.02), (60, 0.6, 0.03), (60, 0.8, 0.06), (360, 0.0, 0.02), (360, 0.8, 0.03)],
)
def test_false_alarms_stay_rare_also_where_windows_resemble_each_other(
    windows: int, correlation: float, most: float
) -> None:
    found = [phases_of(noise(seed, windows, 5, 0.3, correlation)).count > 1 for seed in range(RUNS)]
    assert np.mean(found) <= most


@pytest.mark.parametrize(
    ("factor", "sigma", "correlation", "windows", "least"),
    # Measured with 300 series each: 100, 94, 100, 98 %, all at most 3 windows from where two of five metrics shift.
    [(1.5, 0.1, 0.3, 360, 0.95), (2.0, 0.1, 0.3, 60, 0.85), (4.0, 0.1, 0.6, 60, 0.9), (2.0, 0.3, 0.3, 360, 0.9)],
)
def test_a_real_shift_is_found_where_it_is(
    factor: float, sigma: float, correlation: float, windows: int, least: float
) -> None:
    hits = 0
    for seed in range(RUNS):
        values = 100 * noise(seed, windows, 5, sigma, correlation)
        values[windows // 2 :, :2] *= factor
        changes = phases_of(values).changes
        hits += len(changes) == 1 and abs(changes[0] - windows // 2) <= 3
    assert hits / RUNS >= least


def test_a_phase_that_comes_back_is_the_same_phase() -> None:
    found = phases_of(steps(1, (10, 20), (80, 20), (10, 20), (80, 20), (30, 20)))
    assert [int(found.labels[begin]) for begin, _ in found.stretches] == [0, 1, 0, 1, 2]
    assert found.changes == (20, 40, 60, 80)


@BOUNDS
@given(SEEDS, st.integers(10, 30), st.floats(3, 20))
def test_a_constant_phase_added_never_joins_others(seed: int, length: int, factor: float) -> None:
    """Measured with 2,400 series each: none is joined from 10 windows per phase on, 6 of 9 and 35 of 8 windows are, for
    two changes in so few windows pass for noise."""
    values = steps(seed, (10, length), (10 * factor, length))
    before = phases_of(values)
    longer = np.concatenate([values, np.full((length, values.shape[1]), 10 * factor**3)])
    after = phases_of(longer)
    apart = before.labels[:, None] != before.labels[None]
    assert (after.labels[: len(values), None] != after.labels[None, : len(values)])[apart].all()


@BOUNDS
@given(SEEDS, st.permutations(range(3)))
def test_the_order_of_metrics_does_not_matter(seed: int, order: list[int]) -> None:
    values = steps(seed, (10, 15), (40, 15), (10, 15), sigma=0.1)
    values[:, 1] *= 7
    assert phases_of(values).changes == phases_of(values[:, order]).changes


@pytest.mark.parametrize("at", [0, 1, 17, 38, 39])
@pytest.mark.parametrize("factor", [1e3, 1e-3])
def test_single_outliers_are_no_phase_and_hide_none(at: int, factor: float) -> None:
    flat, stepped = steps(2, (50, 40)), steps(3, (10, 20), (60, 20))
    flat[at] *= factor
    stepped[at] *= factor
    assert phases_of(flat).count == 1
    (change,) = phases_of(stepped).changes
    assert abs(change - 20) <= 1, "an outlier beside a change may move it by one window"


def test_nothing_shorter_than_the_shortest_is_a_phase() -> None:
    assert phases_of(steps(4, (10, 20), (80, SHORTEST - 4), (10, 20))).count == 1
    assert phases_of(steps(4, (10, 20), (80, SHORTEST + 2), (10, 20))).count == 2
    assert phases_of(steps(4, (10, SHORTEST), (80, SHORTEST - 1))).count == 1


def test_missing_windows_and_metrics_do_not_hide_a_change() -> None:
    values = steps(5, (10, 30), (40, 30))
    values[::3, 0] = np.nan
    values[:, 1] = np.nan
    values[20:25] = np.nan
    assert phases_of(values).changes == (30,)


@pytest.mark.parametrize("shape", [(0, 2), (1, 2), (5, 0), (100, 0)])
def test_without_anything_to_see_there_is_one_phase_at_most(shape: tuple[int, int]) -> None:
    found = phases_of(np.ones(shape))
    assert found.count == min(shape[0], 1)
    assert len(found.labels) == shape[0]


def test_a_series_of_which_nothing_is_known_is_one_phase() -> None:
    assert phases_of(np.full((40, 2), np.nan)).count == 1


def test_a_quiet_phase_does_not_make_a_noisy_one_look_like_many() -> None:
    values = np.concatenate([np.full((200, 3), 5.0), 60 * noise(6, 200, sigma=0.3)])
    assert phases_of(values).changes == (200,)


def test_copies_of_one_metric_weigh_no_more_than_the_metric() -> None:
    """Five copies of a noisy metric are worth one: their penalty grows with what they are worth together."""
    one = noise(7, 200, 1, 0.3)
    copied = as_levels(100 * np.repeat(one, 5, axis=1), np.ones(5))
    single = as_levels(100 * one, np.ones(1))
    assert copied.penalty == pytest.approx(5 * single.penalty)
    assert partition(copied, SHORTEST)[0] == partition(single, SHORTEST)[0]


def test_bursts_that_are_common_are_noise() -> None:
    """Mostly idle with a burst in every fifth window, as real traces are: quiet stretches are no phases."""
    found = 0
    for seed in range(RUNS):
        random = np.random.default_rng(seed)
        values = np.where(random.random((288, 1)) < 0.2, 40.0, 2.0) * noise(seed, 288, 1, 0.1)
        found += phases_of(values).count > 1
    assert found / RUNS <= 0.03


@pytest.mark.skipif(not TRACES.is_file(), reason="the folder of shared traces is not beside the repository")
def test_real_traces_in_random_order_have_no_phases_and_some_have_as_they_are() -> None:
    """A day of CPU of 88 PlanetLab VMs, five-minute windows: 22 % have phases, none once their order is lost; of three
    times as many 0.4 % have."""
    random = np.random.default_rng(0)
    with gzip.open(TRACES, "rt", encoding="utf-8") as file:
        traces = [np.array([float(cell) for cell in line.split(",")[1:]])[:, None] for line in file][::12]
    floor = np.array([2.0])
    ordered = np.mean([find_phases(trace, floor).count > 1 for trace in traces])
    shuffled = np.mean([find_phases(random.permutation(trace), floor).count > 1 for trace in traces])
    assert shuffled <= 0.02
    assert ordered >= 5 * shuffled
    assert ordered > 0.1
