"""Every kind of plan on small clouds with the analytic model: what it says."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from advisor.domain import Growth, Inventory, Plan, PlanRequest, Scene, WhatIf
from advisor.placement.decision import predict_scene
from advisor.planning.plan_context import PlanContext, stage_changes
from advisor.prediction.active import ActivePredictor
from advisor.snapshot import ClusterSnapshot
from models.physics.prior import PriorPredictor
from tests.advisor.planning.planning_asked import HOSTS, PRESSED, capacity, carried_out, plan, there
from tests.advisor.planning.planning_cases import NOW, WORKLOADS, cloud, host, vm
from tests.advisor.planning.test_migration_order import SWAP, THREE, A, B


def test_admitted_instances_stand_where_the_steps_put_them_with_their_effects() -> None:
    asked = (vm("n1"), vm("huge", memory_mb=99_999), vm("n2"))
    answer = plan(cloud(hosts=HOSTS), PlanRequest(instances=asked))
    assert [(one.instance, one.host is None) for one in answer.steps] == [("n1", False), ("n2", False), ("huge", True)]
    for step in answer.steps[:2]:
        assert step.new_vm and step.new_vm.instance == step.instance
        assert there(answer)[step.instance] == step.host
        assert step.new_vm.throughput_ratio.expected == pytest.approx(1.0)
    assert {one.code for one in answer.steps[2].rejected} == {"capacity.memory"}
    undone = [(one.instance, one.action, one.host) for one in answer.undo]
    assert undone == [("n2", "remove", None), ("n1", "remove", None)]
    assert counts(answer) == (0, 2)


def counts(found: Plan) -> tuple[int, int]:
    """How many instances have a host before and after."""
    assert found.sums_before and found.sums_after
    return found.sums_before.instances, found.sums_after.instances


def test_the_same_question_at_the_same_moment_has_the_same_plan() -> None:
    request = PlanRequest(instances=(vm("n1"), vm("n2", "bulk")), commands=True)
    assert plan(cloud(hosts=HOSTS), request) == plan(cloud(hosts=HOSTS), request)


def test_before_and_after_say_for_every_instance_what_predict_says() -> None:
    now = cloud(vm("a", on="h1"), vm("b", "bulk", on="h1"), vm("c", "bulk", on="h2"), hosts=HOSTS)
    asked = (vm("d", "bulk"), vm("e"))
    answer = plan(now, PlanRequest(instances=asked))
    at = there(answer)
    all_instances = (*now.instances, *(replace(one, host=at[one.id]) for one in asked))
    for one in HOSTS:
        crowd = tuple(sorted((who for who in all_instances if who.host == one.id), key=lambda who: who.id))
        expected = predict_scene(Scene(one, crowd), PriorPredictor(), workloads=WORKLOADS).effects if crowd else ()
        assert [effect.instance for effect in answer.after[one.id]] == [who.id for who in crowd]
        for effect, reference in zip(answer.after[one.id], expected, strict=True):
            assert effect.throughput_ratio.expected == pytest.approx(reference.throughput_ratio.expected)
            assert effect.latency_ratio.lower == pytest.approx(reference.latency_ratio.lower)
    was = {effect.instance: effect.throughput_ratio for effects in answer.before.values() for effect in effects}
    for effects in answer.after.values():
        assert all(effect.before == was.get(effect.instance) for effect in effects)


def test_plans_of_different_questions_have_different_ids_that_sort_by_time() -> None:
    one, other = PlanRequest(instances=(vm("x"),)), PlanRequest(instances=(vm("y"),))
    first = plan(cloud(), one).id
    assert first != plan(cloud(), other).id
    assert first < plan(cloud(), one, now=NOW + timedelta(seconds=1)).id


@pytest.mark.parametrize(
    "request_",
    [
        PlanRequest(instances=(vm("x"),)),
        PlanRequest(kind="rebalance"),
        PlanRequest(kind="capacity", instances=(vm("x"),), growth=Growth(1, months=2)),
        PlanRequest(kind="what_if", what_if=WhatIf(remove=("h1",)), instances=(vm("x"),), then="capacity"),
        PlanRequest(kind="what_if", what_if=WhatIf(remove=("h1",)), then="rebalance"),
        PlanRequest(kind="right_size"),
    ],
    ids=lambda one: f"{one.kind}-{one.then}",
)
def test_progress_grows_and_only_the_end_is_done(request_: PlanRequest) -> None:
    seen: list[tuple[str, float]] = []
    crowd = cloud(*PRESSED, hosts=HOSTS)
    plan(crowd, request_, progress=lambda what, fraction: seen.append((what, fraction)))
    fractions = [fraction for _, fraction in seen]
    assert fractions == sorted(fractions)
    assert [one for one in seen if one[0] == "done"] == seen[-1:] == [("done", 1.0)]
    assert fractions[0] == 0.0


def test_whose_answer_is_pending_is_placed_and_not_moved() -> None:
    crowd = [vm(name, on="h1") for name in "abcdef"]
    asked = PlanRequest(instances=(vm("p"),), commands=True)
    answer = plan(cloud(*crowd, hosts=HOSTS), asked, pending=[vm("p", on="h1")])
    assert [(one.action, one.source, one.commands) for one in answer.steps] == [("place", None, ())]
    assert [one.action for one in answer.undo] == ["remove"]
    assert counts(answer) == (6, 7)


def test_who_is_there_already_and_would_be_better_off_elsewhere_moves() -> None:
    crowd = [vm(name, on="h1") for name in "abcdef"]
    answer = plan(cloud(*crowd, hosts=HOSTS), PlanRequest(instances=(crowd[0],)))
    assert [(one.action, one.source) for one in answer.steps] == [("move", "h1")]
    (moved,) = answer.after[answer.steps[0].host or ""]
    assert moved.before and moved.before.expected < moved.throughput_ratio.expected


def test_a_rebalanced_cloud_keeps_all_limits_and_is_fine_when_asked_again() -> None:
    before = cloud(*PRESSED, hosts=HOSTS)
    answer = plan(before, PlanRequest(kind="rebalance", commands=True))
    assert answer.sums_before and answer.sums_after and answer.steps
    assert (answer.sums_before.below, answer.sums_after.below) == (1, 0)
    assert all(one.action == "move" and one.source == "h1" and one.commands for one in answer.steps)
    again = plan(carried_out(before, answer), PlanRequest(kind="rebalance"))
    assert (again.steps, again.search and again.search.ended) == ((), "already fine")
    back = [(one.instance, one.source) for one in reversed(answer.steps)]
    assert [(one.instance, one.host) for one in answer.undo] == back


def test_an_emptied_host_is_empty_and_its_residents_say_why_they_go() -> None:
    answer = plan(cloud(vm("a", on="h1"), vm("b", on="h2"), hosts=HOSTS), PlanRequest(kind="evacuate", empty=("h1",)))
    assert answer.after["h1"] == ()
    assert [(one.instance, one.source) for one in answer.steps] == [("a", "h1")]
    assert "h1 is to be emptied" in answer.steps[0].why


def test_who_cannot_leave_an_emptied_host_stays_with_the_reasons_of_the_others() -> None:
    both = (host("h1", 4096), host("h2", 1024))
    answer = plan(cloud(vm("a", on="h1", memory_mb=3000), hosts=both), PlanRequest(kind="evacuate", empty=("h1",)))
    assert there(answer) == {"a": "h1"}
    assert [(one.host, [no.host for no in one.rejected]) for one in answer.steps] == [(None, ["h2"])]


def test_capacity_is_what_predictions_let_in_between_lower_bounds_and_sizes() -> None:
    answer = capacity(cloud(hosts=HOSTS[:1]), PlanRequest(kind="capacity", instances=(vm("n"),)))
    assert answer.by_rule == 8  # memory: 8 of 1 GB
    assert answer.fit_lower is not None
    assert 0 < answer.fit_lower <= answer.fit < answer.by_rule
    assert "of its uncontended speed" in answer.first_refusal
    admitted = tuple(vm(f"n{number}") for number in range(answer.fit + 1))
    steps = plan(cloud(hosts=HOSTS[:1]), PlanRequest(instances=admitted)).steps
    assert [one.host for one in steps].count(None) == 1


def test_where_sizes_are_in_the_way_all_that_they_let_in_fits_and_that_is_proven() -> None:
    answer = plan(cloud(hosts=HOSTS), PlanRequest(kind="capacity", instances=(vm("n", memory_mb=5000),)))
    assert answer.capacity and answer.search
    assert (answer.capacity.fit, answer.capacity.by_rule) == (3, 3)
    assert (answer.search.ended, answer.search.gap) == ("optimal", 0.0)
    assert "free" in answer.capacity.first_refusal


def test_with_growth_the_cloud_runs_out_in_the_month_that_no_longer_fits() -> None:
    growth = Growth(instances_per_month=1, months=9)
    answer = capacity(cloud(hosts=HOSTS), PlanRequest("capacity", (vm("n", memory_mb=5000),), growth=growth))
    assert answer.runs_out_month == 4
    assert [(one.month, one.added, one.fits) for one in answer.runway] == [
        (0, 0, True), (1, 1, True), (2, 2, True), (3, 3, True), (4, 4, False),
    ]  # fmt: skip


def test_load_alone_can_fill_a_cloud() -> None:
    pair = [replace(vm(name, on="h1"), load=0.4) for name in "abcdefgh"]
    request = PlanRequest("capacity", (vm("n", memory_mb=99_999),), growth=Growth(0, 50, 12))
    answer = capacity(cloud(*pair, hosts=HOSTS[:1]), request)
    assert answer.fit == 0 and answer.runs_out_month is not None
    assert answer.runway[-1].load_factor == pytest.approx(1.5**answer.runs_out_month)


def test_an_imagined_cloud_stands_beside_the_one_of_now_and_the_homeless_are_placed() -> None:
    now = cloud(vm("a", on="h1"), vm("b", on="h2"), hosts=HOSTS)
    answer = plan(now, PlanRequest(kind="what_if", what_if=WhatIf(remove=("h1",))))
    variants = [(one.name, one.sums.hosts, one.sums.instances) for one in answer.variants]
    assert variants == [("now", 3, 2), ("imagined", 2, 2)]
    assert set(answer.before) == {"h1", "h2", "h3"}
    assert there(answer)["a"] in {"h2", "h3"}
    assert [(one.instance, one.host, one.commands) for one in answer.steps] == [("a", there(answer)["a"], ())]
    assert answer.notes == ("1 instance loses its host and is placed anew.",)


def test_who_lost_its_host_in_an_imagined_cloud_is_placed_before_what_is_asked_there() -> None:
    now = cloud(vm("a", on="h1"), vm("b", on="h2"), vm("c", on="h3"), hosts=HOSTS)
    asked = (vm("n"),)
    answer = plan(now, PlanRequest(kind="what_if", what_if=WhatIf(remove=("h1",)), instances=asked, then="admit"))
    assert [(one.instance, one.stage) for one in answer.steps] == [("a", 0), ("n", 1)]
    assert all(one.host == there(answer)[one.instance] for one in answer.steps)
    assert [one.fit for one in answer.variants] == [None, None, 1, 1]


def test_loads_that_outgrow_vcpus_and_predictions_are_reported_with_their_month() -> None:
    request = PlanRequest(kind="capacity", instances=(vm("n"),), growth=Growth(0, 50, 8))
    notes = plan(cloud(replace(vm("a", on="h1"), load=0.8), hosts=HOSTS[:1]), request).notes
    assert [one.partition(":")[0] for one in notes] == [
        "From month 1 on the load of some instances is above 1",
        "From month 6 on the load of some instances is above 10",
    ]
    assert plan(cloud(hosts=HOSTS[:1]), replace(request, growth=Growth(1, 0, 2))).notes == ()


def test_an_unknown_workload_is_reported() -> None:
    answer = plan(cloud(hosts=HOSTS), PlanRequest(instances=(vm("n", "nosuch"), replace(vm("m"), workload=None))))
    assert "about what n, m would run" in answer.notes[0]
    assert answer.notes[1] == "There is no workload nosuch: define it, or check its spelling."


def test_a_host_that_is_imagined_too_small_for_its_instances_is_reported() -> None:
    small = PlanRequest(kind="what_if", what_if=WhatIf(hosts=(host("h1", memory_mb=2000, pcpus=1),)))
    assert plan(cloud(*PRESSED, hosts=HOSTS), small).notes == (
        "The instances on h1 are promised more CPU than there would be.",
        "The instances on h1 are promised more memory than there would be.",
    )


def test_own_pcpus_for_all_change_what_is_predicted_and_too_few_are_reported() -> None:
    request = PlanRequest(kind="what_if", what_if=WhatIf(pinning="own"))
    assert plan(cloud(*PRESSED[:4], hosts=HOSTS[:1]), request).notes == ()
    assert "not enough pCPUs on h1" in plan(cloud(*PRESSED, hosts=HOSTS[:1]), request).notes[0]


def test_who_is_asked_for_otherwise_and_best_off_where_it_is_says_so() -> None:
    answer = plan(cloud(vm("a", on="h1"), hosts=HOSTS[:1]), PlanRequest(instances=(vm("a", memory_mb=2048),)))
    assert [(one.action, one.why) for one in answer.steps] == [
        ("settings", "it is on h1 already, and no other host is better")
    ]


def test_steps_of_an_imagined_cloud_say_why_as_those_of_the_one_of_now() -> None:
    spread = cloud(vm("a", on="h1"), vm("b", on="h2"), hosts=HOSTS)
    asked = PlanRequest(kind="what_if", what_if=WhatIf(hosts=(host("h4"),)), then="consolidate")
    (step,) = plan(spread, asked).steps
    assert "so that fewer hosts are needed" in step.why


def test_no_move_goes_round_by_a_host_with_old_data() -> None:
    active = ActivePredictor(PriorPredictor())
    for age_s, steps in ((0.0, 3), (90.0, 0)):
        seen = {"h1": NOW, "h2": NOW, "h3": NOW - timedelta(seconds=age_s)}
        now = ClusterSnapshot.build(cloud(A, B, hosts=THREE), seen=seen, pending=(), taken_at=NOW)
        context = PlanContext.of(PlanRequest(kind="rebalance"), active, now=NOW, fresh_s=60.0)
        assert len(stage_changes(context, now, SWAP).scheduled) == steps


def test_an_empty_cloud_is_an_answer() -> None:
    answer = plan(Inventory(workloads=WORKLOADS), PlanRequest(instances=(vm("n"),)))
    assert [(one.host, one.rejected) for one in answer.steps] == [(None, ())]
    assert plan(Inventory(), PlanRequest(kind="rebalance")).steps == ()
    assert plan(Inventory(), PlanRequest(kind="right_size")).steps == ()
