"""What widens the analytic model's range: waits at wake-ups, the host's other work, a full NIC, tasks spread unevenly,
a cap of all, flushes that wait; and what does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, build_batch
from models.physics.cpu_speed import CLOCK
from models.physics.prior import (
    FLUSHING,
    QUEUED_DOWN,
    QUEUED_UP,
    RATIONED,
    UNEVEN,
    WAKING,
    PriorPredictor,
    UnmodelledWaits,
    prior_spread,
    solve,
)
from models.prediction import BandArrays
from profiler.demand import Demand
from profiler.observed import Host, Instance, IsolationSettings, NetworkSettings, Pinning
from tests.examples import examples

TABLE = ProfileTable.build(
    [
        WorkloadProfile("hog", {"cpu": 100.0}),
        WorkloadProfile("light", {"cpu": 10.0}),
        WorkloadProfile("half", {"cpu": 50.0}),
        WorkloadProfile("sender", {"cpu": 1.0, "net_mbit": 900.0}),
        WorkloadProfile("reader", {"cpu": 1.0, "disk_mb_s": 100.0, "block": 99.0}),
        WorkloadProfile("writer", {"cpu": 1.0, "disk_mb_s": 80.0, "block": 99.0}),
    ]
)
PINS = st.lists(
    st.tuples(st.sampled_from(["hog", "light", "half"]), st.sampled_from(["0:0", "0:1", ""])), min_size=1, max_size=5
)


def host(pcpus: int = 2, **more: Any) -> Host:
    return Host("h", "lxc", pcpus=pcpus, memory_mb=1024.0, **more)


def one(number: int, workload: str | None, pins: str = "", **more: Any) -> Instance:
    pinning = Pinning.parse(pins) if pins else None
    return Instance(f"i{number}", workload=workload, settings=IsolationSettings(pinning=pinning), **more)


def left_out(*instances: Instance, on: Host | None = None) -> UnmodelledWaits:
    scenes = build_batch([(on or host(), instances)], TABLE)
    found = solve(scenes)
    return UnmodelledWaits.of(found)


def band(*instances: Instance, on: Host | None = None) -> BandArrays:
    return PriorPredictor().predict(build_batch([(on or host(), instances)], TABLE), ("throughput",)).throughput


def test_alone_on_a_host_nothing_is_left_out() -> None:
    found = left_out(one(0, "half", "0:0"))
    for part in (found.waking, found.company, found.queued, found.uneven, found.rationed, found.flushing):
        np.testing.assert_array_equal(part, [[0.0]])


def test_beside_a_hog_on_its_cpu_a_light_program_may_wait_at_each_wake_up_and_elsewhere_not() -> None:
    near, far = (
        left_out(one(0, "light", "0:0"), one(1, "hog", "0:0")),
        left_out(one(0, "light", "0:0"), one(1, "hog", "0:1")),
    )
    assert near.waking[0, 0] == pytest.approx(WAKING, rel=0.001)
    assert far.waking[0, 0] == 0.0
    assert near.company[0, 0] == far.company[0, 0] == pytest.approx(CLOCK * np.sqrt(0.5))


def test_waits_at_wake_ups_count_by_how_often_a_neighbour_is_at_work() -> None:
    waits = [left_out(one(0, "light", "0:0"), one(1, name, "0:0")).waking[0, 0] for name in ("light", "half", "hog")]
    assert 0 < waits[0] < waits[1] < waits[2]


def test_while_one_cpu_is_always_idle_no_instance_waits_for_one() -> None:
    fifteen = left_out(*(one(at, "hog") for at in range(16)), on=host(16))
    np.testing.assert_array_equal(fifteen.waking, 0.0)
    crowd = left_out(*(one(at, "hog") for at in range(17)), on=host(16))
    assert crowd.waking[0, 0] == pytest.approx(WAKING, rel=0.001)


def test_who_always_runs_or_waits_loses_nothing_more_at_wake_ups() -> None:
    lone = UnmodelledWaits(*(np.full((1, 1), value) for value in (WAKING, 0.0, 0.0, 0.0, 0.0, 0.0)))
    widths = [lone.down(np.array([[ratio]]), np.array([[0.2]]))[0, 0] for ratio in (0.2, 0.3, 0.6, 0.9, 1.0)]
    assert widths[0] == widths[1] == 0.2
    assert widths[2] == pytest.approx(np.hypot(0.2, WAKING / 2))
    assert widths[3] == widths[4] == pytest.approx(np.hypot(0.2, WAKING))


def test_the_clock_and_the_hosts_other_work_count_once() -> None:
    lone = UnmodelledWaits(*(np.full((1, 1), value) for value in (0.0, 0.1, 0.0, 0.0, 0.0, 0.0)))
    own, ratio = np.array([[0.2]]), np.array([[1.0]])
    assert [lone.down(ratio, own, clock)[0, 0] for clock in (0.0, 0.05, 0.3)] == pytest.approx([0.3, 0.3, 0.5])


def test_where_only_demand_is_known_the_range_is_of_cpu_delivered() -> None:
    demand = {"cpu": Demand(0.1, windows=1000.0)}
    found = left_out(one(0, None, "0:0", demand=demand), one(1, "hog", "0:0"))
    assert found.waking[0, 0] == found.company[0, 0] == 0.0
    assert found.company[0, 1] > 0
    both = left_out(one(0, "light", "0:0", demand=demand), one(1, "hog", "0:0"))
    assert both.waking[0, 0] == both.company[0, 0] == both.uneven[0, 0] == 0.0


def test_a_full_nic_widens_both_sides_but_not_of_who_has_a_class_of_its_own() -> None:
    link = host(4, nic_mbit=1000.0)
    free, full = left_out(one(0, "sender"), on=link), left_out(one(0, "sender"), one(1, "sender"), on=link)
    assert free.queued[0, 0] == 0.0
    assert 0.9 < full.queued[0, 0] <= 1.0
    wide = np.array([[0.1]])
    assert full.up(wide)[0, 0] == pytest.approx(np.hypot(0.1, QUEUED_UP * full.queued[0, 0]))
    assert full.down(np.array([[0.2]]), wide)[0, 0] > QUEUED_DOWN * full.queued[0, 0]
    own = replace(one(0, "sender"), settings=IsolationSettings(network=NetworkSettings("dedicated", 400.0)))
    assert left_out(own, one(1, "sender"), on=link).queued[0, 0] == 0.0


def test_a_full_disk_widens_the_ranges_of_those_who_use_it() -> None:
    disk = host(4)
    found = left_out(one(0, "reader"), one(1, "writer"), one(2, "hog"), on=disk)
    assert found.queued[0, 0] > 0.5
    assert found.queued[0, 2] == 0.0
    assert left_out(one(0, "reader"), one(2, "hog"), on=disk).queued[0, 0] == 0.0


def test_where_tasks_may_choose_among_full_cpus_some_share_one_with_more_than_others() -> None:
    free, full = left_out(*(one(at, "hog") for at in range(2))), left_out(*(one(at, "hog") for at in range(3)))
    assert free.uneven.max() < 0.01
    np.testing.assert_allclose(full.uneven, UNEVEN, rtol=0.01)
    on_one = left_out(*(one(at, "hog", "0:0") for at in range(3)))
    np.testing.assert_array_equal(on_one.uneven, 0.0)
    many = left_out(*(one(at, "hog") for at in range(40)), on=host(32))
    np.testing.assert_allclose(many.uneven, UNEVEN / 4, rtol=0.01)
    wide = np.full((1, 3), 0.2)
    assert full.up(wide) == pytest.approx(wide)  # what one has more, others have less
    assert full.down(np.full((1, 3), 0.2), wide)[0, 0] > np.hypot(0.2, UNEVEN) - 0.01


def test_a_cap_of_all_instances_together_is_shared_and_widens_the_range_of_those_who_share_it() -> None:
    capped = replace(host(), platform="capped")
    table = ProfileTable.build([WorkloadProfile("hog", {"cpu": 100.0})], {"capped": {"host_cap_percent": 120.0}})
    pair = [one(0, "hog", "0:0"), one(1, "hog", "0:1")]
    lone, both = (solve(build_batch([(capped, there)], table)) for there in (pair[:1], pair))
    assert lone.throughput[0, 0] == pytest.approx(1.0)
    np.testing.assert_allclose(both.throughput, 0.6, rtol=1e-3)
    widths = [UnmodelledWaits.of(one).rationed for one in (lone, both)]
    assert widths[0].max() == 0.0
    np.testing.assert_allclose(widths[1], RATIONED)


def test_when_a_flush_is_done_beside_a_busy_neighbour_is_uncertain_in_both_directions() -> None:
    table = ProfileTable.build(
        [WorkloadProfile("hog", {"cpu": 100.0}), WorkloadProfile("log", {"cpu": 30.0, "disk_flushes": 1000.0})]
    )
    scenes = build_batch([(host(1), [one(0, "log"), one(1, "hog")])], table)
    found = solve(scenes)
    widths = UnmodelledWaits.of(found).flushing[0]
    assert widths == pytest.approx([FLUSHING * (1 - 1 / (1 + 1000 * 0.004)), 0.0], rel=0.02)
    own = np.full((1, 2), 0.1)
    assert UnmodelledWaits.of(found).up(own)[0] == pytest.approx(np.hypot(0.1, widths))


@settings(max_examples=examples(40), deadline=None)
@given(PINS)
def test_the_range_is_never_narrower_than_the_priors_own_and_never_says_anything_goes(
    members: list[tuple[str, str]],
) -> None:
    found = band(*(one(at, name, pins) for at, (name, pins) in enumerate(members)))
    spread = prior_spread(found.expected, np.zeros(found.expected.shape, dtype=bool))
    assert (found.lower <= np.minimum(found.expected * np.exp(-spread), 1.05) + 1e-12).all()
    assert (found.upper >= np.minimum(found.expected * np.exp(spread), 1.05) - 1e-12).all()
    assert (found.lower > 0.1 * found.expected).all()


@settings(max_examples=examples(40), deadline=None)
@given(PINS, st.sampled_from(["hog", "light", "half"]), st.sampled_from(["0:0", "0:1", ""]))
def test_one_more_neighbour_leaves_out_no_less(members: list[tuple[str, str]], name: str, pins: str) -> None:
    fewer = [one(at, *member) for at, member in enumerate(members)]
    before, after = left_out(*fewer), left_out(*fewer, one(9, name, pins))
    for part in ("company", "waking", "uneven"):
        assert (getattr(after, part)[0, : len(fewer)] >= getattr(before, part)[0] - 0.02).all()
