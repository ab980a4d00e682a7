"""Questions in turn, as schedulers put them: each counts in for the next, and no settings are changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.domain import PlacementRequest, Recommendation
from advisor.placement import sequential
from advisor.placement.changed_hosts import NEEDS_SETTINGS
from advisor.snapshot import ClusterSnapshot
from tests.advisor.core.core_clouds import WORKLOADS, ask, cloud, codes, context, host, hosts_of, only, request, vm


def in_turn(snapshot: ClusterSnapshot, *requests: PlacementRequest) -> tuple[Recommendation, ...]:
    return sequential.in_turn(snapshot, context(), requests)


def first(answer: Recommendation) -> str:
    return answer.candidates[0].host


def test_each_counts_in_for_the_next() -> None:
    hosts = [host(f"h{number}", pcpus=1) for number in range(4)]
    answers = in_turn(cloud(hosts), *(request(vm(f"n{number}"), limit=1) for number in range(4)))
    assert sorted(first(answer) for answer in answers) == ["h0", "h1", "h2", "h3"]


def test_what_was_placed_before_takes_room() -> None:
    hosts = [host("big", memory_mb=4096.0), host("small", memory_mb=1024.0)]
    answers = in_turn(cloud(hosts), request(vm("a", memory_mb=4096.0)), request(vm("b", memory_mb=2048.0)))
    assert first(answers[0]) == "big"
    assert codes(answers[1]) == {"big": "capacity.memory", "small": "capacity.memory"}


def test_one_question_has_the_answer_that_it_has_alone() -> None:
    snapshot = cloud([host("a"), host("b")], [vm("r", on="a")])
    (alone,) = in_turn(snapshot, request(limit=2))
    twice = in_turn(snapshot, request(limit=2), request(vm("later"), limit=2))
    assert hosts_of(alone) == hosts_of(twice[0]) == ["b", "a"]
    assert [one.score for one in alone.candidates] == [one.score for one in twice[0].candidates]


def test_a_new_vm_keeps_its_own_profile_for_those_after_it() -> None:
    snapshot = cloud([host("a", pcpus=1)], [vm("r", "calm", on="a")])
    described = replace(request(vm("n", None)), profile=WORKLOADS[0])  # that of `spin`
    asked = (described, request(vm("n", "spin")), request(vm("n", None)))
    own, named, unknown = (in_turn(snapshot, one, request(vm("later", "web")))[1] for one in asked)
    ratios = [
        {effect.instance: effect.throughput_ratio for effect in only(answer).neighbours} for answer in (own, named)
    ]
    assert ratios[0] == ratios[1]
    assert ratios[0].keys() == {"n", "r"}
    assert only(own).score == only(named).score != only(unknown).score


@pytest.mark.parametrize(
    "apart",
    [{"first": ["later"], "later": []}, {"first": [], "later": ["first"]}, {"first": ["later"], "later": ["first"]}],
    ids=["the first says so", "the later one says so", "both say so"],
)
def test_two_of_a_batch_are_apart_whoever_says_so(apart: dict[str, list[str]]) -> None:
    snapshot = cloud([host("roomy"), host("tight", pcpus=1)])
    answers = in_turn(snapshot, *(request(vm(name), anti_affinity=others) for name, others in apart.items()))
    assert [hosts_of(one)[0] for one in answers] == ["roomy", "tight"]
    assert codes(answers[1]) == {"roomy": "constraint.anti_affinity"}
    assert list(answers[1].request.constraints.anti_affinity) == apart["later"]


def test_the_neighbour_of_an_earlier_placement_stays_there_when_asked_about() -> None:
    snapshot = cloud([host("roomy"), host("tight", pcpus=1)], [vm("runs", on="tight")])
    answers = in_turn(snapshot, request(vm("n"), affinity=["runs"]), request(vm("runs")))
    assert [hosts_of(one) for one in answers] == [["tight"], ["tight"]]


def test_an_instance_that_is_somewhere_already_is_not_counted_there() -> None:
    (answer,) = in_turn(cloud([host("a", pcpus=1, memory_mb=1024.0)], [vm("n", on="a")]), request())
    assert hosts_of(answer) == ["a"]


def test_a_host_that_only_other_settings_would_save_is_refused_and_the_others_keep_their_order() -> None:
    guarded = vm("r", on="a", min_throughput_ratio=0.9)
    snapshot = cloud([host("a", pcpus=1), host("b", pcpus=1), host("c", pcpus=2)], [guarded, vm("s", on="b")])
    assert hosts_of(ask(snapshot)) == ["c", "b", "a"]
    (answer,) = in_turn(snapshot, request(limit=3))
    assert [(one.rank, one.host, one.mitigation) for one in answer.candidates] == [(1, "c", ()), (2, "b", ())]
    (refused,) = answer.rejected
    assert (refused.host, refused.code) == ("a", NEEDS_SETTINGS)
    assert refused.reason.startswith("r would run at 5") and "settings of instances may not change" in refused.reason
    assert not refused.mitigation
