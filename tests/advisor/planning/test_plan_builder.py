"""Every kind of plan on small clouds with the queueing prior: what it says."""

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


def test_admitted_instances_stand_where_the_steps_put_them_with_their_candidate() -> None:
    asked = (vm("n1"), vm("huge", memory_mb=99_999), vm("n2"))
    found = plan(cloud(hosts=HOSTS), PlanRequest(instances=asked))
    assert [(one.instance, one.host is None) for one in found.steps] == [("n1", False), ("n2", False), ("huge", True)]
    for step in found.steps[:2]:
        assert step.candidate and step.candidate.newcomer.instance == step.instance
        assert there(found)[step.instance] == step.host == step.candidate.host
        assert step.candidate.newcomer.throughput_ratio.expected == pytest.approx(1.0)
    assert {one.code for one in found.steps[2].rejected} == {"capacity.memory"}
    undone = [(one.instance, one.action, one.host) for one in found.undo]
    assert undone == [("n2", "remove", None), ("n1", "remove", None)]
    assert counts(found) == (0, 2)


def counts(found: Plan) -> tuple[int, int]:
    """How many instances have a host before and after."""
    assert found.sums_before and found.sums_after
    return found.sums_before.instances, found.sums_after.instances


def test_the_same_question_at_the_same_moment_has_the_same_plan() -> None:
    request = PlanRequest(instances=(vm("n1"), vm("n2", "bulk")), commands=True)
    assert plan(cloud(hosts=HOSTS), request) == plan(cloud(hosts=HOSTS), request)


def test_before_and_after_say_for_everybody_what_predict_says() -> None:
    now = cloud(vm("a", on="h1"), vm("b", "bulk", on="h1"), vm("c", "bulk", on="h2"), hosts=HOSTS)
    asked = (vm("d", "bulk"), vm("e"))
    found = plan(now, PlanRequest(instances=asked))
    at = there(found)
    everybody = (*now.instances, *(replace(one, host=at[one.id]) for one in asked))
    for one in HOSTS:
        crowd = tuple(sorted((who for who in everybody if who.host == one.id), key=lambda who: who.id))
        expected = predict_scene(Scene(one, crowd), PriorPredictor(), workloads=WORKLOADS).effects if crowd else ()
        assert [effect.instance for effect in found.after[one.id]] == [who.id for who in crowd]
        for effect, reference in zip(found.after[one.id], expected, strict=True):
            assert effect.throughput_ratio.expected == pytest.approx(reference.throughput_ratio.expected)
            assert effect.latency_ratio.lower == pytest.approx(reference.latency_ratio.lower)
    was = {effect.instance: effect.throughput_ratio for effects in found.before.values() for effect in effects}
    for effects in found.after.values():
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
    found = plan(cloud(*crowd, hosts=HOSTS), asked, pending=[vm("p", on="h1")])
    assert [(one.action, one.source, one.commands) for one in found.steps] == [("place", None, ())]
    assert [one.action for one in found.undo] == ["remove"]
    assert counts(found) == (6, 7)


def test_who_is_there_already_and_would_be_better_off_elsewhere_moves() -> None:
    crowd = [vm(name, on="h1") for name in "abcdef"]
    found = plan(cloud(*crowd, hosts=HOSTS), PlanRequest(instances=(crowd[0],)))
    assert [(one.action, one.source) for one in found.steps] == [("move", "h1")]
    (moved,) = found.after[found.steps[0].host or ""]
    assert moved.before and moved.before.expected < moved.throughput_ratio.expected


def test_a_rebalanced_cloud_has_nobody_below_a_limit_and_is_fine_when_it_is_asked_again() -> None:
    before = cloud(*PRESSED, hosts=HOSTS)
    found = plan(before, PlanRequest(kind="rebalance", commands=True))
    assert found.sums_before and found.sums_after and found.steps
    assert (found.sums_before.below, found.sums_after.below) == (1, 0)
    assert all(one.action == "move" and one.source == "h1" and one.commands for one in found.steps)
    again = plan(carried_out(before, found), PlanRequest(kind="rebalance"))
    assert (again.steps, again.search and again.search.ended) == ((), "already fine")
    back = [(one.instance, one.source) for one in reversed(found.steps)]
    assert [(one.instance, one.host) for one in found.undo] == back


