"""What a cloud draws and costs, by labels of hosts; two that peak at different hours share where others may not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.domain import Capacity, Growth, Host, Instance, PlanRequest, PlanSums, RunwayPoint, WhatIf
from profiler.demand import Demand
from tests.advisor.planning.planning_asked import capacity, plan
from tests.advisor.planning.planning_cases import cloud, host, vm

LABELS = {"watts_idle": "100", "watts_full": "300", "price_per_month": "50"}
HALF_BUSY = Instance("half", 4, 1024, host="h0", demand={"cpu": Demand(2.0, p95=2.2)})


def labelled(count: int, **labels: str) -> tuple[Host, ...]:
    return tuple(replace(host(f"h{at}", pcpus=4), labels=LABELS | labels) for at in range(count))


def sums(hosts: tuple[Host, ...]) -> PlanSums:
    found = plan(cloud(HALF_BUSY, hosts=hosts), PlanRequest("rebalance")).sums_before
    assert found
    return found


def test_hosts_in_use_draw_between_idle_and_full_and_all_hosts_cost() -> None:
    found = sums(labelled(3))
    assert found.watts == pytest.approx(200, abs=10)
    assert found.price == 150


@pytest.mark.parametrize("wrong", ["", "much", "-1", "nan", "inf"])
def test_nothing_is_assumed_of_a_host_that_does_not_say(wrong: str) -> None:
    assert sums(labelled(1, watts_full=wrong, price_per_month=wrong)).watts is None
    assert sums((*labelled(1), *labelled(2, price_per_month=wrong)[1:])).price is None


def test_a_label_that_is_no_number_is_reported() -> None:
    def notes(**labels: str) -> list[str]:
        answer = plan(cloud(HALF_BUSY, hosts=labelled(3, **labels)), PlanRequest("rebalance"))
        return [note for note in answer.notes if "label" in note]

    assert notes() == []
    assert notes(watts_full="lots", price_per_month="-1") == [
        "h0 has the label watts_full: lots, which is no number from 0 on; it counts as not said.",
        "h0 has the label price_per_month: -1, which is no number from 0 on; it counts as not said.",
    ]


def test_an_imagined_cloud_stands_beside_the_present_one_with_run_way_and_price() -> None:
    mix = (vm("n", memory_mb=8000, load=0.05),)
    new = replace(host("new", 8100, pcpus=8), labels=LABELS)
    hosts, growth = tuple(replace(one, memory_mb=8100) for one in labelled(2)), Growth(1, 0, 6)
    asked = PlanRequest("what_if", mix, keep_ratio=0.1, growth=growth, what_if=WhatIf(hosts=(new,)), then="capacity")
    now, imagined = plan(cloud(hosts=hosts), asked).variants
    assert (now.fit, imagined.fit) == (2, 3)
    assert (now.runs_out_month, imagined.runs_out_month) == (3, 4)
    assert (now.sums.price, imagined.sums.price) == (100, 150)
    assert now.instance_days == pytest.approx((1 + 2 * 5) * 365.25 / 12)
    assert imagined.instance_days == pytest.approx((1 + 2 + 3 * 4) * 365.25 / 12)


def test_days_of_new_vms_are_not_reported_where_months_were_left_out() -> None:
    begun = PlanSums(1, 1, 1, 0, 1.0, 1.0, 1.0)
    runway = tuple(RunwayPoint(float(month), month, 1.0, begun, fits=True) for month in range(3))
    known = Capacity(9, 9, 9, "", runway=runway)
    assert [known.instance_days(Growth(1, 0, months)) is None for months in (6, 2)] == [True, False]


def test_more_fit_beside_those_who_are_busy_at_other_hours() -> None:
    def busy(name: str, hours: tuple[float, ...], on: str | None = None) -> Instance:
        demand = Demand(0.3, spread=0.05, p95=0.7, hours=hours, windows=2000)
        return Instance(name, 1, 1024, host=on, demand={"cpu": demand})

    by_day, by_night = (2.0,) * 12 + (0.0,) * 12, (0.0,) * 12 + (2.0,) * 12
    web = cloud(*(busy(f"web{at}", by_day, "h0") for at in range(4)), hosts=(host("h0", 64_000, pcpus=4),))
    beside_day, beside_night = (
        capacity(web, PlanRequest("capacity", (busy("batch", hours),), keep_ratio=0.95, time_limit_s=60)).fit
        for hours in (by_day, by_night)
    )
    assert beside_night > beside_day
