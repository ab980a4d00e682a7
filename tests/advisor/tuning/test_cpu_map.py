"""The map of a host's CPUs: by node, core and thread, and who is pinned where."""

from __future__ import annotations

from dataclasses import replace

from advisor.domain import Host, IsolationSettings, Pinning, cpu_map
from tests.advisor.tuning.tuning_hosts import vm

NODES = Host(
    "h", "kvm", 8, 8192, threads_per_core=2, numa=((0, 1, 4, 5), (2, 3, 6, 7)), isolated_cpus=(7,), driver_cpus=(0,)
)


def test_threads_of_a_core_stand_together_in_their_node() -> None:
    shown = cpu_map(NODES, ())
    assert [node.number for node in shown.nodes] == [0, 1]
    cores = [[tuple(cpu.number for cpu in core) for core in node.cores] for node in shown.nodes]
    assert cores == [[(0, 4), (1, 5)], [(2, 6), (3, 7)]]
    assert [cpu.number for node in shown.nodes for core in node.cores for cpu in core if cpu.use == "isolated"] == [7]
    assert (shown.groups[0].cpus, shown.groups[0].driver, shown.anywhere) == ("0", True, ())


def test_cpus_go_by_the_numbers_that_the_host_gives_them() -> None:
    host = Host("h", "kvm", 4, 8192, cpu_ids=(0, 2, 8, 10))
    shown = cpu_map(host, (vm("a", 0.5, (8, 10)), vm("b", 0.5, (10,)), vm("c", 0.5)))
    assert [cpu.number for node in shown.nodes for core in node.cores for cpu in core] == [0, 2, 8, 10]
    assert [(group.cpus, group.pinned) for group in shown.groups] == [("8", ("a",)), ("10", ("a", "b"))]
    assert shown.anywhere == ("c",)
    assert [node.number for node in shown.nodes] == [None]


def test_a_vcpu_without_pins_may_run_on_every_shared_cpu() -> None:
    half = replace(vm("a", 0.5, vcpus=2), settings=IsolationSettings(pinning=Pinning(((7,), ()))))
    shown = cpu_map(NODES, (half,))
    assert [(group.cpus, group.pinned, group.driver) for group in shown.groups] == [
        ("0", ("a",), True), ("1-7", ("a",), False),
    ]  # fmt: skip


def test_cpus_that_differ_between_two_maps_are_those_whose_users_do() -> None:
    one, two = (cpu_map(NODES, (vm("a", 0.5, pins),)) for pins in ((1, 2), (2, 3)))
    assert one.differing(two) == {1, 3}
    assert one.differing(one) == frozenset()
