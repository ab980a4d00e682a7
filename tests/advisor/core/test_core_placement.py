"""From a question to a ranked answer: who is counted, what is kept, and in which order."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from advisor.domain import Candidate, IsolationSettings, Recommendation, Rejection, Scene, WorkloadProfile
from advisor.placement.decision import predict_scene, recommend
from advisor.prediction.active import ActivePredictor, QuestionContext
from advisor.rounding import SLACK
from models.arrays import Floats
from models.data.scene import SceneBatch
from models.physics.prior import PriorPredictor
from profiler.demand import Demand
from profiler.observed import NetworkSettings, Pinning
from tests.advisor.core.core_clouds import (
    NOW,
    WORKLOADS,
    Failing,
    Invented,
    ask,
    cloud,
    codes,
    host,
    hosts_of,
    only,
    request,
    vm,
)

ONE: dict[str, Any] = {"pcpus": 1}
SPIN = WORKLOADS[0]


# who answers


def test_the_prior_answers_for_a_failing_predictor_and_the_answer_says_so() -> None:
    answer = ask(cloud([host()]), predictor=Failing())
    assert (answer.model_version, answer.degraded, len(answer.candidates)) == ("analytic", True, 1)
    assert "no idea" in answer.notes[0]
    assert ask(cloud([]), predictor=Failing()).degraded is False, "no model was asked"


def test_an_answer_says_who_gave_it_when_and_on_what() -> None:
    active = ActivePredictor(PriorPredictor(), degraded=True, notes=("first",))
    answer = recommend(cloud([host()]), QuestionContext(active, NOW + timedelta(seconds=90), 60.0), request())
    assert (answer.model_version, answer.model_origin) == ("analytic", "analytic")
    assert (answer.snapshot_age_s, answer.degraded, answer.notes) == (90.0, True, ("first",))
    assert answer.created_at == NOW + timedelta(seconds=90)


# order


def test_equal_hosts_are_ordered_by_id_and_tied() -> None:
    answer = ask(cloud([host(name) for name in ("c", "a", "b")]))
    assert hosts_of(answer) == ["a", "b", "c"]
    assert [one.tied_with for one in answer.candidates] == [("b", "c"), ("a", "c"), ("a", "b")]


def test_ties_are_mutual_among_what_is_shown() -> None:
    residents = [vm("r1", "web", on="b"), vm("r2", on="c"), vm("r3", on="c"), vm("r4", "calm", on="d")]
    answer = ask(cloud([host(name, **ONE) for name in "abcd"], residents), request(vm("n", "web")))
    tied = {one.host: set(one.tied_with) for one in answer.candidates}
    assert all(one not in others and all(one in tied[other] for other in others) for one, others in tied.items())


def test_a_limit_shows_the_best_and_still_names_all_hosts_tied_with_them() -> None:
    snapshot = cloud([host(name) for name in "abcde"])
    answer = ask(snapshot, request(limit=2))
    assert hosts_of(answer) == ["a", "b"]
    assert [set(one.tied_with) for one in answer.candidates] == [set("bcde"), set("acde")]
    assert answer.rejected == ()


# objectives


def test_worst_spares_the_worst_off_and_total_spares_the_sum() -> None:
    """On a the new VM halves one neighbour; on b it slows four of them down a little."""
    crowd = [vm(f"b{at}", on="b", pins="0:0-3") for at in range(4)]
    residents = [vm("r", on="a", pins="0:0"), *crowd]
    hosts = [host("a", **ONE), host("b", cpu_overcommit=9.0)]
    new_vm = vm("n", pins="0:0")
    worst, total = (ask(cloud(hosts, residents), request(new_vm, objective=one)) for one in ("worst", "total"))
    assert hosts_of(worst)[0] == "b"
    by_host = {one.host: one for one in total.candidates}
    for one in total.candidates:
        lost = sum(other.throughput_ratio.expected - other.before.expected for other in one.neighbours if other.before)
        assert one.score < one.new_vm.throughput_ratio.expected + lost
    assert by_host["b"].combined_score > by_host["a"].combined_score


def test_limits_has_one_deep_loss_in_place_of_four_instances_a_little_below() -> None:
    """Two on a host of one CPU keep half of their speed each, five on a host of four 0.85."""

    def shared(scenes: SceneBatch) -> Floats:
        crowded = scenes.present.sum(axis=1) - scenes.pcpus
        ratio = np.where(crowded == 1, np.where(scenes.pcpus == 1, 0.5, 0.85), 1.0)
        return np.broadcast_to(ratio[:, None], scenes.present.shape)

    hosts, crowd = [host("a", **ONE), host("b")], [vm(f"b{at}", on="b") for at in range(4)]
    limits, worst = (
        ask(cloud(hosts, [vm("r", on="a"), *crowd]), request(vm("n"), objective=one), Invented(shared, 0.05))
        for one in ("limits", "worst")
    )
    assert [hosts_of(one)[0] for one in (limits, worst)] == ["a", "b"]
    assert limits.candidates[0].score == pytest.approx(1 - 2 - 0.01 * (1 - worst.candidates[1].score), abs=0.01)


def test_pack_fills_the_fullest_host_that_keeps_every_ratio() -> None:
    residents = [vm("r1", "calm", on="a"), vm("r2", "calm", on="a"), vm("r3", "calm", on="b"), *[
        vm(f"c{at}", on="c") for at in range(4)]]  # fmt: skip
    answer = ask(cloud([host(name) for name in "abcd"], residents), request(objective="pack"))
    assert hosts_of(answer) == ["a", "b", "d", "c"]
    assert hosts_of(ask(cloud([host(name) for name in "abcd"], residents)))[-1] == "c"


def test_pack_does_not_count_a_new_vm_twice_where_it_sits_already() -> None:
    mine = vm("n", "calm", on="a", vcpus=2)
    residents = [mine, vm("r", "calm", on="b")]
    answer = ask(cloud([host("a"), host("b")], residents), request(replace(mine, host=None), objective="pack"))
    assert hosts_of(answer) == ["b", "a"]
    assert [one.score for one in answer.candidates] == [pytest.approx(1.75), pytest.approx(1.5)]


# who is counted


def test_every_resident_of_a_host_is_predicted_with_and_without_the_new_vm() -> None:
    candidate = only(ask(cloud([host(**ONE)], [vm("r", on="h1"), vm("q", "calm", on="h1")])))
    assert [one.instance for one in candidate.neighbours] == ["q", "r"]
    assert candidate.new_vm.before is None
    before, after = candidate.neighbours[1].before, candidate.neighbours[1].throughput_ratio
    assert before and (before.expected, after.expected) == pytest.approx((0.95, 0.475))
    assert candidate.combined_score == pytest.approx(1 + 2 * 0.475)


def test_an_instance_that_is_in_the_cloud_is_taken_off_its_host_first() -> None:
    mine = vm("n", on="a")
    snapshot = cloud([host("a", **ONE), host("b", **ONE)], [mine, vm("r", "calm", on="a")])
    for one in ask(snapshot, request(replace(mine, host=None))).candidates:
        assert [other.instance for other in one.neighbours] == (["r"] if one.host == "a" else [])
        assert one.new_vm.throughput_ratio.expected == pytest.approx(0.95 if one.host == "a" else 1.0)
        assert all(other.before and other.before.expected == pytest.approx(1.0) for other in one.neighbours)


# what is known


def test_an_unknown_workload_gets_wide_intervals_and_a_note() -> None:
    snapshot = cloud([host()])
    known, unknown, stranger = (ask(snapshot, request(vm("n", name))) for name in ("calm", None, "stranger"))
    assert known.notes == ()
    assert unknown.notes == (
        "Nothing is known about what n runs: it counts as using 10% of its vCPUs, as in public traces, and nothing "
        "else, with a wide range.",
    )
    assert "Nothing is known about stranger" in stranger.notes[0]

    def width(answer: Recommendation) -> float:
        band = only(answer).new_vm.throughput_ratio
        return band.expected / band.lower

    assert width(unknown) == width(stranger) > width(known)
    assert only(unknown).new_vm.outside_training
    assert not only(known).new_vm.outside_training


def test_a_profile_in_the_question_replaces_the_workload_and_an_empty_one_is_none() -> None:
    profile = WorkloadProfile("", {"cpu": 10.0, "rss_mb": 3.0})
    answer = ask(cloud([host(**ONE)], [vm("r", on="h1")]), request(vm("n", "spin"), profile=profile))
    assert answer.notes == ()
    assert only(answer).new_vm.throughput_ratio.expected == pytest.approx(1.0)
    assert only(answer).neighbours[0].throughput_ratio.expected == pytest.approx(0.9)
    empty = ask(cloud([host()]), request(vm("n", None), profile=WorkloadProfile("x", {})))
    assert "Nothing is known about" in empty.notes[0]


def test_a_profile_in_the_question_changes_nothing_for_residents_of_the_same_name() -> None:
    hosts, residents = [host(**ONE, platform="p1")], [vm("r", "thin", on="h1")]
    workloads = [WorkloadProfile("thin", {"net_mbit": 5.0}, "p1")]
    mine = WorkloadProfile("thin", {"cpu": 1.0})
    answer = ask(cloud(hosts, residents, workloads=workloads), request(vm("n", "calm"), profile=mine))
    (resident,) = only(answer).neighbours
    # of the resident's CPU demand nothing is known, so it may keep its CPU busy, and the new VM takes one per cent
    assert resident.throughput_ratio.expected == pytest.approx(0.99)


def test_a_workload_is_looked_up_on_the_platform_of_each_host() -> None:
    measured = {"slow": {"cpu": 100.0, "block": 0.0}, "fast": {"cpu": 10.0, "block": 0.0}}
    workloads = [*(WorkloadProfile("w", metrics, platform) for platform, metrics in measured.items()), SPIN]
    hosts = [host("a", **ONE, platform="slow"), host("b", **ONE, platform="fast")]
    residents = [vm("r", on="a"), vm("s", on="b")]
    answer = ask(cloud(hosts, residents, workloads=workloads), request(vm("n", "w")))
    ratio = {one.host: one.new_vm.throughput_ratio.expected for one in answer.candidates}
    assert ratio == {"a": pytest.approx(0.5), "b": pytest.approx(1.0)}


# pins


def test_a_new_vm_is_pinned_away_from_who_would_slow_it_down() -> None:
    candidate = only(ask(cloud([host(pcpus=2)], [vm("r", on="h1", pins="0:0"), vm("s", on="h1", pins="0:0")])))
    assert candidate.new_vm.throughput_ratio.expected == pytest.approx(1.0)
    assert candidate.pinning is None or candidate.pinning == Pinning(((1,),))
    crowded = [vm("r", None, on="h1", pins="0:0"), vm("s", "web", on="h1")]
    pinned = only(ask(cloud([host(pcpus=2, driver_cpus=(0,))], crowded), request(vm("n", "web"))))
    assert pinned.pinning == pinned.isolation.pinning


def test_settings_that_the_new_vm_has_are_kept() -> None:
    network = NetworkSettings("dedicated", 100.0, 100.0)
    asked = vm("n", "bulk", cap_percent=80.0, weight=300, network=network, disk_limit_mb_s=30.0)
    found = only(ask(cloud([host()], [vm("r", "bulk", on="h1")]), request(asked))).isolation
    assert (found.cap_percent, found.weight, found.network, found.disk_limit_mb_s) == (80.0, 300, network, 30.0)


# limits and the ladder


@pytest.mark.parametrize(
    ("mine", "other", "code", "says"),
    [
        (0.8, 0.8, "limit.new_vm", "n would run at 50 % of its uncontended speed, its limit is 80 %"),
        (None, 0.99, "limit.neighbour", "r would run at 50 % of its uncontended speed, its limit is 99 %"),
    ],
)
def test_a_host_where_no_setting_keeps_a_limit_is_rejected_for_it(
    mine: float | None, other: float, code: str, says: str
) -> None:
    resident = vm("r", on="a", min_throughput_ratio=other)
    answer = ask(cloud([host("a", **ONE), host("b", **ONE)], [resident]), request(vm(min_throughput_ratio=mine)))
    assert (hosts_of(answer), codes(answer)) == (["b"], {"a": code})
    assert says in answer.rejected[0].reason


@pytest.mark.parametrize("limit", [0.6, 0.7])
def test_a_host_that_the_ladder_mends_is_a_candidate_as_its_last_rung_leaves_it(limit: float) -> None:
    resident = vm("r", on="h1", min_throughput_ratio=limit)
    candidate = only(ask(cloud([host(**ONE)], [resident]), request(commands=True)))
    last = candidate.mitigation[-1]
    assert last.satisfies
    assert not any(rung.satisfies for rung in candidate.mitigation[:-1])
    assert candidate.changes == {who: what for who, what in last.changes.items() if who != "n"}
    assert candidate.isolation == last.changes.get("n", IsolationSettings())
    said = {one.instance: one.throughput_ratio for one in last.effects}
    assert candidate.new_vm.throughput_ratio == said["n"]
    assert candidate.neighbours[0].throughput_ratio == said["r"]
    assert said["r"].expected >= limit - SLACK
    assert candidate.neighbours[0].before and candidate.neighbours[0].before.expected == pytest.approx(1.0)
    assert any("r" in " ".join(command.argv) for command in candidate.commands) == bool(candidate.changes)


def test_a_neighbours_link_is_kept_by_a_class_of_its_own_or_one_for_the_new_vm() -> None:
    resident = vm("r", "bulk", on="h1", min_throughput_ratio=0.7)
    candidate = only(ask(cloud([host(kind="lxc")], [resident]), request(vm("n", "bulk"))))
    assert candidate.mitigation[-1].action == "network"
    given = [one.network for one in (candidate.isolation, *candidate.changes.values()) if one.network]
    assert [one.mode for one in given] == ["dedicated"]
    assert candidate.neighbours[0].throughput_ratio.expected >= 0.7


def test_the_ladder_is_tried_on_the_best_hosts_only_and_while_too_few_break_nothing() -> None:
    """Five hosts with a limit that one weight keeps, and two without."""
    hosts = [host(name, **ONE) for name in "abcdefg"]
    residents = [vm(f"r{name}", on=name, min_throughput_ratio=0.6) for name in "abcde"]
    few, many = (ask(cloud(hosts, residents), request(limit=limit)) for limit in (2, 100))
    assert hosts_of(few) == ["f", "g"]
    assert not any(one.mitigation for one in few.rejected)
    assert sorted(codes(few)) == list("abcde")
    assert hosts_of(many) == ["f", "g", "a", "b", "c"]
    assert [bool(one.mitigation) for one in many.candidates] == [False, False, True, True, True]
    assert codes(many) == {"d": "limit.neighbour", "e": "limit.neighbour"}
    assert "isolation was tried on better hosts only" in many.rejected[0].reason


def test_the_best_host_of_all_is_tried_even_where_others_break_nothing() -> None:
    """On a the new VM takes 15 % from one who minds; on b it takes as much from each of two who do not."""
    residents = [vm("r", on="a", min_throughput_ratio=0.9), vm("s", on="b"), vm("t", on="b")]
    new_vm = vm("n", cap_percent=15.0, min_throughput_ratio=0.14)
    hosts, question = [host(name, **ONE) for name in "ab"], request(new_vm, limit=1)
    no_instance_minds = [replace(one, min_throughput_ratio=None) for one in residents]
    assert hosts_of(ask(cloud(hosts, no_instance_minds), question)) == ["a"]
    answer = ask(cloud(hosts, residents), question)
    assert (hosts_of(answer), codes(answer)) == (["b"], {"a": "limit.neighbour"})
    assert answer.rejected[0].mitigation
    assert answer.rejected[0].reason.endswith("and no mitigation step restores it")


def mitigated(answer: Recommendation) -> set[str]:
    """Hosts on which isolation was tried."""
    tried: list[Candidate | Rejection] = [*answer.candidates, *answer.rejected]
    return {one.host for one in tried if one.mitigation}


def test_a_limit_of_latency_is_judged_by_the_expected_ratio_of_who_has_it() -> None:
    hosts = [host("a", **ONE), host("b", **ONE)]
    calm = vm("r", "calm", on="a", max_latency_ratio=1.5, min_throughput_ratio=0.5)
    slow = only(ask(cloud([hosts[0]], [replace(calm, max_latency_ratio=None)]), request(vm("n", "calm", load=0.5))))
    limit = slow.neighbours[0].latency_ratio.expected
    assert limit > 1.0
    for most, hit in ((limit * 1.001, False), (limit * 0.999, True)):
        some = replace(calm, max_latency_ratio=max(most, 1.0))
        assert mitigated(ask(cloud(hosts, [some]), request(vm("n", "calm", load=0.5)))) == ({"a"} if hit else set())


@pytest.mark.parametrize(
    ("mine", "other", "code", "says"),
    [
        ({"max_latency_ratio": 1.01}, {}, "limit.new_vm_latency", "n would wait"),
        ({}, {"max_latency_ratio": 1.2}, "limit.neighbour_latency", "r would wait"),
        ({"max_time_short": 0.01}, {}, "limit.new_vm_time_short", "n would be contended "),
        ({}, {"max_time_short": 0.01}, "limit.neighbour_time_short", "r would be contended "),
    ],
)
def test_a_limit_that_nothing_mends_has_a_code_of_its_own(
    mine: dict[str, Any], other: dict[str, Any], code: str, says: str
) -> None:
    """Two that want one CPU whole: neither accepts less than nearly half of it, and one not to wait."""
    keep: dict[str, Any] = {"min_throughput_ratio": 0.45}
    answer = ask(cloud([host(**ONE)], [vm("r", on="h1", **keep, **other)]), request(vm("n", **keep, **mine)))
    assert codes(answer) == {"h1": code}
    limit = "of the time, its limit is 1.0 %" if "time_short" in code else "times as long as alone, its limit is"
    assert says in answer.rejected[0].reason and limit in answer.rejected[0].reason


BUSY = Demand(0.6, spread=0.2)


def test_a_limit_of_time_short_is_judged_by_the_time_short_of_who_has_it() -> None:
    hosts = [host("a", pcpus=2), host("b", pcpus=2)]
    residents = [vm(f"r{number}", on="a", demand={"cpu": BUSY}) for number in range(2)]
    new_vm = vm("n", demand={"cpu": BUSY})
    found = ask(cloud([hosts[0]], residents), request(new_vm, explain=False)).candidates[0]
    cpu = found.neighbours[0].cpu
    assert cpu and cpu.short > 0.05
    for most, hit in ((cpu.short + 0.001, False), (cpu.short - 0.001, True)):
        answer = ask(cloud(hosts, [replace(residents[0], max_time_short=most), residents[1]]), request(new_vm))
        assert mitigated(answer) == ({"a"} if hit else set())


def test_a_weight_may_keep_a_limit_of_time_short_and_says_by_how_much() -> None:
    residents = [vm(f"r{number}", on="h1", demand={"cpu": Demand(0.9, spread=0.1)}) for number in range(8)]
    new_vm = vm("n", demand={"cpu": Demand(0.5, spread=0.05)}, max_time_short=0.3)
    plain = only(ask(cloud([host()], residents), request(replace(new_vm, max_time_short=None))))
    assert plain.new_vm.cpu and plain.new_vm.cpu.short > 0.3
    candidate = only(ask(cloud([host()], residents), request(new_vm)))
    assert candidate.new_vm.cpu and candidate.new_vm.cpu.short <= 0.3 + 1e-9
    assert "n contended " in candidate.mitigation[-1].text


def test_a_neighbour_that_was_under_its_limit_before_is_not_the_new_vms_doing() -> None:
    capped = vm("a", on="h1", min_throughput_ratio=0.9, cap_percent=50.0, pins="0:0")
    assert hosts_of(ask(cloud([host()], [capped]), request(vm(pins="0:1")))) == ["h1"]
    healthy = vm("z", on="h1", min_throughput_ratio=0.95, pins="0:1")
    new_vm = vm(pins="0:1", cap_percent=90.0, weight=256, min_throughput_ratio=0.4)
    answer = ask(cloud([host()], [capped, healthy]), request(new_vm))
    assert codes(answer) == {"h1": "limit.neighbour"}
    assert answer.rejected[0].reason.startswith("z would run at")


def test_a_candidate_names_the_instance_that_its_last_resort_cuts_by_more_than_half_and_what_its_commands_need() -> (
    None
):
    starved = only(ask(cloud([host(kind="xen", **ONE)], [vm("r", on="h1")]), request(vm(min_throughput_ratio=0.9))))
    assert starved.notes == ("r would run at 10 % of its uncontended speed instead of 50 %, and no limit protects it",)
    assert starved.neighbours[0].throughput_ratio.expected == pytest.approx(0.1)
    link = cloud([host(kind="lxc")], [vm("r", "bulk", on="h1", min_throughput_ratio=0.7)])
    assert only(ask(link, request(vm("n", "bulk")))).notes == ("needs label uplink on host h1 to be carried out",)
    assert only(ask(cloud([host()], [vm("r", on="h1")]))).notes == ()


# a scene


def test_a_scene_is_predicted_in_its_order() -> None:
    scene = Scene(host(**ONE), (vm("b"), vm("a", "calm")))
    found = predict_scene(scene, PriorPredictor(), workloads=WORKLOADS)
    assert [one.instance for one in found.effects] == ["b", "a"]
    assert found.effects[0].throughput_ratio.expected == pytest.approx(0.95)
    assert found.combined_score == pytest.approx(1.95)
    assert all(one.before is None for one in found.effects)


def test_workloads_of_the_scene_win_over_those_of_the_cloud() -> None:
    scene = Scene(host(**ONE), (vm("a"), vm("b")), (WorkloadProfile("spin", {"cpu": 10.0}),))
    found = predict_scene(scene, PriorPredictor(), workloads=[SPIN])
    assert found.combined_score == pytest.approx(2.0)


def test_a_scene_without_instances_has_no_effects() -> None:
    found = predict_scene(Scene(host(), ()), PriorPredictor(), workloads=())
    assert (found.effects, found.combined_score) == ((), 0)


def test_a_pin_beyond_the_host_and_a_failing_predictor_are_not_hidden_in_a_scene() -> None:
    with pytest.raises(ValueError, match="pinned to pCPU 9"):
        predict_scene(Scene(host(), (vm("a", pins="0:9"),)), PriorPredictor(), workloads=())
    with pytest.raises(RuntimeError, match="no idea"):
        predict_scene(Scene(host(), (vm("a"),)), Failing(), workloads=())
