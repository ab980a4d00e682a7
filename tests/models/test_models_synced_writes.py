"""A writer that syncs waits for the next tick beside busy neighbours, and disks serve so many requests per second."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, build_batch
from models.physics.prior import solve
from profiler.demand import Demand
from profiler.observed import Host, Instance
from tests.examples import examples
from tests.models.synthetic import host, instance

TICK_S = 0.004  # HZ=250
CPU, DISK = 0, 3  # of RESOURCES
TABLE = ProfileTable.build(
    [
        WorkloadProfile("log", {"cpu": 38.0, "block": 55.0, "execution": 13_000.0, "disk_flushes": 6_800.0}),
        WorkloadProfile("reads", {"cpu": 38.0, "block": 55.0, "execution": 13_000.0}),
        WorkloadProfile("hog", {"cpu": 100.0, "waiting": 0.0, "block": 0.0, "execution": 5.0}),
        WorkloadProfile("small", {"cpu": 2.0, "block": 98.0, "disk_mb_s": 6.0, "disk_iops": 1500.0}),
        WorkloadProfile("large", {"cpu": 2.0, "block": 98.0, "disk_mb_s": 60.0, "disk_iops": 900.0}),
    ]
)  # fmt: skip


def kept(there: Host, *instances: Instance) -> list[float]:
    found: list[float] = solve(build_batch([(there, instances)], TABLE)).throughput[0].tolist()
    return found


def log(name: str = "log", **more: Any) -> Instance:
    return instance(name, "log", **more)


def busy(part: float, burst_ms: float, name: str = "n", pins: str = "") -> Instance:
    """A neighbour that uses so much of a CPU in bursts of this length."""
    demand = Demand(part, windows=1.0, open_loop=0.0, common=0.0, burst_ms=burst_ms, origin="measured")
    return instance(name, None, pins=pins, demand={"cpu": demand})


def test_beside_a_busy_program_one_write_is_synced_in_each_tick() -> None:
    writer, hog = kept(host("lxc"), log(), instance("hog", "hog"))
    assert writer == pytest.approx(1 / (1 + 6_800 * TICK_S), rel=0.02)
    assert hog > 0.95  # the writer uses next to nothing meanwhile


@pytest.mark.parametrize(("alone", "beside"), [(3_194, 265), (4_889, 267)])
def test_rates_measured_by_hand_are_met_within_a_fifth(alone: float, beside: float) -> None:
    """Containers on Linux 6.18, HZ=250, 2026-11-28 (docs/limits.md)."""
    table = TABLE.with_profile(WorkloadProfile("own", {"cpu": 30.0, "execution": 10_000.0, "disk_flushes": alone}))
    scenes = build_batch([(host("lxc"), [instance("w", "log"), instance("hog", "hog")])], table)
    scenes.profile[0, 0] = len(table.values) - 1
    assert alone * solve(scenes).throughput[0, 0] == pytest.approx(beside, rel=0.2)


def test_who_does_not_sync_has_no_such_wait() -> None:
    assert kept(host("lxc"), instance("r", "reads"), instance("hog", "hog"))[0] == pytest.approx(1.0)


def test_of_xen_no_wait_is_known() -> None:
    synced, plain = (kept(host("xen"), instance("a", name), instance("hog", "hog"))[0] for name in ("log", "reads"))
    assert synced == plain


@pytest.mark.parametrize(
    ("hogs", "pins", "pcpus", "occupied"),
    [
        (1, "", 2, 0.0), (2, "", 2, 1.0), (3, "", 4, 0.0), (4, "", 4, 1.0),
        (2, "0:0", 2, 0.0), (1, "0:0", 1, 1.0),  # pinned: the other CPU is idle
    ],
)  # fmt: skip
def test_a_writer_waits_only_while_all_of_its_cpus_are_busy(hogs: int, pins: str, pcpus: int, occupied: float) -> None:
    slow = 1 / (1 + 6_800 * TICK_S)
    neighbours = [instance(f"hog{at}", "hog", pins=pins) for at in range(hogs)]
    expected = 1 - occupied * (1 - slow)
    limits = solve(build_batch([(host("lxc", pcpus), [log(), *neighbours])], TABLE)).limits[0, 0, CPU]
    assert limits == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("pcpus", [2, 3, 8])
def test_independent_neighbours_keep_all_cpus_busy_as_often_as_a_binomial_variable_says(pcpus: int) -> None:
    found = kept(host("lxc", pcpus), log(), *(busy(0.3, 100.0, f"n{at}") for at in range(6)))[0]
    slow = 1 / (1 + 6_800 * TICK_S)
    assert found == pytest.approx(1 - binom.sf(pcpus - 1, 6, 0.3) * (1 - slow) if pcpus > 2 else found)
    assert found <= 1 - binom.sf(pcpus - 1, 6, 0.3) * (1 - slow) + 1e-9


@pytest.mark.parametrize("part", [0.2, 0.4, 0.6])
def test_a_neighbour_with_long_bursts_leaves_about_what_it_leaves_idle(part: float) -> None:
    slow = 1 / (1 + 6_800 * TICK_S)
    assert kept(host("lxc"), log(), busy(part, 100.0))[0] == pytest.approx(1 - part * (1 - slow))


def test_short_bursts_are_waited_for_and_no_tick() -> None:
    slow = 1 / (1 + 6_800 * 0.0001)
    assert kept(host("lxc"), log(), busy(0.5, 0.1))[0] == pytest.approx(1 - 0.5 * (1 - slow))


def test_who_always_runs_has_long_bursts_also_where_nothing_counts_them() -> None:
    table = TABLE.with_profile(WorkloadProfile("uncounted", {"cpu": 100.0}))
    scenes = build_batch([(host("kvm"), [log(), instance("hog", "hog")])], table)
    scenes.profile[0, 1] = len(table.values) - 1
    assert solve(scenes).throughput[0, 0] == pytest.approx(1 / (1 + 6_800 * TICK_S), rel=0.02)


def test_of_several_neighbours_the_longest_bursts_count_first() -> None:
    both = kept(host("lxc"), log(), busy(0.9, 100.0, "a"), busy(0.9, 0.1, "b"))[0]
    f = [6_800 * w / (1 + 6_800 * w) for w in (TICK_S, 0.0001)]
    assert both == pytest.approx(1 - 0.9 * f[0] - 0.1 * f[1])


parts = st.floats(0.0, 1.0)
bursts = st.floats(0.01, 200.0)


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(parts, bursts), max_size=4), parts, bursts, st.integers(1, 4))
def test_one_more_neighbour_helps_no_writer(
    others: list[tuple[float, float]], part: float, burst_ms: float, pcpus: int
) -> None:
    there = host("lxc", pcpus)
    before = [busy(*one, name=f"n{at}") for at, one in enumerate(others)]
    assert kept(there, log(), *before, busy(part, burst_ms, "more"))[0] <= kept(there, log(), *before)[0] + 1e-9


@settings(max_examples=examples(60))
@given(parts, parts, bursts)
def test_the_wait_grows_with_how_long_the_neighbour_is_busy(one: float, other: float, burst_ms: float) -> None:
    less, more = sorted((one, other))
    kept_by = [kept(host("lxc"), log(), busy(part, burst_ms))[0] for part in (less, more)]
    assert kept_by[1] <= kept_by[0] + 1e-9


@settings(max_examples=examples(60))
@given(st.floats(0.01, 0.98), st.floats(0.02, 150.0))
def test_a_little_more_of_a_neighbour_changes_a_little(part: float, burst_ms: float) -> None:
    near = [kept(host("lxc"), log(), busy(*one))[0] for one in ((part, burst_ms), (part * 1.001, burst_ms * 1.001))]
    assert near[0] == pytest.approx(near[1], abs=0.005)


@pytest.mark.parametrize(
    ("both", "expected"),
    [
        (("small", "small"), (0.5, 0.5)),  # 1500 and 1500 of 1500 requests, 12 of 60 MB/s
        (("large", "large"), (0.5, 0.5)),  # 120 of 60 MB/s, 1800 of 1500 requests
        (("small", "large"), (0.5, 750 / 900)),  # 750 requests each
    ],
)
def test_a_disk_is_shared_by_its_requests_as_by_its_bytes(both: tuple[str, str], expected: tuple[float, float]) -> None:
    there = host("lxc", 4, disk_mb_s=60.0, disk_iops=1500.0)
    limits = solve(build_batch([(there, [instance(f"i{at}", name) for at, name in enumerate(both)])], TABLE)).limits
    assert limits[0, :, DISK] == pytest.approx(expected)


def test_at_half_the_load_half_of_the_requests_are_asked_for() -> None:
    there = host("lxc", 4, disk_mb_s=60.0, disk_iops=1500.0)
    pair = [instance("a", "small", load=0.5), instance("b", "small")]
    assert kept(there, *pair) == pytest.approx([1.0, 0.5])


def test_where_no_limit_of_requests_is_known_bytes_alone_count() -> None:
    there = host("lxc", 4, disk_mb_s=60.0)
    assert kept(there, instance("a", "small"), instance("b", "small")) == pytest.approx([1.0, 1.0])


def test_a_platform_says_requests_for_hosts_that_do_not() -> None:
    table = ProfileTable(TABLE.columns, TABLE.values, TABLE.rows, TABLE.names, {"volume": {"disk_iops": 1500.0}})
    pair = [instance("a", "small"), instance("b", "small")]
    hosts = [host("lxc", 4, disk_mb_s=60.0, platform="volume", disk_iops=own) for own in (None, 3000.0)]
    limits = solve(build_batch([(one, pair) for one in hosts], table)).limits[:, :, DISK]
    np.testing.assert_allclose(limits, [[0.5, 0.5], [1.0, 1.0]])


def test_a_limit_in_bytes_does_not_hold_back_who_is_short_of_requests() -> None:
    there = host("lxc", 4, disk_mb_s=60.0, disk_iops=1500.0)
    pair = [instance("a", "small", disk_limit_mb_s=30.0), instance("b", "hog")]
    assert kept(there, *pair)[0] == pytest.approx(1.0)
    assert kept(there, instance("a", "small", disk_limit_mb_s=3.0), instance("b", "hog"))[0] == pytest.approx(0.5)
