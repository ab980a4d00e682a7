"""Plans of clouds whose hosts have many residents with limits of their own."""

from __future__ import annotations

import pytest

from advisor.domain import PLAN_KINDS, Host, Instance, IsolationSettings, Plan, PlanRequest, WhatIf
from profiler.observed import NetworkSettings
from tests.advisor.planning.planning_asked import plan
from tests.advisor.planning.planning_cases import cloud, vm

LIMITS = (
    IsolationSettings(cap_percent=50),
    IsolationSettings(network=NetworkSettings("dedicated", 100, 100)),
    IsolationSettings(disk_limit_mb_s=50),
)
HOSTS = tuple(Host(f"h{at}", "kvm", 64, 524_288, nic_mbit=1000) for at in (1, 2, 3))
OF_KIND: dict[str, PlanRequest] = {
    "admit": PlanRequest(instances=(vm("new"),)),
    "capacity": PlanRequest(kind="capacity", instances=(vm("new"),)),
    "evacuate": PlanRequest(kind="evacuate", empty=("h1",)),
    "what_if": PlanRequest(kind="what_if", what_if=WhatIf(cpu_overcommit=2.0), then="rebalance"),
}


def planned(kind: str, limited: int) -> Plan:
    residents = [
        Instance(f"r{at}", 1, 1024, host="h1", workload="cpu", settings=LIMITS[at % len(LIMITS)])
        for at in range(limited)
    ]
    return plan(cloud(*residents, hosts=HOSTS), OF_KIND.get(kind, PlanRequest(kind=kind)))  # type: ignore[arg-type]


@pytest.mark.parametrize("limited", [1, 9, 10, 25])
@pytest.mark.parametrize("kind", PLAN_KINDS)
def test_every_kind_of_plan_is_made_however_many_residents_have_limits(kind: str, limited: int) -> None:
    found = planned(kind, limited)
    predicted = [effect.instance for effects in found.before.values() for effect in effects]
    assert set(predicted) == {f"r{at}" for at in range(limited)}
