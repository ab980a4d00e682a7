"""The driver domain of a full host of Xen: VMs whose demand over time is known yield to it while they wait."""

from __future__ import annotations

import numpy as np
import pytest

from models.arrays import Floats
from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, build_batch
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
