"""Which demand a plan counts: as it varies over the hours, or its mean or a percentile all the time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.domain import Host, Instance, Inventory, PlanFor, PlanRequest
from api.schemas.placements import PlanBody
from profiler.demand import Demand
from tests.advisor.planning.planning_asked import capacity, plan

HOSTS = tuple(Host(f"h{number}", "kvm", 8, 65_536) for number in range(1, 7))
TWO = HOSTS[:2]
DAY = tuple(1.9 if 8 <= hour < 20 else 0.1 for hour in range(24))
NIGHT = tuple(0.1 if 8 <= hour < 20 else 1.9 for hour in range(24))


def works(name: str, hours: tuple[float, ...], on: str | None = None) -> Instance:
    """A quarter of its four vCPUs in the mean, twice as much in its hours, and nearly all of them at the busiest."""
    known = Demand(1.0, spread=0.95, p50=1.0, p95=2.6, p99=3.9, hours=hours, common=1.0, doubt=0.05)
    demand = replace(known, open_loop=1.0)  # work arrives, as that of a web server does
    return Instance(name, 4, 2048, host=on, demand={"cpu": demand})


WEB, BATCH = works("web", DAY), works("batch", NIGHT)
SIX = [works(f"web-{n}", DAY, f"h{n}") for n in range(1, 4)] + [
    works(f"batch-{n}", NIGHT, f"h{n + 3}") for n in range(1, 4)
]


def fit(plan_for: PlanFor, mix: tuple[Instance, ...]) -> int:
    return capacity(Inventory(TWO), PlanRequest(kind="capacity", instances=mix, plan_for=plan_for)).fit


def hosts_left(plan_for: PlanFor) -> int:
    answer = plan(Inventory(HOSTS, tuple(SIX)), PlanRequest(kind="consolidate", plan_for=plan_for, keep_ratio=0.8))
    assert answer.sums_after
    return answer.sums_after.hosts_used


@pytest.mark.parametrize(
    ("plan_for", "web", "web_and_batch", "hosts"),
    [("hours", 6, 10, 2), ("mean", 12, 12, 1), ("p50", 12, 12, 1), ("p95", 4, 4, 3), ("p99", 4, 4, 3)],
)
def test_web_by_day_shares_hosts_with_batch_by_night_and_percentiles_keep_more_free(
    plan_for: PlanFor, web: int, web_and_batch: int, hosts: int
) -> None:
    """How many fit on two hosts of eight CPUs, and how many of six hosts are left by a consolidation."""
    assert (fit(plan_for, (WEB,)), fit(plan_for, (WEB, BATCH)), hosts_left(plan_for)) == (web, web_and_batch, hosts)


def test_what_is_only_known_as_a_mean_has_the_percentiles_of_its_class() -> None:
    given = Instance("given", 4, 2048, demand={"cpu": Demand(1.5)})
    assert fit("p95", (given,)) < fit("mean", (given,))


def test_a_plan_says_which_demand_it_counts() -> None:
    assert not any("all at once" in note for note in plan(Inventory(HOSTS), PlanRequest(instances=(WEB,))).notes)
    answer = plan(Inventory(HOSTS), PlanRequest(instances=(WEB,), plan_for="p95"))
    assert any("enough in 95 % of its own time" in note for note in answer.notes)
    assert answer.request.instances == (WEB,), "the question stays as it was asked"
    assert PlanBody.of(answer.request).to_domain() == answer.request
