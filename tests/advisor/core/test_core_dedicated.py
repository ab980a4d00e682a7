"""Dedicated vCPUs in placements: they share their CPUs with no other instance, and shared ones keep off them."""

from __future__ import annotations

import pytest

from advisor.domain import Instance
from advisor.snapshot import ClusterSnapshot
from profiler.demand import Demand
from tests.advisor.core.core_clouds import ask, cloud, codes, host, only, request, vm


def busy(name: str, vcpus: int, own: int = 0, on: str | None = None) -> Instance:
    demand = {"cpu": Demand(0.95 * vcpus, "cpu")}
    return vm(name, None, on, vcpus=vcpus, dedicated_vcpus=own, memory_mb=10.0, demand=demand)


@pytest.fixture
def mixed() -> ClusterSnapshot:
    """Sixteen CPUs: one for the host itself, three shared, twelve dedicated; eight of these are taken."""
    there = (busy("vnf", 8, own=8, on="h1"), busy("web", 2, on="h1"))
    return cloud([host("h1", pcpus=16, isolated_cpus=(0,), dedicated_cpus=tuple(range(4, 16)))], there)


def test_a_new_instance_with_dedicated_cpus_is_slowed_by_no_other_and_slows_none(mixed: ClusterSnapshot) -> None:
    candidate = only(ask(mixed, request(busy("n", 4, own=4))))
    assert candidate.pinning is None  # whoever runs the host chooses them
    alone = only(ask(cloud([host("h1", pcpus=16)]), request(busy("n", 4))))
    assert candidate.new_vm.throughput_ratio.expected == pytest.approx(alone.new_vm.throughput_ratio.expected, abs=1e-3)
    for effect in candidate.neighbours:
        assert effect.before is not None
        assert effect.throughput_ratio.expected == pytest.approx(effect.before.expected, abs=1e-3)


def test_a_shared_one_is_slowed_by_the_shared_ones_only(mixed: ClusterSnapshot) -> None:
    candidate = only(ask(mixed, request(busy("n", 3))))
    by_name = {effect.instance: effect for effect in candidate.neighbours}
    assert by_name["vnf"].throughput_ratio.expected == pytest.approx(1.0, abs=0.02)
    assert max(candidate.new_vm.throughput_ratio.expected, by_name["web"].throughput_ratio.expected) < 0.9


@pytest.mark.parametrize(
    ("vcpus", "own", "code"),
    [(5, 5, "capacity.dedicated"), (4, 0, "capacity.vcpus"), (8, 4, "capacity.vcpus"), (12, 12, "capacity.dedicated")],
)
def test_each_kind_of_vcpu_is_counted_where_it_runs(mixed: ClusterSnapshot, vcpus: int, own: int, code: str) -> None:
    assert codes(ask(mixed, request(busy("n", vcpus, own)))) == {"h1": code}


def test_a_host_that_keeps_all_shared_cpus_takes_dedicated_instances_only() -> None:
    nfv = cloud([host("h1", pcpus=16, isolated_cpus=(0, 1), dedicated_cpus=tuple(range(2, 16)))])
    assert codes(ask(nfv, request(busy("n", 1)))) == {"h1": "capacity.vcpus"}
    assert only(ask(nfv, request(busy("n", 14, own=14)))).host == "h1"


def test_an_instance_does_not_count_where_it_is_already(mixed: ClusterSnapshot) -> None:
    assert only(ask(mixed, request(busy("vnf", 12, own=12)))).host == "h1"