def test_an_emptied_host_is_empty_and_its_residents_say_why_they_go() -> None:
    found = plan(cloud(vm("a", on="h1"), vm("b", on="h2"), hosts=HOSTS), PlanRequest(kind="evacuate", empty=("h1",)))
    assert found.after["h1"] == ()
    assert [(one.instance, one.source) for one in found.steps] == [("a", "h1")]
    assert "h1 is to be emptied" in found.steps[0].why


def test_who_cannot_leave_an_emptied_host_stays_with_the_reasons_of_the_others() -> None:
    both = (host("h1", 4096), host("h2", 1024))
    found = plan(cloud(vm("a", on="h1", memory_mb=3000), hosts=both), PlanRequest(kind="evacuate", empty=("h1",)))
    assert there(found) == {"a": "h1"}
    assert [(one.host, [no.host for no in one.rejected]) for one in found.steps] == [(None, ["h2"])]


def test_capacity_is_what_predictions_let_in_between_lower_bounds_and_sizes() -> None:
    found = capacity(cloud(hosts=HOSTS[:1]), PlanRequest(kind="capacity", instances=(vm("n"),)))
    assert found.by_rule == 8  # memory: 8 of 1 GB
    assert 0 < found.fit_lower <= found.fit < found.by_rule
    assert "of its speed alone" in found.first_refusal
    admitted = tuple(vm(f"n{number}") for number in range(found.fit + 1))
    steps = plan(cloud(hosts=HOSTS[:1]), PlanRequest(instances=admitted)).steps
    assert [one.host for one in steps].count(None) == 1


def test_where_sizes_are_in_the_way_all_that_they_let_in_fits_and_that_is_proven() -> None:
    found = plan(cloud(hosts=HOSTS), PlanRequest(kind="capacity", instances=(vm("n", memory_mb=5000),)))
    assert found.capacity and found.search
    assert (found.capacity.fit, found.capacity.by_rule) == (3, 3)
    assert (found.search.ended, found.search.gap) == ("optimal", 0.0)
    assert "free" in found.capacity.first_refusal


def test_with_growth_the_cloud_runs_out_in_the_month_that_no_longer_fits() -> None:
    growth = Growth(instances_per_month=1, months=9)
    found = capacity(cloud(hosts=HOSTS), PlanRequest("capacity", (vm("n", memory_mb=5000),), growth=growth))
    assert found.runs_out_month == 4
    assert [(one.month, one.added, one.fits) for one in found.runway] == [
        (0, 0, True), (1, 1, True), (2, 2, True), (3, 3, True), (4, 4, False),
    ]  # fmt: skip


def test_load_alone_can_fill_a_cloud() -> None:
    pair = [replace(vm(name, on="h1"), load=0.4) for name in "abcdefgh"]
    request = PlanRequest("capacity", (vm("n", memory_mb=99_999),), growth=Growth(0, 50, 12))
    found = capacity(cloud(*pair, hosts=HOSTS[:1]), request)
    assert found.fit == 0 and found.runs_out_month is not None
    assert found.runway[-1].load_factor == pytest.approx(1.5**found.runs_out_month)


def test_an_imagined_cloud_stands_beside_the_one_of_now_and_the_homeless_are_placed() -> None:
    now = cloud(vm("a", on="h1"), vm("b", on="h2"), hosts=HOSTS)
    found = plan(now, PlanRequest(kind="what_if", what_if=WhatIf(remove=("h1",))))
    variants = [(one.name, one.sums.hosts, one.sums.instances) for one in found.variants]
    assert variants == [("now", 3, 2), ("imagined", 2, 2)]
    assert set(found.before) == {"h1", "h2", "h3"}
    assert there(found)["a"] in {"h2", "h3"}
    assert [(one.instance, one.host, one.commands) for one in found.steps] == [("a", there(found)["a"], ())]
    assert found.notes == ("1 instance loses its host and is placed anew.",)


