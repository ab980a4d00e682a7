"""What is no question to a plan: refused in one sentence, with its field."""

from __future__ import annotations

import pytest

from advisor.domain import Growth, IsolationSettings, Pinning, PlanRequest, WhatIf
from advisor.errors import InvalidInput
from tests.advisor.planning.planning_asked import HOSTS, plan
from tests.advisor.planning.planning_cases import cloud, host, vm


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("instances", PlanRequest()),
        ("instances", PlanRequest(kind="rebalance", instances=(vm("n"),))),
        ("instances", PlanRequest(instances=(vm("n"), vm("n")))),
        ("instances", PlanRequest(instances=(vm("n", on="h99"),))),
        ("instances", PlanRequest(instances=(vm("a", on="h2"),))),
        ("instances", PlanRequest(instances=(vm("n", settings=IsolationSettings(Pinning(((0,), (1,))))),))),
        ("kind", PlanRequest(kind="dream")),  # type: ignore[arg-type]
        ("objective", PlanRequest(instances=(vm("n"),), objective="best")),  # type: ignore[arg-type]
        ("empty", PlanRequest(kind="evacuate")),
        ("empty", PlanRequest(kind="evacuate", empty=("h9",))),
        ("empty", PlanRequest(kind="evacuate", empty=("h1", "h1"))),
        ("max_moves", PlanRequest(kind="evacuate", empty=("h1",), max_moves=0)),
        ("empty", PlanRequest(kind="evacuate", empty=("h1", "h2", "h3"))),
        ("empty", PlanRequest(kind="evacuate", empty=("h1",), hosts=("h1",))),
        ("empty", PlanRequest(kind="rebalance", empty=("h1",))),
        ("hosts", PlanRequest(kind="rebalance", hosts=("h9",))),
        ("hosts", PlanRequest(kind="rebalance", hosts=())),
        ("hosts", PlanRequest(kind="rebalance", hosts=("h1", "h2", "h1"))),
        ("movable", PlanRequest(kind="rebalance", movable=("a", "a"))),
        ("movable", PlanRequest(kind="rebalance", movable=("ghost",))),
        ("movable", PlanRequest(instances=(vm("n"),), movable=("a",))),
        ("keep_ratio", PlanRequest(kind="rebalance", keep_ratio=0.0)),
        ("move_gain", PlanRequest(kind="rebalance", move_gain=2.0)),
        ("at_once", PlanRequest(kind="rebalance", at_once=0)),
        ("max_moves", PlanRequest(kind="rebalance", max_moves=-1)),
        ("time_limit_s", PlanRequest(kind="rebalance", time_limit_s=float("nan"))),
        ("growth", PlanRequest(kind="rebalance", growth=Growth())),
        ("growth.instances_per_month", PlanRequest(kind="capacity", instances=(vm("n"),), growth=Growth(-1.0))),
        ("growth.months", PlanRequest(kind="capacity", instances=(vm("n"),), growth=Growth(months=0))),
        ("growth.instances_per_month", PlanRequest(kind="capacity", instances=(vm("n"),), growth=Growth(1e9))),
        ("growth.load_percent_per_month", PlanRequest(kind="capacity", instances=(vm("n"),), growth=Growth(0, 1e15))),
        ("growth.uncertain_percent", PlanRequest("capacity", (vm("n"),), growth=Growth(1, uncertain_percent=101))),
        ("spare_label", PlanRequest("capacity", (vm("n"),), spare_label="rack")),
        ("spare_hosts", PlanRequest(kind="rebalance", spare_hosts=1)),
        ("plan_for", PlanRequest(kind="right_size", plan_for="p95")),
        ("plan_for", PlanRequest(instances=(vm("n"),), plan_for="p42")),  # type: ignore[arg-type]
        ("then", PlanRequest(kind="rebalance", then="admit")),
        ("then", PlanRequest(kind="what_if", what_if=WhatIf(remove=("h1",)), then="evacuate")),  # type: ignore[arg-type]
        ("what_if", PlanRequest(kind="what_if")),
        ("what_if", PlanRequest(kind="what_if", what_if=WhatIf())),
        ("what_if", PlanRequest(kind="rebalance", what_if=WhatIf(remove=("h1",)))),
        ("what_if.remove", PlanRequest(kind="what_if", what_if=WhatIf(remove=("h9",)))),
        ("what_if.remove", PlanRequest(kind="what_if", what_if=WhatIf(remove=("h2", "h2")))),
        ("what_if.hosts", PlanRequest(kind="what_if", what_if=WhatIf(hosts=(host("h4"), host("h4"))))),
        ("what_if.remove", PlanRequest(kind="what_if", what_if=WhatIf(remove=("h1", "h2", "h3")))),
        ("what_if.remove", PlanRequest(kind="what_if", what_if=WhatIf(hosts=(host("h1"),), remove=("h1",)))),
        ("what_if.cpu_overcommit", PlanRequest(kind="what_if", what_if=WhatIf(cpu_overcommit=0.0))),
        ("what_if.model", PlanRequest(kind="what_if", what_if=WhatIf(model="../etc"))),
    ],
)
def test_what_contradicts_itself_or_the_cloud_is_refused_with_its_field(field: str, request_: PlanRequest) -> None:
    with pytest.raises(InvalidInput) as refused:
        plan(cloud(vm("a", on="h1"), hosts=HOSTS), request_)
    assert refused.value.field == field
    assert "\n" not in refused.value.message
