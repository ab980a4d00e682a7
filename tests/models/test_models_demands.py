"""What is read from profiles: bursts, capacities by what is known of a platform, and what stays unknown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable
from models.physics.demands import ASSUMED_BURST_MS, burst_ms, capacity, demands
from models.physics.prior import solve
from tests.models.synthetic import PROFILES, batch, host, instance


def test_a_burst_is_cpu_time_per_execution() -> None:
    table = ProfileTable.build(
        [WorkloadProfile("known", {"cpu": 50.0, "execution": 250.0}), WorkloadProfile("silent", {"cpu": 50.0})]
    )
    scenes = batch((host(), [instance("a", "known"), instance("b", "silent"), instance("c", None)]), table=table)
    assert burst_ms(scenes)[0] == pytest.approx([2.0, ASSUMED_BURST_MS, ASSUMED_BURST_MS])


def test_a_disk_can_do_what_was_measured_else_what_its_platform_says_else_what_the_fastest_workload_reached() -> None:
    table = ProfileTable.build(PROFILES, {"fast": {"disk_mb_s": 400.0}, "slow": {"disk_mb_s": 100.0}})
    hosts = [host("lxc", 4, platform=platform) for platform in ("fast", "slow", "another")]
    hosts.append(replace(hosts[0], disk_mb_s=320.0))
    pair = [instance("a", "disk"), instance("b", "disk")]  # 200 MB/s each, none reached more
    both = batch(*[(there, pair) for there in hosts], table=table)
    assert capacity(both, "disk_mb_s").tolist() == [400.0, 100.0, 200.0, 320.0]
    # The first disk serves both; the next two are full with one, whatever it reached where it was measured.
    assert solve(both).throughput == pytest.approx(np.array([[1.0, 1.0], [0.5, 0.5], [0.5, 0.5], [0.8, 0.8]]))
    alone = batch(*[(there, pair[:1]) for there in hosts], table=table)
    assert solve(alone).throughput == pytest.approx(np.ones((4, 1)))


def test_memory_bandwidth_is_unknown_where_no_workload_reports_it() -> None:
    table = ProfileTable.build([WorkloadProfile("spin", {"cpu": 100.0})])
    scenes = batch((host(), [instance()]), table=table)
    assert capacity(scenes, "mem_bw_mb_s").tolist() == [0.0]
    assert demands(scenes).memory.tolist() == [[0.0]]
