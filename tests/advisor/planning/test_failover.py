"""Failover reserve: what fits while every instance of hosts that fail together still has a host; growth as a day."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from advisor.domain import Capacity, Growth, Host, PlanRequest, PlanSums, RunwayPoint, SpareCapacity
from advisor.errors import InvalidInput
from advisor.planning.assignment.local_search import SearchClock
from advisor.planning.failover import PlacedBeside, failures_of
from tests.advisor.planning.planning_asked import capacity
from tests.advisor.planning.planning_cases import cloud, host, snapshot, vm

MIX = (vm("n", memory_mb=1000, load=0.05),)
FOUR_A_HOST = (vm("n", memory_mb=2000, load=0.05),)


def racks(*names: str) -> tuple[Host, ...]:
    """Hosts with 8,100 MB each, in these racks."""
    return tuple(replace(host(f"h{at}", 8100, pcpus=8), labels={"rack": name}) for at, name in enumerate(names))


def spare(hosts: tuple[Host, ...], count: int, label: str | None = None) -> SpareCapacity:
    asked = PlanRequest(
        "capacity", FOUR_A_HOST, spare_hosts=count, spare_label=label, keep_ratio=0.1, time_limit_s=60.0
    )
    answer = capacity(cloud(hosts=hosts), asked)
    assert answer.spare and answer.fit == 4 * len(hosts)
    return answer.spare


def test_so_many_fit_as_hosts_that_are_left_have_room_for() -> None:
    four = racks("a", "a", "b", "b")
    assert (spare(four, 1).fit, spare(four, 2).fit) == (12, 8)
    reserved = spare(four, 1, "rack")
    assert (reserved.fit, reserved.too_many) == (8, 9)
    assert reserved.in_the_way.startswith("if h")


FULL = cloud(*(vm(f"r{at}", on=f"h{at % 2}", memory_mb=1000, load=0.05) for at in range(14)), hosts=racks("a", "b"))


def test_a_cloud_without_a_host_for_every_instance_now_is_reported() -> None:
    answer = capacity(FULL, PlanRequest("capacity", MIX, spare_hosts=1, keep_ratio=0.1))
    assert answer.spare and (answer.spare.fit, answer.spare.too_many) == (None, 0)
    assert "the search finds no hosts for the present instances: if h" in answer.reserve


def test_hosts_without_the_label_fail_alone_and_an_empty_one_takes_its_room_with_it() -> None:
    start = snapshot((*racks("a", "a", "b"), host("h3"), host("h4")))
    assert failures_of(start, 1, "rack") == [("h0", "h1"), ("h2",), ("h3",), ("h4",)]
    assert failures_of(start, 2, "rack")[0] == ("h0", "h1", "h2")
    assert len(failures_of(start, 2, None)) == 10


def test_a_label_that_no_host_has_is_refused_with_those_that_there_are() -> None:
    asked = PlanRequest("capacity", MIX, spare_hosts=1, spare_label="zone")
    with pytest.raises(InvalidInput, match=r"no host has the label zone; there are rack$") as refused:
        capacity(cloud(hosts=racks("a", "b")), asked)
    assert refused.value.field == "spare_label"


def test_growth_that_is_uncertain_gives_a_day_between_two_others() -> None:
    growth, mix = Growth(1, 0, 24, uncertain_percent=50), (vm("n", memory_mb=8000, load=0.05),)
    answer = capacity(cloud(hosts=racks(*"abcdef")), PlanRequest("capacity", mix, keep_ratio=0.1, growth=growth))
    assert (answer.earliest_month, answer.runs_out_month, answer.latest_month) == (5, 7, 14)
    assert answer.outlook.endswith("That is 2026-09-30, between 2026-07-31 and 2027-05-01.")


def test_without_a_month_of_less_growth_no_day_is_made_up() -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    sums = PlanSums(1, 1, 1, 0, 1.0, 1.0, 1.0)
    runway = tuple(RunwayPoint(float(month), month, 1.0, sums, fits=month < 5) for month in range(6))
    full = Capacity(1, 1, 1, "CPU.", 5.0, runway, None, 4.0, None, begin)
    assert "with more growth 2026-05-02, with less of it in none of the months examined." in full.outlook


def test_a_failure_that_was_not_tried_to_the_end_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    late = PlacedBeside(snapshot(racks("a")), {"r0": ()}, in_time=False)

    def over(_context: object, _cloud: object, _new_vms: object, clock: SearchClock) -> PlacedBeside:
        time.sleep(max(clock.left_s, 0) + 0.01)
        return late

    monkeypatch.setattr("advisor.planning.failover.place_beside", over)
    answer = capacity(FULL, PlanRequest("capacity", MIX, spare_hosts=1, keep_ratio=0.1, time_limit_s=3.0))
    assert answer.spare and answer.spare.fit is None
    assert answer.spare.in_the_way == "the time limit was reached before all failures were tried"
    assert answer.reserve.startswith("Whether the present instances have a host when any host fails is not known: ")
