"""Hours of the day in contention: peaks that coincide hurt, opposite ones do not, and company helps none."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Floats
from models.data.scene import CPU_DEMAND, DAY_PARTS, cpu_demand
from models.physics.contention import beside_the_day, moments
from models.physics.cpu_contention import moment_factors
from models.physics.demands import demands as wanted_of
from models.physics.peak_demand import FIGURES, demand_sums, p95
from models.physics.prior import PriorResult, solve
from profiler.demand import Demand
from profiler.observed import Instance
from tests.examples import examples
from tests.models.synthetic import batch, wanting

BOUND = 0.05  # of a share, by which the approximation may let company help; see test_models_cpu_contention
depths, phases, means = st.floats(0.0, 1.0), st.floats(0.0, 24.0), st.floats(0.1, 3.5)


def day(depth: float, peak: float) -> tuple[float, ...]:
    """24 factors of the mean, highest at an hour of the day."""
    return tuple(1 + depth * math.cos(2 * math.pi * (hour + 0.5 - peak) / 24) for hour in range(24))


def wants(mean: float, hours: tuple[float, ...] = ()) -> Demand:
    return Demand(mean, spread=mean, hours=hours, common=0.0, windows=2016.0, open_loop=1.0, origin="measured")


def shared(*demands: Demand, pcpus: int = 4) -> PriorResult:
    return solve(batch(wanting(*demands, pcpus=pcpus)))


@given(mean=st.floats(0.3, 2.0), depth=st.floats(0.3, 1.0), peak=phases, pairs=st.integers(1, 3))
@settings(max_examples=examples(25))
def test_opposite_days_are_better_company_than_the_same(mean: float, depth: float, peak: float, pairs: int) -> None:
    """Of hosts that have CPUs enough on average; who never has enough is not helped by a steady lack of them."""
    mine, opposite = wants(mean, day(depth, peak)), wants(mean, day(depth, peak + 12))
    pcpus = math.ceil(2 * pairs * mean / 0.6)
    same, apart = (shared(*[mine] * pairs, *[one] * pairs, pcpus=pcpus) for one in (mine, opposite))
    assert (apart.cpu.share >= same.cpu.share - 1e-9).all()
    assert (apart.cpu.worst >= same.cpu.worst - 1e-9).all()


def test_the_nearer_two_peaks_are_the_more_they_hurt() -> None:
    first = wants(2.0, day(0.9, 3))
    found = []
    for apart in range(13):
        other = wants(2.0, day(0.9, 3 + apart))
        found.append(float(shared(*[first] * 4, *[other] * 4, pcpus=24).cpu.share[0, 0]))
    assert (np.diff(found) >= -1e-3).all(), "but for what the nodes between which rates are interpolated cost"
    assert found[-1] > found[0] + 0.05


def test_hours_that_are_all_zero_say_no_more_than_none() -> None:
    with np.errstate(all="raise"):
        found = cpu_demand(Instance("a", vcpus=4, demand={"cpu": wants(1.0, (0.0,) * 24)}))
    assert np.isnan(found[-len(DAY_PARTS) :]).all()


def test_hours_that_are_all_alike_change_nothing() -> None:
    alike = (1.0,) * 24
    with_hours, without = (shared(*[wants(1.5, hours)] * 3) for hours in (alike, ()))
    np.testing.assert_allclose(with_hours.cpu.share, without.cpu.share, atol=1e-12)


def test_a_week_counts_by_its_mean_day() -> None:
    week = day(0.8, 9) * 5 + (1.0,) * 48
    mean_day = tuple(float(one) for one in np.array(week).reshape(7, 24).mean(axis=0))
    of_week, of_day = (
        cpu_demand(Instance("a", vcpus=4, demand={"cpu": wants(1.0, hours)})) for hours in (week, mean_day)
    )
    np.testing.assert_allclose(of_week, of_day)


@given(shape=st.lists(st.floats(0, 24), min_size=24, max_size=24).filter(lambda one: sum(one) > 1), mean=means)
def test_parts_of_a_day_are_the_means_of_its_hours(shape: list[float], mean: float) -> None:
    hours = np.array(shape) * 24 / sum(shape)
    found = cpu_demand(Instance("a", vcpus=4, demand={"cpu": wants(mean, tuple(hours))}))
    assert len(found) == len(CPU_DEMAND)
    assert found[-len(DAY_PARTS) :] == pytest.approx((hours[::2] + hours[1::2]) / 2)


@given(st.lists(st.tuples(means, depths, phases), min_size=2, max_size=6), st.integers(2, 12))
@settings(max_examples=examples(25))
def test_one_more_neighbour_whatever_its_day_never_helps_beyond_the_bound(
    cast: list[tuple[float, float, float]], pcpus: int
) -> None:
    demands = [wants(mean, day(depth, peak)) for mean, depth, peak in cast]
    before, after = shared(*demands[:-1], pcpus=pcpus), shared(*demands, pcpus=pcpus)
    assert (after.cpu.share[0, :-1] <= before.cpu.share[0] + BOUND).all()


def parts(depth: Floats, peak: Floats) -> Floats:
    """Factors of the parts of such days, (N, 12)."""
    return np.array([np.array(day(*one)).reshape(12, 2).mean(axis=1) for one in zip(depth, peak, strict=True)])


@given(st.lists(st.tuples(means, depths, phases), min_size=1, max_size=8), st.floats(0.0, 0.6))
def test_over_moments_each_has_its_mean_demand_and_the_sum_follows_day_and_chance(
    cast: list[tuple[float, float, float]], moves: float
) -> None:
    mean, depth, peak = (np.array(values) for values in zip(*cast, strict=True))
    z, chance = moments()
    of_day = parts(depth, peak)
    factors = moment_factors(mean, np.full(len(mean), moves), of_day, z, chance)
    if len(factors) == 1:
        assert (factors == 1).all()
        return
    np.testing.assert_allclose(chance @ factors, 1.0, rtol=1e-9)
    together = factors @ mean
    assert (np.diff(together) >= -1e-9).all(), "from the calmest moment to the busiest one"
    spread = np.exp(moves * z)
    points = (mean @ of_day)[:, None] * (spread / (spread @ chance))
    assert together[-1] <= points.max() + 1e-9
    busiest = np.sort(np.repeat(points.ravel(), np.tile(np.round(1000 * chance).astype(int), len(DAY_PARTS))))[-120:]
    assert together[-1] == pytest.approx(busiest.mean(), rel=1e-6), "the mean of the worst hundredth of all"


def test_what_beside_the_day_is_left_of_a_spread_is_that_of_the_whole() -> None:
    depth, mean = np.array([[0.0, 0.5, 1.0]]), np.array([[1.0, 2.0, 3.0]])
    of_day = parts(depth[0], np.zeros(3))[None]
    left, common = beside_the_day(mean, mean, np.full((1, 3), 0.4), of_day)
    by_day = of_day.var(axis=2)
    np.testing.assert_allclose(mean**2 * by_day + left**2 * (1 + by_day), mean**2)
    assert common[0, 0] == pytest.approx(0.4)
    assert (np.diff(common) < 0).all(), "what all have in common is the day first of all"


def test_at_busy_times_a_host_wants_what_coincides() -> None:
    at_noon, at_night = wants(2.0, day(0.9, 12)), wants(2.0, day(0.9, 0))

    def busy(*cast: Demand) -> float:
        scenes = batch(wanting(*cast, pcpus=16))
        sums = demand_sums(scenes, wanted_of(scenes))
        assert sums[0, 0, FIGURES:].mean() == pytest.approx(sums[0, 0, 0])
        return float(p95(sums[:, 0])[0])

    flat = busy(*[wants(2.0)] * 4)
    assert busy(at_noon, at_noon, at_noon, at_noon) > flat
    assert busy(at_noon, at_noon, at_night, at_night) < flat


def test_the_day_that_all_have_in_common_counts_once() -> None:
    mine = wants(2.0, day(0.6, 3))
    reported_twice = replace(mine, common=0.18)  # all that is common is the day
    np.testing.assert_allclose(
        shared(mine, mine).cpu.share, shared(reported_twice, reported_twice).cpu.share, atol=1e-3
    )


def test_a_host_has_the_same_answer_to_the_bit_whoever_is_asked_about_beside_it() -> None:
    scenes = [wanting(*[wants(1.3, hours)] * 3, vcpus=2) for hours in ((), day(0.7, 9))]
    alone, beside = solve(batch(scenes[0])), solve(batch(*scenes))
    np.testing.assert_array_equal(alone.cpu.share[0], beside.cpu.share[0])
