"""The more cores are busy, the lower is the clock, where the nominal and the highest clock are known."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.physics.cpu_speed import CLOCK, UNKNOWN, USUALLY
from models.physics.prior import PriorPredictor, solve
from tests.examples import examples
from tests.models.synthetic import TABLE, host, instance

CLOCKS = {"cpu_mhz": 2000.0, "turbo_mhz": 4000.0}  # a sixth is lost while all cores are busy
LARGE = Path(__file__).resolve().parents[3] / "shared/data/large-hosts/skylake104_sysbench_gemmbench.csv"


def busy(count: int, pins: str = "", table: ProfileTable = TABLE, **of_host: Any) -> SceneBatch:
    """So many instances that always want a CPU, on a host of 16 CPUs."""
    there = host("kvm", 16, **{**CLOCKS, **of_host})
    return build_batch([(there, [instance(f"i{at}", "spin", pins=pins) for at in range(count)])], table)


def clock(busy_cores: float, cores: float = 16.0) -> float:
    return 1 - 1 / 6 * math.sqrt(min(busy_cores / cores, 1.0))


@pytest.mark.parametrize("count", [1, 2, 4, 16])
def test_speed_falls_with_the_root_of_the_busy_part_of_the_cores(count: int) -> None:
    found = solve(busy(count))
    np.testing.assert_allclose(found.throughput, clock(count) / clock(1))
    np.testing.assert_array_equal(found.share, 1.0)
    np.testing.assert_array_equal(found.cpu.share, 1.0)


@pytest.mark.parametrize("clocks", [{"turbo_mhz": None}, {"cpu_mhz": None}, {"turbo_mhz": 2000.0}, {"turbo_mhz": 1e3}])
def test_without_both_clocks_or_without_turbo_nothing_is_lost(clocks: dict[str, Any]) -> None:
    scenes = busy(16, **clocks)
    np.testing.assert_array_equal(solve(scenes).throughput, 1.0)
    plain = PriorPredictor().predict(busy(16, cpu_mhz=None, turbo_mhz=None)).throughput
    band = PriorPredictor().predict(scenes).throughput
    np.testing.assert_array_equal([band.lower, band.upper], [plain.lower, plain.upper])


@pytest.mark.parametrize("count", [1, 4, 16])
def test_the_range_is_wider_by_what_the_clock_may_lose_besides(count: int) -> None:
    band = PriorPredictor().predict(busy(count)).throughput
    own = 0.35 * (0.15 + 0.85 * min(2 * (1 - clock(count) / clock(1)), 1.0))
    further = np.log(band.expected / band.lower) - own
    np.testing.assert_allclose(further, CLOCK * math.sqrt(count / 16))


@pytest.mark.parametrize("clocks", [{}, {"turbo_mhz": None}, {"cpu_mhz": None}])
def test_a_machine_with_hyperthreads_of_unknown_clocks_loses_what_servers_usually_do(clocks: dict[str, Any]) -> None:
    """16 CPUs of 8 cores, one instance on each core."""
    unknown = {"cpu_mhz": None, "turbo_mhz": None} if not clocks else {**CLOCKS, **clocks}
    scenes = busy(8, threads_per_core=2, **unknown)
    found = solve(scenes)
    np.testing.assert_allclose(found.throughput, (1 - USUALLY) / (1 - USUALLY * math.sqrt(1 / 8)))
    np.testing.assert_array_equal(found.share, 1.0)
    unsure, sure = (PriorPredictor().predict(one).throughput for one in (scenes, busy(8, threads_per_core=2)))
    width = [np.log(band.expected / band.lower) for band in (unsure, sure)]
    assert (width[0] - width[1]).min() > 0.9 * (UNKNOWN - CLOCK)


def test_hosts_whose_clocks_are_unknown_are_as_fast_beside_those_whose_clocks_are_known() -> None:
    hosts = [host("kvm", 4, **clocks) for clocks in ({}, {"cpu_mhz": 2000.0, "turbo_mhz": 4000.0})]
    all_instances = [instance(f"i{at}", "spin", pins="") for at in range(4)]
    found = solve(build_batch([(one, all_instances) for one in hosts], TABLE)).throughput
    np.testing.assert_allclose(found, [[1.0] * 4, [clock(4, 4) / clock(1, 4)] * 4])


def test_pinned_apart_they_have_one_clock() -> None:
    there = host("kvm", 16, **CLOCKS)
    pinned = [instance(f"i{at}", "spin", pins=f"0:{at}") for at in range(8)]
    np.testing.assert_allclose(solve(build_batch([(there, pinned)], TABLE)).throughput, clock(8) / clock(1))


def test_what_the_host_uses_itself_lowers_the_clock() -> None:
    own = replace(host("kvm", 16, **CLOCKS), own_cpus=6.0)
    found = solve(build_batch([(own, [instance("a", "spin", pins="0:0")])], TABLE))
    assert found.throughput[0, 0] == pytest.approx(found.share[0, 0] * clock(7) / clock(1))


def test_the_clocks_of_a_platform_stand_for_a_host_without_its_own() -> None:
    table = replace(TABLE, platforms={"fast": {"turbo_mhz": 4000.0}})
    of_platform = solve(busy(8, table=table, platform="fast", turbo_mhz=None)).throughput
    np.testing.assert_allclose(of_platform, solve(busy(8)).throughput)
    own = solve(busy(8, table=table, platform="fast", turbo_mhz=2000.0)).throughput
    np.testing.assert_array_equal(own, 1.0)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.sampled_from(["0:0", "0:1", "0:0-3", "", "0:5"]), min_size=1, max_size=12),
    st.sampled_from([1, 2]),
    st.floats(500, 4000),
    st.floats(0.0, 1.0),
)
def test_one_more_never_helps_and_alone_nothing_is_lost(
    pins: list[str], threads: int, nominal: float, second_thread: float
) -> None:
    there = host("kvm", 8, threads_per_core=threads, cpu_mhz=nominal, turbo_mhz=4000.0, second_thread=second_thread)
    blind = host("kvm", 8)

    def found(one: Any, number: int) -> Any:
        group = [instance(f"i{at}", "spin", pins=pin) for at, pin in enumerate([*pins, "0:0"][:number])]
        return solve(build_batch([(one, group)], TABLE))

    fewer, more = found(there, len(pins)), found(there, len(pins) + 1)
    assert (more.throughput[0, : len(pins)] <= fewer.throughput[0] + 1e-6).all()
    assert found(there, 1).throughput == pytest.approx(1.0)
    np.testing.assert_array_equal(fewer.share, found(blind, len(pins)).share)


@pytest.mark.skipif(not LARGE.exists(), reason="measurements of a machine of 52 cores are not here")
def test_a_machine_of_52_cores_was_as_slow_as_fitted() -> None:
    """Two groups of busy threads without hyperthreads; their speed is relative to that of one beside one (linux-kernel
    list, 2019-06-12). The way down was fitted to the rows of 16 and 32 busy threads."""
    with LARGE.open() as file:
        rows = [row for row in csv.DictReader(file) if row["config"] == "nosmt"]
    measured = {2 * int(row["na_threads"]): float(row["throughput"]) / int(row["na_threads"]) for row in rows}
    table = ProfileTable.build([WorkloadProfile("busy", {"cpu": 100.0})])
    there = host("kvm", 52, cpu_mhz=2100.0, turbo_mhz=3700.0)
    errors, held = {}, 0
    for count in (4, 8, 16, 32, 64, 128, 256, 512):
        group = [instance(f"i{at}", "busy", pins="") for at in range(count)]
        band = PriorPredictor().predict(build_batch([(there, group)], table)).throughput
        speed = measured[count] / measured[2]
        errors[count] = float(band.expected[0, 0]) - speed
        held += bool(band.lower[0, 0] <= speed <= band.upper[0, 0])
    assert max(abs(errors[16]), abs(errors[32])) < 0.02
    assert np.mean(np.abs(list(errors.values()))) < 0.03
    assert held == 8
