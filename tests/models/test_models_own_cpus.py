"""Dedicated vCPUs have a pCPU each: no neighbour slows them, and neighbours share what is left."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.data.topology import given_own_cpus
from models.physics.prior import PriorPredictor
from profiler.demand import Demand
from profiler.observed import Host, Instance, IsolationSettings, Pinning


def vm(name: str, vcpus: int, mean: float, own: int = 0, pins: str = "") -> Instance:
    settings = IsolationSettings(pinning=Pinning.parse(pins))
    return Instance(
        name, vcpus=vcpus, host="h", dedicated_vcpus=own, settings=settings, demand={"cpu": Demand(mean, "cpu")}
    )


def scene(
    *instances: Instance, pcpus: int = 16, dedicated: Sequence[int] = range(4, 16), threads: int = 1
) -> SceneBatch:
    host = Host("h", "kvm", pcpus=pcpus, memory_mb=1e5, threads_per_core=threads, dedicated_cpus=tuple(dedicated))
    return build_batch([(host, instances)], ProfileTable.build([]))


def ratios(scenes: SceneBatch) -> list[float]:
    return [round(float(ratio), 2) for ratio in PriorPredictor().predict(scenes).throughput.expected[0]]


def test_dedicated_servers_share_with_no_other_and_shared_ones_with_each_other_only() -> None:
    busy = [vm("a", 6, 5.7, own=6), vm("b", 6, 5.7, own=6), vm("c", 4, 3.5), vm("d", 4, 3.5)]
    assert ratios(scene(*busy))[:2] == ratios(scene(busy[0])) * 2
    apart = ratios(build_batch([(Host("s", "kvm", 4, 1e5), busy[2:])], ProfileTable.build([])))
    # Moments are those of the sum of the host, to which the dedicated ones add a little of their own.
    assert ratios(scene(*busy))[2:] == pytest.approx(apart, abs=0.011)
    # Before, all 20 vCPUs shared 16 CPUs.
    plain = [vm(one.id, one.vcpus, one.demand["cpu"].mean) for one in busy]
    assert min(ratios(scene(*plain, dedicated=range(0)))[:2]) < ratios(scene(*busy))[0]


def test_on_a_host_without_dedicated_cpus_a_dedicated_server_takes_its_own_from_all() -> None:
    affinity = given_own_cpus(scene(vm("a", 3, 2.0, own=3), vm("b", 8, 2.0), dedicated=range(0))).affinity[0]
    assert affinity.sum(axis=1).tolist() == [3, 13]
    assert not (affinity[0] & affinity[1]).any()


def test_of_a_mixed_server_the_other_vcpus_float_over_the_shared_cpus() -> None:
    affinity = given_own_cpus(scene(vm("a", 4, 2.0, own=2), vm("b", 4, 2.0))).affinity[0]
    assert np.flatnonzero(affinity[0]).tolist() == [0, 1, 2, 3, 4, 5]
    assert np.flatnonzero(affinity[1]).tolist() == [0, 1, 2, 3]


def test_siblings_go_together_and_known_pins_stay() -> None:
    scenes = scene(
        vm("a", 4, 2.0, own=4),
        vm("b", 2, 1.0, own=2, pins="0:4|1:12"),
        dedicated=(*range(2, 8), *range(10, 16)),
        threads=2,
    )
    affinity = given_own_cpus(scenes).affinity[0]
    assert np.flatnonzero(affinity[0]).tolist() == [2, 3, 10, 11]  # cores 2 and 3 of CPUs c and c + 8
    assert np.flatnonzero(affinity[1]).tolist() == [4, 12]


def test_where_too_few_are_free_they_share_the_dedicated_ones() -> None:
    affinity = given_own_cpus(scene(vm("a", 12, 6.0, own=12), vm("b", 2, 1.0, own=2), vm("c", 1, 1.0))).affinity[0]
    assert affinity[:, 4:].sum(axis=1).tolist() == [12, 12, 0]


@pytest.mark.parametrize("own", [0, 2])
def test_nothing_changes_where_nothing_is_dedicated_and_twice_is_once(own: int) -> None:
    scenes = scene(vm("a", 2, 1.0, own=own), vm("b", 2, 1.0), dedicated=range(4, 4 + 4 * own))
    once = given_own_cpus(scenes)
    assert (once is scenes) == (own == 0)
    assert (given_own_cpus(once).affinity == once.affinity).all()


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=5),
    st.integers(0, 12),
)
def test_as_long_as_there_are_enough_no_other_runs_on_the_cpus_of_a_dedicated_vcpu(
    sizes: list[tuple[int, int]], first: int
) -> None:
    all_instances = [vm(f"i{at}", vcpus, 0.5, own=min(own, vcpus)) for at, (vcpus, own) in enumerate(sizes)]
    scenes = scene(*all_instances, dedicated=range(first, 16))
    given_now = given_own_cpus(scenes)
    affinity, shared = given_now.affinity[0], given_now.shared[0]
    own = [min(own, vcpus) for vcpus, own in sizes]
    if sum(own) <= 16 - first:
        whole = [affinity[at] for at, count in enumerate(own) if count == sizes[at][0]]
        assert all(
            cpus.sum() == count
            for cpus, count in zip(whole, [n for at, n in enumerate(own) if n == sizes[at][0]], strict=True)
        )
        assert sum(map(np.asarray, whole), np.zeros(16)).max(initial=0) <= 1
        if first:
            assert not any((cpus & shared).any() for cpus in whole)
