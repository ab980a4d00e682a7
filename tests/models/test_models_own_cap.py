"""What a cap leaves of the CPU time that is demanded, beside measured containers and a simulation by periods."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.data.scene import ProfileTable, build_batch
from models.physics.prior import solve
from profiler.demand import Demand
from profiler.observed import Host, Instance, IsolationSettings
from tests.examples import examples


def delivered(mean: float, cap: float | None, open_loop: float, burst_ms: float = 5.0) -> float:
    demand = Demand(mean=mean, spread=0.0, common=0.0, open_loop=open_loop, burst_ms=burst_ms, windows=1.0)
    limits = IsolationSettings(cap_percent=None if cap is None else 100 * cap)
    one = Instance("a", vcpus=1, settings=limits, demand={"cpu": demand})
    scenes = build_batch([(Host("h", "lxc", pcpus=2, memory_mb=1.0), [one])], ProfileTable.build(()))
    return float(solve(scenes).throughput[0, 0])


# run / (run + wait) of containers whose cap was well below their demand: demand, cap, open loop, measured.
MEASURED = [
    (0.19, 0.10, 1.0, 0.100),
    (0.21, 0.15, 1.0, 0.150),
    (0.31, 0.25, 1.0, 0.250),
    (0.48, 0.45, 1.0, 0.451),
    (0.42, 0.30, 0.0, 0.501),
    (0.13, 0.10, 0.0, 0.285),
]


@pytest.mark.parametrize(("mean", "cap", "open_loop", "measured"), MEASURED)
def test_a_cap_below_the_demand_costs_what_containers_lost(
    mean: float, cap: float, open_loop: float, measured: float
) -> None:
    assert delivered(mean, cap, open_loop) == pytest.approx(measured, abs=0.05)


def closed_loop(mean: float, cap: float, burst_ms: float) -> float:
    """Run / (run + wait) of bursts and thinking under a quota of each 100 ms, by stepping through time."""
    random = np.random.default_rng(7)
    quota, left, run, wait = 100 * cap, 0.0, 0.0, 0.0
    now, refill = 0.0, 0.0
    while now < 60_000:
        now += random.exponential(burst_ms * (1 - mean) / mean)
        work = random.exponential(burst_ms)
        while work > 0:
            if now >= refill:
                refill, left = 100 * (now // 100 + 1), quota
            step = min(work, left, refill - now)
            now, work, left, run = now + step, work - step, left - step, run + step
            if work > 0 and left <= 1e-9:
                wait, now = wait + refill - now, refill
    return run / (run + wait)


@pytest.mark.parametrize(("mean", "cap"), [(0.5, 0.25), (0.9, 0.5), (0.6, 0.55), (0.3, 0.1)])
def test_a_closed_loop_gets_what_a_quota_by_periods_leaves_it(mean: float, cap: float) -> None:
    assert delivered(mean, cap, 0.0) == pytest.approx(closed_loop(mean, cap, 5.0), abs=0.06)


@settings(max_examples=examples(80), deadline=None)
@given(
    st.floats(0.01, 1.0),
    st.floats(0.02, 0.95),
    st.floats(0.001, 0.05),
    st.floats(0.0, 1.0),
    st.sampled_from([1.0, 20.0]),
)
def test_a_larger_cap_never_costs_more_and_no_cap_nothing(
    mean: float, cap: float, more: float, open_loop: float, burst: float
) -> None:
    small, large = (delivered(mean, part, open_loop, burst) for part in (cap, cap + more))
    assert small <= large + 1e-9 <= delivered(mean, None, open_loop, burst) + 2e-9
