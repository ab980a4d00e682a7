"""The driver domain of a full host of Xen: VMs whose demand over time is known yield to it while they wait."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from models.arrays import Floats
from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, build_batch
from models.physics.demands import driver_price
from models.physics.prior import RESOURCES, solve
from profiler.demand import Demand
from profiler.observed import Instance
from tests.models.synthetic import host

TABLE = ProfileTable.build([WorkloadProfile("web", {"cpu": 40.0, "pages_exchanged": 200.0})])
# An event simulation of 64 CPUs with closed loops of 0.4 CPUs in bursts of 2 ms and Dom0 with bursts of 0.2 ms, all of
# one weight (research.contention.simulator, 2026-11-28): share of the CPU time that VMs want; Dom0 got all of its work
# done each time.
SIMULATED = {140: 0.994, 150: 0.973, 156: 0.945, 160: 0.919, 164: 0.886, 170: 0.832, 180: 0.743}


def share(vms: int, resource: str = "", *, kind: str = "xen", open_loop: float | None = None) -> Floats:
    """What VMs of 0.4 CPUs get on 64 CPUs, of all or of one resource; (vms,)."""
    demand = Demand(0.4, windows=1000.0, spread=0.0, common=0.0, burst_ms=2.0, open_loop=open_loop)
    there = [Instance(f"v{at}", workload="web", demand={"cpu": demand}) for at in range(vms)]
    found = solve(build_batch([(host(kind, 64, nic_mbit=10_000.0), there)], TABLE))
    limits: Floats = found.limits[0, :, RESOURCES.index(resource)] if resource else found.share[0]
    return limits


@pytest.mark.parametrize("vms", SIMULATED)
def test_vms_of_a_full_host_get_what_a_simulation_with_dom0_says(vms: int) -> None:
    assert share(vms) == pytest.approx(SIMULATED[vms], abs=0.025)


def test_one_more_vm_on_a_full_host_takes_a_little_from_the_others() -> None:
    curve = [float(share(vms).mean()) for vms in range(148, 173, 2)]
    steps = np.diff(curve)
    assert steps.max() <= 1e-9
    assert steps.min() > -0.04


@pytest.mark.parametrize("vms", [162, 180])
def test_beside_work_that_piles_up_dom0_has_its_fair_part_only(vms: int) -> None:
    assert (share(vms, "driver_domain", open_loop=1.0) < share(vms, "driver_domain") - 0.3).all()


@pytest.mark.parametrize("block", [None, 60.0])
def test_a_full_host_of_profiled_vms_that_block_has_no_cliff(block: float | None) -> None:
    """VMs whose demand over time is not known: of 64 CPUs 158 VMs want 63 and 160 want 64, with Dom0 more than all."""
    metrics = {"cpu": 40.0, "pages_exchanged": 200.0} | ({} if block is None else {"block": block})
    table = ProfileTable.build([WorkloadProfile("web", metrics)])

    def slowest(vms: int) -> float:
        there = [Instance(f"v{at}", workload="web") for at in range(vms)]
        return float(solve(build_batch([(host("xen", 64, nic_mbit=10_000.0), there)], table)).throughput.min())

    kept = {vms: slowest(vms) for vms in (150, 160, 170, 180, 200, 240)}
    assert kept[150] == pytest.approx(1.0)
    assert all(later <= sooner for sooner, later in pairwise(kept.values()))
    # Dom0 gets its work done, so that all CPUs but its own are the VMs': none is idle while a VM waits.
    for vms in (170, 180, 200, 240):
        assert kept[vms] == pytest.approx(64 / (vms * (0.4 + 200 * 2e-5)), rel=0.03)


def test_vms_that_never_block_leave_dom0_no_more_than_its_fair_part() -> None:
    """Finding N5: two servers of one CPU and Dom0 hold a third of it each."""
    table = ProfileTable.build([WorkloadProfile("web", {"cpu": 99.0, "block": 0.0, "pages_exchanged": 30_000.0})])
    there = [Instance(f"v{at}", workload="web") for at in range(2)]
    scenes = build_batch([(host("xen", 1, nic_mbit=10_000.0), there)], table)
    found = solve(scenes)
    full = (found.demands.driver * driver_price(scenes, found.demands)).sum()
    assert found.limits[0, :, RESOURCES.index("driver_domain")] == pytest.approx(1 / 3 / full, rel=1e-3)
