"""The prior on hosts of every size: nothing swings, and one more of the same never helps."""

from __future__ import annotations

import numpy as np
import pytest

from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.physics.prior import solve
from profiler.observed import Host, Instance

# Two fifths of a CPU, and pages for which the driver domain works on the same CPUs.
WEB = ProfileTable.build([WorkloadProfile("web", {"cpu": 40.0, "pages_exchanged": 200.0})])
EXACT = 1e-6


def crowd(kind: str, pcpus: int, instances: int) -> SceneBatch:
    """So many alike on one host."""
    there = tuple(Instance(f"i{number}", host="h", workload="web") for number in range(instances))
    return build_batch([(Host("h", kind, pcpus, 1e6), there)], WEB)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["xen", "kvm", "lxc"])
@pytest.mark.parametrize("pcpus", [4, 8, 64, 256])
def test_one_more_of_the_same_never_helps(kind: str, pcpus: int) -> None:
    """From a host with room for all to one with twice as many."""
    full = round(pcpus / 0.4)
    throughput = [
        float(solve(crowd(kind, pcpus, many)).throughput.min())
        for many in range(full - 2, 2 * full, max(pcpus // 8, 1))
    ]
    assert max(np.diff(throughput)) <= EXACT


@pytest.mark.parametrize("instances", range(150, 201, 10))
def test_equally_served_instances_get_the_same_answer(instances: int) -> None:
    throughput = solve(crowd("kvm", 64, instances)).throughput[0]
    assert np.ptp(throughput) <= EXACT


def test_latency_rises_in_small_steps_up_to_a_full_host() -> None:
    """A share of the CPU that shrinks step by step, not a queue that explodes within a few per cent of load."""
    waits = [float(solve(crowd("kvm", 64, many)).latency.max()) for many in range(75, 158, 3)]
    assert min(np.diff(waits)) >= -0.01
    assert max(np.array(waits[1:]) / np.array(waits[:-1])) <= 1.5
