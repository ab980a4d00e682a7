"""Plans by models that break or say odd things: whose answer it is, and what is not counted."""

from __future__ import annotations

import math

import pytest

from advisor.domain import PlanRequest, WhatIf
from advisor.errors import BrokenArtifact
from advisor.prediction.active import ActivePredictor
from tests.advisor.planning.planning_asked import HOSTS, PRESSED, FailsLater, Swift, plan
from tests.advisor.planning.planning_cases import cloud, vm
from tests.advisor.service.two_models import Sure


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_model_that_fails_on_the_way_leaves_the_whole_plan_to_the_prior(times: int) -> None:
    asked = PlanRequest(instances=(vm("n1"), vm("n2", "bulk")))
    found, alone = plan(cloud(hosts=HOSTS), asked, predictor=FailsLater(times)), plan(cloud(hosts=HOSTS), asked)
    assert (found.model_version, found.degraded) == ("analytic", True)
    assert "Model m-1 failed (RuntimeError: broken); the analytic model answered instead." in found.notes
    assert (found.steps, found.after) == (alone.steps, alone.after)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_model_that_gives_no_number_leaves_the_whole_plan_to_the_prior(number: float) -> None:
    asked = PlanRequest(instances=(vm("n1"),))
    found, alone = plan(cloud(hosts=HOSTS), asked, predictor=Sure("m-1", number)), plan(cloud(hosts=HOSTS), asked)
    assert (found.model_version, found.degraded, found.steps) == ("analytic", True, alone.steps)
    assert any("it gave no finite throughput for some instance" in note for note in found.notes)


def test_a_model_that_fails_once_at_lower_bounds_leaves_the_whole_capacity_to_the_prior() -> None:
    asked = PlanRequest(kind="capacity", instances=(vm("n", memory_mb=5000),))
    never, begun = FailsLater(10_000), dict[str, int]()
    alone = plan(
        cloud(hosts=HOSTS[:1]), asked, predictor=never,
        progress=lambda what, _: begun.setdefault(what, 10_000 - never.left) and None,
    )  # fmt: skip
    breaks = FailsLater(begun["filling it by lower bounds"] + 2)
    answer = plan(cloud(hosts=HOSTS[:1]), asked, predictor=breaks)
    assert (answer.model_version, answer.degraded, answer.capacity) == ("analytic", True, alone.capacity)


def test_an_imagined_model_that_fails_is_no_answer_of_another_one() -> None:
    asked = PlanRequest(kind="what_if", what_if=WhatIf(model="m-1"), then="rebalance")
    for times in (0, 3):
        with pytest.raises(BrokenArtifact, match="model m-1 failed: RuntimeError: broken"):
            plan(cloud(*PRESSED, hosts=HOSTS), asked, models=lambda _: ActivePredictor(FailsLater(times)))  # noqa: B023


def test_who_cannot_be_brought_in_by_any_order_is_not_counted_as_placed() -> None:
    answer = plan(cloud(hosts=HOSTS[:1]), PlanRequest(instances=(vm("n1"), vm("n2"))), predictor=Swift())
    assert answer.steps == () and answer.search
    assert (answer.search.aim, answer.search.value, answer.search.bound) == ("instances placed", 0, 2)
    assert answer.search.ended == "in the way"
    assert "n1 is not placed: h1 would take n1 below its limit." in answer.notes


def test_the_worst_off_may_be_faster_than_alone() -> None:
    sums = plan(cloud(*PRESSED, hosts=HOSTS), PlanRequest(kind="rebalance"), predictor=Swift()).sums_before
    assert sums and sums.worst == pytest.approx(1.2)