def test_who_lost_its_host_in_an_imagined_cloud_is_placed_before_what_is_asked_there() -> None:
    now = cloud(vm("a", on="h1"), vm("b", on="h2"), vm("c", on="h3"), hosts=HOSTS)
    asked = (vm("n"),)
    found = plan(now, PlanRequest(kind="what_if", what_if=WhatIf(remove=("h1",)), instances=asked, then="admit"))
    assert [(one.instance, one.stage) for one in found.steps] == [("a", 0), ("n", 1)]
    assert all(one.host == there(found)[one.instance] for one in found.steps)
    assert [one.fit for one in found.variants] == [None, None, 1, 1]


def test_loads_that_outgrow_vcpus_and_predictions_are_told_with_their_month() -> None:
    request = PlanRequest(kind="capacity", instances=(vm("n"),), growth=Growth(0, 50, 8))
    notes = plan(cloud(replace(vm("a", on="h1"), load=0.8), hosts=HOSTS[:1]), request).notes
    assert [one.partition(":")[0] for one in notes] == [
        "From month 1 on the load of some instances is above 1",
        "From month 6 on the load of some instances is above 10",
    ]
    assert plan(cloud(hosts=HOSTS[:1]), replace(request, growth=Growth(1, 0, 2))).notes == ()


def test_a_workload_that_nobody_knows_by_that_name_is_told() -> None:
    found = plan(cloud(hosts=HOSTS), PlanRequest(instances=(vm("n", "nosuch"), replace(vm("m"), workload=None))))
    assert "about what n, m would run" in found.notes[0]
    assert found.notes[1] == "There is no workload nosuch: define it, or check its spelling."


def test_a_host_that_is_imagined_too_small_for_who_is_on_it_is_told() -> None:
    small = PlanRequest(kind="what_if", what_if=WhatIf(hosts=(host("h1", memory_mb=2000, pcpus=1),)))
    assert plan(cloud(*PRESSED, hosts=HOSTS), small).notes == (
        "The instances on h1 are promised more CPU than there would be.",
        "The instances on h1 are promised more memory than there would be.",
    )


def test_own_pcpus_for_everybody_change_what_is_predicted_and_where_there_are_too_few_that_is_said() -> None:
    request = PlanRequest(kind="what_if", what_if=WhatIf(pinning="own"))
    assert plan(cloud(*PRESSED[:4], hosts=HOSTS[:1]), request).notes == ()
    assert "not enough pCPUs on h1" in plan(cloud(*PRESSED, hosts=HOSTS[:1]), request).notes[0]


def test_who_is_asked_for_otherwise_and_best_off_where_it_is_says_so() -> None:
    found = plan(cloud(vm("a", on="h1"), hosts=HOSTS[:1]), PlanRequest(instances=(vm("a", memory_mb=2048),)))
    assert [(one.action, one.why) for one in found.steps] == [
        ("settings", "it is on h1 already, and no other host is better")
    ]


def test_steps_of_an_imagined_cloud_say_why_as_those_of_the_one_of_now() -> None:
    spread = cloud(vm("a", on="h1"), vm("b", on="h2"), hosts=HOSTS)
    asked = PlanRequest(kind="what_if", what_if=WhatIf(hosts=(host("h4"),)), then="consolidate")
    (step,) = plan(spread, asked).steps
    assert "so that fewer hosts are needed" in step.why


def test_nobody_goes_round_by_a_host_of_which_the_news_are_old() -> None:
    active = ActivePredictor(PriorPredictor())
    for age_s, steps in ((0.0, 3), (90.0, 0)):
        seen = {"h1": NOW, "h2": NOW, "h3": NOW - timedelta(seconds=age_s)}
        now = ClusterSnapshot.build(cloud(A, B, hosts=THREE), seen=seen, pending=(), taken_at=NOW)
        context = PlanContext.of(PlanRequest(kind="rebalance"), active, now=NOW, fresh_s=60.0)
        assert len(stage_changes(context, now, SWAP).scheduled) == steps


def test_an_empty_cloud_is_an_answer() -> None:
    found = plan(Inventory(workloads=WORKLOADS), PlanRequest(instances=(vm("n"),)))
    assert [(one.host, one.rejected) for one in found.steps] == [(None, ())]
    assert plan(Inventory(), PlanRequest(kind="rebalance")).steps == ()
    assert plan(Inventory(), PlanRequest(kind="right_size")).steps == ()
