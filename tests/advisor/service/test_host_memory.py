"""Hosts that are short of memory, by what their agents measure: they take no new VM, and keep their residents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.domain import Host, HostMemory, Instance, Inventory, PlacementRequest, PlanRequest
from advisor.service import Advisor
from advisor.settings import Settings
from profiler.demand import Demand, Resource
from profiler.observed import MetricSample
from tests.advisor.service.service_clock import Clock

NEW = PlacementRequest(Instance("new", vcpus=1, memory_mb=64))


@pytest.fixture
def two_hosts(advisor: Advisor) -> Advisor:
    """h1 with two busy VMs, and h2 that is empty; both have memory to spare by their sizes."""
    put(advisor)
    return advisor


def put(advisor: Advisor) -> None:
    hosts = tuple(Host(name, "kvm", pcpus=1, memory_mb=4096) for name in ("h1", "h2"))
    busy: dict[Resource, Demand] = {"cpu": Demand(1.0)}
    there = tuple(Instance(name, vcpus=1, memory_mb=64, host="h1", demand=busy) for name in ("a", "b"))
    advisor.inventory.put(Inventory(hosts, there), mode="replace", generation=None)


def send(advisor: Advisor, clock: Clock, host: str = "h2", **values: float) -> None:
    now_s = clock().timestamp()
    advisor.telemetry.ingest([MetricSample(host, None, "host", name, value, now_s) for name, value in values.items()])


def refused(advisor: Advisor) -> dict[str, tuple[str, str]]:
    rejected = advisor.placements.place(NEW).recommendation.rejected
    return {one.host: (one.code, one.reason) for one in rejected}


def test_a_host_that_stalls_for_memory_takes_no_new_vm_and_says_why(two_hosts: Advisor, clock: Clock) -> None:
    assert refused(two_hosts) == {}
    send(two_hosts, clock, psi_memory=22.0, swap_mb=512.0)
    assert refused(two_hosts) == {
        "h2": ("host.memory_short", "it is short of memory: it stalls for memory about 20 % of the time")
    }


def test_one_window_of_stalls_fades_over_five_minutes(two_hosts: Advisor, clock: Clock) -> None:
    send(two_hosts, clock, psi_memory=60.0)
    assert set(refused(two_hosts)) == {"h2"}
    for _ in range(3):
        clock.turn(60)
        send(two_hosts, clock, psi_memory=0.0)
    assert set(refused(two_hosts)) == {"h2"}  # 60 * 0.8 ** 3 = 31
    for _ in range(4):
        clock.turn(60)
        send(two_hosts, clock, psi_memory=0.0)
    assert two_hosts.cloud.memory()["h2"].stalled == pytest.approx(60 * 0.8**7)
    assert refused(two_hosts) == {}


def test_where_the_kernel_counts_no_stalls_swapping_in_counts(two_hosts: Advisor, clock: Clock) -> None:
    send(two_hosts, clock, swap_in_mb_s=8.0)
    assert refused(two_hosts)["h2"] == ("host.memory_short", "it is short of memory: it swaps in about 8 MB/s")


def test_memory_that_lies_in_swap_and_is_not_needed_counts_nothing(two_hosts: Advisor, clock: Clock) -> None:
    send(two_hosts, clock, psi_memory=0.5, swap_mb=3000.0, swap_in_mb_s=0.0, available_mb=900.0)
    assert refused(two_hosts) == {}
    assert two_hosts.cloud.memory() == {"h2": HostMemory(0.5, 3000.0, 0.0, available_mb=900.0)}


def test_the_same_samples_again_and_older_ones_teach_nothing(two_hosts: Advisor, clock: Clock) -> None:
    send(two_hosts, clock, psi_memory=10.0)
    begin = two_hosts.cloud.memory()
    send(two_hosts, clock, psi_memory=10.0)
    clock.turn(-30)
    send(two_hosts, clock, psi_memory=90.0)
    assert two_hosts.cloud.memory() == begin


def test_what_was_measured_long_ago_says_nothing(two_hosts: Advisor, clock: Clock) -> None:
    send(two_hosts, clock, psi_memory=50.0)
    assert set(refused(two_hosts)) == {"h2"}
    clock.turn(1000)
    assert refused(two_hosts) == {}
    assert two_hosts.cloud.memory() == {}


def test_who_is_on_a_host_that_is_short_of_memory_may_stay_and_is_named_no_reason_to_go(
    two_hosts: Advisor, clock: Clock
) -> None:
    send(two_hosts, clock, "h1", psi_memory=40.0)
    there = two_hosts.inventory.instance("a")
    answer = two_hosts.placements.place(PlacementRequest(there)).recommendation
    assert "h1" not in {one.host for one in answer.rejected}
    assert refused(two_hosts)["h1"][0] == "host.memory_short"


def test_no_plan_moves_a_vm_to_a_host_that_is_short_of_memory(two_hosts: Advisor, clock: Clock) -> None:
    assert [step.host for step in two_hosts.plans.make(PlanRequest(kind="rebalance")).steps] == ["h2"]
    send(two_hosts, clock, psi_memory=40.0)
    assert two_hosts.plans.make(PlanRequest(kind="rebalance")).steps == ()


@pytest.fixture
def lenient(settings: Settings, clock: Clock, tmp_path: Path) -> Iterator[Advisor]:
    with Advisor(settings.model_copy(update={"memory_stall_percent": 50.0}), clock=clock) as advisor:
        yield advisor


def test_the_threshold_is_a_setting(lenient: Advisor, clock: Clock) -> None:
    put(lenient)
    send(lenient, clock, psi_memory=40.0)
    assert refused(lenient) == {}
    clock.turn(300)
    send(lenient, clock, psi_memory=60.0)
    assert set(refused(lenient)) == {"h2"}


def test_the_check_up_names_hosts_that_are_short_of_memory(two_hosts: Advisor, clock: Clock) -> None:
    send(two_hosts, clock, psi_memory=40.0, swap_in_mb_s=4.0, swap_mb=256.0)
    found = two_hosts.cloud.checkup()
    assert [(one.host, one.state) for one in found.memory] == [("h2", HostMemory(40.0, 256.0, 4.0))]
    assert any("h2" in problem and "40 %" in problem for problem in found.problems)
