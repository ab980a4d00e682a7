"""What stands behind a plan: the cloud of before and the one of afterwards, also where no ratio changes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from advisor.domain import Band, Effect, Host, Instance, Inventory, Plan, PlanFor, PlanRequest, WhatIf
from advisor.reports.plan_view import of_plan
from models.physics.prior import PriorPredictor
from profiler.demand import Demand
from tests.advisor.planning.planning_asked import plan as made


def test_a_host_that_is_imagined_counts_only_afterwards_although_the_ratios_are_one_object() -> None:
    small, large = (Host("h1", "kvm", pcpus=pcpus, memory_mb=4096) for pcpus in (2, 4))
    cloud = Inventory((small,), (Instance("a", vcpus=1, memory_mb=512, host="h1"),))
    same = {"h1": (Effect("a", Band(1.0, 1.0, 1.0), Band(1.0, 1.0, 1.0)),)}
    asked = PlanRequest("what_if", what_if=WhatIf(hosts=(large,)))
    plan = Plan(
        "p", datetime(2026, 1, 31, tzinfo=UTC), "analytic", "analytic", (), before=same, after=same, request=asked
    )
    found = of_plan(cloud, plan, None)
    before, after = found.before["h1"]["cpu"], found.after["h1"]["cpu"]
    assert before is not None and after == before / 2


@pytest.mark.parametrize(
    ("plan_for", "cpus"), [("hours", 1.0), ("mean", 1.0), ("p50", 0.8), ("p95", 2.6), ("p99", 3.9)]
)
def test_pressure_and_harm_count_the_demand_that_the_plan_counts(plan_for: PlanFor, cpus: float) -> None:
    demand = Demand(1.0, spread=0.95, p50=0.8, p95=2.6, p99=3.9, common=0.0, doubt=0.05)
    pair = tuple(Instance(name, 4, 2048, host="h1", demand={"cpu": demand}) for name in ("a", "b"))
    cloud = Inventory((Host("h1", "kvm", pcpus=4, memory_mb=65_536),), pair)
    plan = made(cloud, PlanRequest("rebalance", max_moves=0, plan_for=plan_for))
    found = of_plan(cloud, plan, PriorPredictor())
    assert found.before["h1"]["cpu"] == pytest.approx(2 * cpus / 4)
    kept = {effect.instance: effect.throughput_ratio.expected for effect in plan.after["h1"]}
    assert {one.victim: one.ratio for one in found.harm_after} == pytest.approx(kept, abs=1e-6)
