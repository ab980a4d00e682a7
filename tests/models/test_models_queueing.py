"""Closed forms of waiting against what queues that are played through do, and on their limiting cases."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.arrays import Floats
from models.physics.cpu_speed import (
    MOST_BUSY,
    TimeMoments,
    among_packets,
    behind_backlog,
    budget_runs_out,
    cap_stall,
    first_come_first_served,
    processor_sharing,
    worst_cap_stall,
)

ONE = np.array(1.0)


def at(value: float) -> Floats:
    return np.array(value)


def played(arrivals: Floats, services: Floats) -> Floats:
    """Waits of a queue served first come, first served (Lindley): work before each arrival less the time since."""
    steps = np.concatenate([[0.0], services[:-1] - np.diff(arrivals)])
    path = np.cumsum(steps)
    return np.asarray(path - np.minimum.accumulate(path))


def shared_processor(load: float, jobs: int) -> Floats:
    """Sojourn times of exponential jobs of mean 1 that arrive at random and share one processor evenly."""
    random = np.random.default_rng(5)
    arrivals, sizes = np.cumsum(random.exponential(1 / load, jobs)), random.exponential(1.0, jobs)
    now, served, sojourn = 0.0, 0.0, np.zeros(jobs)  # `served` is what each present job has had so far
    present: list[tuple[float, int]] = []
    for job in range(jobs + 1):
        until = arrivals[job] if job < jobs else np.inf
        while present and now + (present[0][0] - served) * len(present) <= until:
            level, done = present[0]
            now, served = now + (level - served) * len(present), level
            sojourn[done] = now - arrivals[done]
            heapq.heappop(present)
        if job < jobs:
            served += (until - now) / len(present) if present else 0.0
            now = until
            heapq.heappush(present, (served + sizes[job], job))
    return sojourn


# processor sharing


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_a_shared_processor_takes_as_long_as_the_formula_says(load: float) -> None:
    seen, said = shared_processor(load, 60_000), processor_sharing(at(load), ONE, ONE)
    assert seen.mean() == pytest.approx(float(said.mean), rel=0.06)
    assert seen.var() == pytest.approx(float(said.variance), rel=0.2)


@given(st.floats(0, 0.9), st.floats(0.05, 1))
def test_one_processor_takes_one_over_what_is_left_of_it(load: float, rate: float) -> None:
    assert float(processor_sharing(at(load * rate), at(rate), ONE).mean) == pytest.approx(1 / (rate - load * rate))


def test_infinitely_many_processors_know_no_waiting() -> None:
    said = processor_sharing(at(0.5), ONE, at(1e12))
    assert float(said.mean) == pytest.approx(1.0)


@given(st.floats(0, 3), st.floats(0, 3), st.floats(0.01, 1), st.floats(0.01, 1), st.integers(1, 8))
def test_more_work_or_a_slower_processor_never_shortens_a_stay(
    one: float, other: float, rate: float, slower: float, servers: int
) -> None:
    low, high = sorted((one, other))
    before = processor_sharing(at(low), at(max(rate, slower)), at(float(servers)))
    after = processor_sharing(at(high), at(min(rate, slower)), at(float(servers)))
    assert after.mean >= before.mean * (1 - 1e-12)
    assert after.variance >= before.variance * (1 - 1e-12)


# first come, first served


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_a_queue_waits_as_long_as_pollaczek_and_khinchine_say(load: float) -> None:
    random = np.random.default_rng(1)
    arrivals, services = np.cumsum(random.exponential(1 / load, 400_000)), random.exponential(1.0, 400_000)
    seen, said = played(arrivals, services) + services, first_come_first_served(at(load), ONE)
    assert seen.mean() == pytest.approx(float(said.mean), rel=0.05)
    assert seen.var() == pytest.approx(float(said.variance), rel=0.15)
    assert float(said.variance) == pytest.approx(1 / (1 - load) ** 2)  # a sojourn of M/M/1 is exponential


def test_packets_of_a_clock_wait_for_the_others_as_the_formula_says() -> None:
    random = np.random.default_rng(2)
    others, mine = np.cumsum(random.exponential(1 / 0.6, 300_000)), np.arange(1.0, 400_000.0, 100.0)
    arrivals = np.concatenate([others, mine])
    order = np.argsort(arrivals, kind="stable")
    waits = played(arrivals[order], np.ones(len(arrivals)))[np.isin(order, np.arange(len(others), len(arrivals)))]
    said = among_packets(at(0.61), at(0.6))
    assert waits.mean() + 1 == pytest.approx(float(said.mean), rel=0.05)
    assert waits.var() == pytest.approx(float(said.variance), rel=0.15)


def test_packets_of_a_clock_do_not_wait_for_their_own_sender() -> None:
    assert among_packets(at(0.9), at(0.0)) == TimeMoments(ONE, at(0.0))


@pytest.mark.parametrize("busy", [0.95, 1.0, 7.0])
def test_an_overloaded_queue_is_as_long_as_is_believed(busy: float) -> None:
    assert float(first_come_first_served(at(busy), ONE).mean) == pytest.approx(1 / (1 - MOST_BUSY))


# caps


def test_a_cap_of_half_a_cpu_stalls_5_ms_under_credit2_and_50_ms_under_linux() -> None:
    assert float(worst_cap_stall(at(0.5), at(10.0))) == 5.0
    assert float(worst_cap_stall(at(0.5), at(100.0))) == 50.0
    assert float(worst_cap_stall(at(2.0), at(100.0))) == 0.0


@given(st.floats(0, 1), st.sampled_from([10.0, 100.0]))
def test_a_stall_is_what_an_arrival_at_any_moment_of_a_period_meets(share: float, period: float) -> None:
    moments = (np.arange(20_000) + 0.5) / 20_000 * period
    waits = np.where(moments >= share * period, period - moments, 0.0)
    said = cap_stall(at(share), at(period))
    assert float(said.mean) == pytest.approx(waits.mean(), abs=1e-3 * period)
    assert float(said.variance) == pytest.approx(waits.var(), abs=1e-3 * period**2)


def test_a_budget_runs_out_always_at_saturation_and_never_without_a_cap() -> None:
    shares, period, service = np.array([0.3, 0.5, 1.0]), np.full(3, 100.0), np.full(3, 1.0)
    assert budget_runs_out(shares, np.full(3, 0.5), period, service).tolist() == [1.0, 1.0, 0.0]


def test_a_long_period_and_short_bursts_forgive_a_cap_that_is_above_the_demand() -> None:
    chance = budget_runs_out(np.full(3, 0.5), np.full(3, 0.2), np.array([1e-6, 10.0, 1e5]), np.full(3, 1.0))
    assert chance[0] == pytest.approx(1.0)
    assert chance[0] > chance[1] > chance[2]
    assert chance[2] < 1e-6


def test_the_chance_bounds_how_often_random_work_exceeds_a_budget() -> None:
    random = np.random.default_rng(3)
    work = np.array([random.exponential(1.0, size).sum() for size in random.poisson(30.0, 20_000)])  # 0.3 of 100 ms
    seen = (work > 45.0).mean()
    said = float(budget_runs_out(at(0.45), at(0.3), at(100.0), at(1.0)))
    assert seen < said < 5 * seen


# turns and queues


def test_a_backlog_delays_by_its_size_over_the_rate() -> None:
    assert float(behind_backlog(at(0.5), at(100.0)).mean) == 0.005
    assert float(behind_backlog(at(0.5), at(np.inf)).mean) == 0.0


# how times combine


def test_periods_of_two_kinds_have_the_mean_of_all_and_the_variance_within_each() -> None:
    random = np.random.default_rng(4)
    periods = np.where(
        random.random((4000, 1)) < 0.3, random.exponential(5.0, (4000, 50)), random.exponential(1.0, (4000, 50))
    )
    said = TimeMoments(at(1.0), at(1.0)).mixed(TimeMoments(at(5.0), at(25.0)), at(0.3))
    assert periods.mean() == pytest.approx(float(said.mean), rel=0.03)
    assert periods.var(axis=1, ddof=1).mean() == pytest.approx(float(said.variance), rel=0.05)


def test_times_one_after_the_other_add_up_and_follow_their_unit() -> None:
    said = TimeMoments(at(2.0), at(3.0)).plus(TimeMoments(at(1.0), at(1.0))).times(at(10.0))
    assert (float(said.mean), float(said.variance)) == (30.0, 400.0)
