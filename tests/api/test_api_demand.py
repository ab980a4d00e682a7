"""Demand in bodies: one number or a distribution, told again in full, and refused where it cannot be."""

from __future__ import annotations

import pytest

from advisor.errors import InvalidInput
from api.schemas.inventory import InstanceItem
from profiler.demand import Demand
from profiler.observed import Instance


def test_one_number_and_a_distribution_are_both_taken() -> None:
    body = {"id": "a", "vcpus": 2, "demand": {"cpu": {"mean": 0.4, "p95": 0.9}, "net_mbit": 20}}
    found = InstanceItem.model_validate(body).as_domain()
    assert dict(found.demand) == {"cpu": Demand(0.4, p95=0.9), "net_mbit": Demand(20.0, "net_mbit")}


def test_what_is_shown_can_be_sent_back() -> None:
    demand = Demand(0.4, spread=0.1, hours=(1.0,) * 24, windows=7.0, doubt=0.05, origin="measured")
    before = Instance("a", vcpus=2, demand={"cpu": demand})
    assert InstanceItem.model_validate_json(InstanceItem.of(before).model_dump_json()).as_domain() == before


@pytest.mark.parametrize(
    ("demand", "reason"),
    [
        ({"cpu": 2.5}, "above its 2 vCPUs"),
        ({"cpu": {"mean": 1, "p95": 2, "p99": 1}}, "do not grow"),
        ({"cpu": {"mean": 1, "hours": [1.0]}}, "24 or 168"),
    ],
)
def test_a_demand_that_cannot_be_is_refused(demand: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        InstanceItem.model_validate({"id": "a", "vcpus": 2, "demand": demand}).as_domain()
