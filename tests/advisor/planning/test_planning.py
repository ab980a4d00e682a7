"""Placing many instances one after another, on real snapshots with the queueing prior."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from planning_cases import NOW, WORKLOADS, cloud, host, vm

from advisor.domain import Instance, Inventory, Plan, Scene
from advisor.placement import predict_scene
from advisor.planning import place_all
from models.prior import PriorPredictor


def place(inventory: Inventory, *instances: Instance, **more: object) -> Plan:
    return place_all(inventory, instances, PriorPredictor(), objective="worst", now=NOW, **more)  # type: ignore[arg-type]


def test_each_placed_instance_counts_in_for_the_next_one() -> None:
    asked = [vm(f"new-{number}") for number in range(4)]
    plan = place(cloud(), *asked)
    assert sorted(step.host or "" for step in plan.steps) == ["h1", "h1", "h2", "h2"]


def test_an_instance_that_no_host_can_take_keeps_its_reasons_and_the_plan_goes_on() -> None:
    plan = place(cloud(), vm("huge", memory_mb=99_999), vm("small"))
    assert plan.steps[0].host is None
    assert [rejection.code for rejection in plan.steps[0].rejected] == ["capacity.memory", "capacity.memory"]
    assert plan.steps[1].host == "h1"
    assert all(effect.instance != "huge" for effects in plan.after.values() for effect in effects)


def test_memory_that_the_plan_has_given_away_is_gone_for_those_who_come_later() -> None:
    plan = place(cloud(hosts=(host("h1", 4096),)), vm("first", memory_mb=3000), vm("second", memory_mb=3000))
    assert [step.host for step in plan.steps] == ["h1", None]


def test_before_and_after_say_for_every_host_and_instance_what_predict_says() -> None:
    inventory = cloud(vm("a", on="h1"), vm("b", "bulk", on="h1"), vm("c", "bulk", on="h2"))
    plan = place(inventory, vm("d", "bulk"), vm("e"))
    assert set(plan.before) == set(plan.after) == {"h1", "h2"}
    assert [effect.instance for effect in plan.before["h1"]] == ["a", "b"]
    steps = {step.instance: step for step in plan.steps}
    for name, effects in plan.after.items():
        on_it = [one for one in inventory.instances if one.host == name]
        for asked in (vm("d", "bulk"), vm("e")):
            candidate = steps[asked.id].candidate
            if candidate and candidate.host == name:
                on_it.append(replace(asked, host=name, settings=candidate.isolation))
        there = tuple(sorted(on_it, key=lambda one: one.id))
        found = next(one for one in inventory.hosts if one.id == name)
        expected = predict_scene(Scene(found, there), PriorPredictor(), workloads=WORKLOADS).effects
        for effect, reference in zip(effects, expected, strict=True):
            assert effect.instance == reference.instance
            assert effect.throughput_ratio.expected == pytest.approx(reference.throughput_ratio.expected)
            assert effect.latency_ratio.lower == pytest.approx(reference.latency_ratio.lower)


def test_after_carries_what_each_had_before_and_nothing_for_newcomers() -> None:
    plan = place(cloud(vm("a", on="h1"), hosts=(host("h1"),)), vm("new"))
    before = {effect.instance: effect.throughput_ratio for effect in plan.before["h1"]}
    carried = {effect.instance: effect.before for effect in plan.after["h1"]}
    assert carried == {"a": before["a"], "new": None}


def test_an_instance_that_is_on_a_host_already_is_placed_anew_and_counts_once() -> None:
    crowd = [vm(name, on="h1") for name in ("a", "b", "c", "d")]
    plan = place(cloud(*crowd), replace(crowd[0], memory_mb=2048))
    assert plan.steps[0].host == "h2"
    assert [effect.instance for effect in plan.after["h1"]] == ["b", "c", "d"]
    assert [effect.instance for effect in plan.after["h2"]] == ["a"]
    (moved,) = plan.after["h2"]
    assert moved.before is not None
    assert moved.before.expected < moved.throughput_ratio.expected


def test_the_same_question_has_the_same_plan_and_the_order_of_hosts_does_not_matter() -> None:
    inventory = cloud(vm("a", "web", on="h1"), vm("b", "bulk", on="h2"))
    asked = (vm("x", "web"), vm("y", "bulk"), vm("z"))
    plan = place(inventory, *asked)
    assert place(inventory, *asked) == plan
    turned = place(replace(inventory, hosts=inventory.hosts[::-1]), *asked)
    assert [step.host for step in turned.steps] == [step.host for step in plan.steps]


def test_plans_of_different_questions_have_different_ids_that_sort_by_time() -> None:
    first, second = place(cloud(), vm("x")), place(cloud(), vm("y"))
    assert first.id != second.id
    later = place_all(cloud(), [vm("x")], PriorPredictor(), objective="worst", now=NOW + timedelta(seconds=1))
    assert first.id < later.id


def test_a_cloud_without_hosts_and_a_plan_without_instances_are_answers() -> None:
    nothing = place(Inventory(), vm("x"))
    assert (nothing.steps[0].host, nothing.before, nothing.after) == (None, {}, {})
    empty = place(cloud())
    assert (empty.steps, empty.before, empty.after) == ((), {"h1": (), "h2": ()}, {"h1": (), "h2": ()})


def test_hosts_not_seen_for_too_long_are_rejected_with_that_reason() -> None:
    old = replace(cloud(), observed_at=NOW - timedelta(hours=2))
    (step,) = place(old, vm("x"), fresh_s=3600).steps
    assert {rejection.code for rejection in step.rejected} == {"host.no_data"}
    assert place(old, vm("x")).steps[0].host is not None


def test_progress_names_each_instance_and_ends_at_one() -> None:
    seen: list[tuple[str, float]] = []
    place(cloud(), vm("x"), vm("y"), progress=lambda what, fraction: seen.append((what, fraction)))
    assert seen == [("placing x", 0.0), ("placing y", 0.5), ("placed", 1.0)]
