"""Answers that an earlier version stored or sent are read as they were decided; recorded before fields were renamed."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from advisor.domain import (
    Instance,
    IsolationSettings,
    Pinning,
    PlacementRequest,
    Plan,
    PlanRequest,
    Recommendation,
    codec,
    plan_from_json,
    recommendation_from_json,
    scene_effects_from_json,
)
from advisor.store import answers

RECORDED = json.loads((Path(__file__).parents[2] / "recordings" / "answers" / "of_version_0_1.json").read_text("utf-8"))
PINNED = Pinning(((2,), (3,)))


def stored_placement(connection: sa.Connection) -> Recommendation | None:
    row = RECORDED["placement"]["stored"]
    values = {"id": row["id"], "created_at": codec.decode(Recommendation, row).created_at, "answer": row}
    more = {"instance": "shop-7", "model_version": "m1", "dry_run": False}
    connection.execute(sa.insert(answers.recommendations).values(**values, **more))
    return answers.get(connection, row["id"])


def stored_plan(connection: sa.Connection) -> Plan | None:
    row = RECORDED["plan"]["stored"]
    created_at = plan_from_json(RECORDED["plan"]["sent"], PlanRequest()).created_at
    values = {"id": row["id"], "created_at": created_at, "model_version": "v7", "answer": row}
    connection.execute(sa.insert(answers.plans).values(**values))
    return answers.get_plan(connection, row["id"])


@pytest.fixture
def connection() -> Any:
    engine = sa.create_engine("sqlite://", json_serializer=codec.text, json_deserializer=codec.parsed)
    with engine.begin() as made:
        answers.recommendations.create(made)
        answers.plans.create(made)
        yield made


def check_placement(answer: Recommendation | None) -> None:
    assert answer is not None
    assert (answer.id, answer.model_version, answer.model_origin, answer.advised) == ("r1", "m1", "measured", "stay")
    (best,) = answer.candidates
    assert (best.host, best.pinning, best.isolation.pinning, best.isolation.weight) == ("h3", PINNED, PINNED, 512)
    assert (best.new_vm.instance, best.new_vm.throughput_ratio.expected) == ("shop-7", 0.95)
    assert best.new_vm.cpu is not None and best.new_vm.cpu.short == 0.2
    assert best.new_vm.basis is not None and best.new_vm.basis.similar == pytest.approx(120.4)
    assert [(step.action, step.notes) for step in best.mitigation] == [("cap", ("mind this",))]
    assert (best.notes, best.changes) == (("mind this",), {"batch-1": IsolationSettings(cap_percent=40.0)})
    assert best.headroom is not None
    assert (best.headroom.one_numa_node, best.headroom.cpu, best.headroom.nic) == (False, 0.4, inf)
    assert answer.present is not None and answer.present.new_vm.instance == "shop-7"
    (tuned,) = answer.tuned
    assert [(step.subject, step.driver_cpus) for step in tuned.tuning] == [("batch-1", ()), ("driver domain", (0,))]
    assert tuned.tuning[0].settings == IsolationSettings(pinning=Pinning(((1,),)))
    assert [(one.host, one.code, len(one.mitigation)) for one in answer.rejected] == [
        ("h9", "capacity.memory", 0),
        ("h10", "limit.new_vm", 1),
    ]
    assert answer.rejected[1].mitigation[0].driver_cpus == (1,)
    assert answer.evidence is not None and answer.evidence.held is not None and answer.evidence.held.windows == 120


def check_plan(plan: Plan | None) -> None:
    assert plan is not None
    placed, refused, move, driver = plan.steps
    assert (placed.score, placed.host, placed.settings and placed.settings.pinning) == (0.7, "h1", Pinning(((1,),)))
    assert placed.new_vm is not None
    assert (placed.new_vm.instance, placed.new_vm.throughput_ratio.lower) == ("shop-7", 0.8)
    assert (refused.new_vm, refused.score, [host.code for host in refused.rejected][-1]) == (None, None, "host.no_data")
    assert (move.settings, move.changes) == (
        IsolationSettings(weight=512),
        {"bulk-1": IsolationSettings(cap_percent=50)},
    )
    assert move.gain is not None and move.gain.expected == 0.2
    assert move.duration_s is not None and move.duration_s.expected == pytest.approx(12.34, abs=0.05)
    assert (driver.subject, driver.driver_cpus, driver.driver_weight) == ("driver domain", (0,), 512)
    assert [step.action for step in plan.undo] == ["remove"]
    assert plan.sums_before is not None and (plan.sums_before.watts, plan.sums_before.price) == (
        pytest.approx(123.456, abs=0.05),
        None,
    )
    assert plan.search is not None and (plan.search.value, plan.search.bound, plan.search.gap) == (0.7, inf, inf)
    assert plan.capacity is not None
    assert (plan.capacity.runs_out_month, plan.capacity.earliest_month, plan.capacity.latest_month) == (2.0, 1.0, None)
    assert (plan.capacity.months_examined, plan.capacity.spare and plan.capacity.spare.fit) == (2, 3)
    assert [(one.name, one.fit, one.notes) for one in plan.variants] == [("now", 5, ("a note",))]
    assert [(one.name, one.saved) for one in plan.sizing] == [("db", 7)]
    assert (plan.generation, plan.notes) == (7, ("mind this",))
    assert [effect.instance for effect in plan.after["h1"]] == ["db-1", "shop-7"]


def test_a_stored_placement_is_read(connection: sa.Connection) -> None:
    answer = stored_placement(connection)
    check_placement(answer)
    assert answer is not None
    assert (answer.request.instance, answer.request.commands) == (Instance("shop-7"), True)
    assert (answer.widened, answer.candidates[0].commands[0].tool) == ({"h3": 1.5}, "xl")


def test_a_placement_that_an_earlier_service_sent_is_read() -> None:
    check_placement(recommendation_from_json(RECORDED["placement"]["sent"], PlacementRequest(Instance("shop-7"))))


def test_a_stored_plan_is_read(connection: sa.Connection) -> None:
    plan = stored_plan(connection)
    check_plan(plan)
    assert plan is not None
    assert plan.kind == "admit"
    assert [effect.instance for effect in plan.steps[0].neighbours] == ["db-1"]


def test_a_plan_that_an_earlier_service_sent_is_read() -> None:
    check_plan(plan_from_json(RECORDED["plan"]["sent"], PlanRequest()))


def test_effects_that_an_earlier_service_sent_are_read() -> None:
    effects = scene_effects_from_json(RECORDED["scene"]["sent"])
    assert (effects.model_version, effects.model_origin, effects.crowded) == ("analytic", "analytic", 0.1)
    assert [(one.instance, one.throughput_ratio.expected) for one in effects.effects] == [
        ("shop-7", 0.95),
        ("batch-1", 0.97),
    ]
    assert effects.effects[0].overloaded
    assert effects.effects[0].latency_ratio.expected == inf


@pytest.mark.parametrize("read", [check_placement, check_plan])
def test_what_is_sent_now_is_read_again(read: Any) -> None:
    placement = recommendation_from_json(RECORDED["placement"]["sent"], PlacementRequest(Instance("shop-7")))
    plan = plan_from_json(RECORDED["plan"]["sent"], PlanRequest())
    if read is check_plan:
        read(plan_from_json(codec.answer_values(plan), PlanRequest()))
    else:
        read(recommendation_from_json(codec.answer_values(placement), PlacementRequest(Instance("shop-7"))))
