"""A new instance of which nothing is known has one estimate, whichever question is asked about it."""

from __future__ import annotations

import pytest

from advisor.domain import Instance, PlacementRequest, Plan, PlanFor, PlanKind, PlanRequest
from advisor.placement.decision import recommend
from advisor.planning.planner import plan
from advisor.prediction.active import ActivePredictor
from models.physics.prior import PriorPredictor
from profiler.demand import Demand
from tests.advisor.core.core_clouds import FRESH_S, NOW, cloud, context, host, vm

# Eight web servers that use 3.2 of 4 CPUs: far more than the tenth that machines of public traces use.
SEEN = [vm(f"front-{n}", None, f"m{n % 4}", vcpus=4, demand={"cpu": Demand(3.2, "cpu")}) for n in range(8)]
SNAPSHOT = cloud([host(f"m{n}", pcpus=16, memory_mb=65_536.0) for n in range(4)], SEEN)
NEW = Instance("front-8", vcpus=4, memory_mb=1024.0)


def no_model(version: str) -> ActivePredictor:
    raise AssertionError(version)


def planned(kind: PlanKind, new: Instance, plan_for: PlanFor = "hours") -> Plan:
    request = PlanRequest(kind=kind, instances=(new,), time_limit_s=20.0, plan_for=plan_for)
    chosen = ActivePredictor(PriorPredictor())
    return plan(SNAPSHOT, chosen, request, now=NOW, fresh_s=FRESH_S, models=no_model)


ESTIMATE = SNAPSHOT.with_class(NEW)
PLACED = recommend(SNAPSHOT, context(PriorPredictor()), PlacementRequest(NEW))


def test_the_estimate_is_that_of_its_like() -> None:
    assert ESTIMATE.demand["cpu"].mean > 2.0
    assert any("from 8 known instances" in note for note in PLACED.notes)


@pytest.mark.parametrize("kind", ["capacity", "admit"])
def test_plans_say_what_a_placement_says(kind: PlanKind) -> None:
    (like,) = [note for note in PLACED.notes if "is estimated from" in note]
    assert like in planned(kind, NEW).notes
    assert not any("Nothing is known" in note for note in planned(kind, NEW).notes)


@pytest.mark.parametrize("plan_for", ["hours", "p95"])
def test_a_plan_counts_the_estimate_of_a_placement(plan_for: PlanFor) -> None:
    by_itself, as_estimated = (planned("capacity", new, plan_for).capacity for new in (NEW, ESTIMATE))
    assert by_itself is not None
    assert as_estimated is not None
    assert (by_itself.fit, by_itself.fit_lower) == (as_estimated.fit, as_estimated.fit_lower)
