"""What stands behind a plan: the cloud of before and the one of afterwards, also where nobody's ratio changes."""

from __future__ import annotations

from datetime import UTC, datetime

from advisor.domain import Band, Effect, Host, Instance, Inventory, Plan, PlanRequest, WhatIf
from advisor.reports.plan_background import of_plan


def test_a_host_that_is_imagined_counts_only_afterwards_although_the_ratios_are_one_object() -> None:
    small, large = (Host("h1", "kvm", pcpus=pcpus, memory_mb=4096) for pcpus in (2, 4))
    cloud = Inventory((small,), (Instance("a", vcpus=1, memory_mb=512, host="h1"),))
    same = {"h1": (Effect("a", Band(1.0, 1.0, 1.0), Band(1.0, 1.0, 1.0)),)}
    asked = PlanRequest("what_if", what_if=WhatIf(hosts=(large,)))
    plan = Plan("p", datetime(2026, 1, 31, tzinfo=UTC), "prior", "prior", (), before=same, after=same, request=asked)
    found = of_plan(cloud, plan, None)
    before, after = found.before["h1"]["cpu"], found.after["h1"]["cpu"]
    assert before is not None and after == before / 2
