"""Answers that are remembered are those that would be decided anew, whatever the new VM is called."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from advisor.domain import Instance, PlacementRequest, Recommendation, WorkloadProfile, codec
from advisor.lifecycle.monitoring import HowItHeld
from advisor.placement.requests import NEW_VM
from advisor.serving import recommendations
from advisor.snapshot import ClusterSnapshot
from models.prediction import Predictor
from tests.advisor.core.core_clouds import NOW, Failing, ask, cloud, context, host, request, vm
from tests.advisor.core.test_core_placement_properties import Case, cases, tight
from tests.examples import examples

STRANGE = ("-x", "0", "Domain-0", "a" * 61)  # names that tools read otherwise


class Asking:
    """Questions to clouds that follow one another, with everything remembered that may be."""

    def __init__(self, snapshot: ClusterSnapshot, predictor: Predictor | None = None) -> None:
        self.context = context(predictor)
        self.snapshot, self.answers = snapshot, recommendations.RecommendationCache.on(snapshot)

    def see(self, snapshot: ClusterSnapshot) -> None:
        self.snapshot, self.answers = snapshot, self.answers.after(snapshot)

    def __call__(
        self, question: PlacementRequest, *, former: bool = False, **factors: float
    ) -> recommendations.EncodedRecommendation:
        return recommendations.answer(
            self.snapshot, self.context, question, self.answers, lambda _: HowItHeld(factors, {}), former=former
        )

    def check(self, question: PlacementRequest) -> bool:
        """Whether it was remembered; in any case it is what is decided without memory and under the real name."""
        found = self(question)
        anew = replace(ask(self.snapshot, question), id=found.head.id)
        assert found.recommendation == anew
        assert from_json(found.as_json()) == codec.answer_values(anew)
        stored = found.stored.said_of(question.instance.id)
        assert NEW_VM.encode() not in found.as_json() + stored
        assert json.loads(stored)["candidates"] == codec.encode(anew.candidates)
        return found.source == "hit"


def called(question: PlacementRequest, name: str) -> PlacementRequest:
    return replace(question, instance=replace(question.instance, id=name))


@settings(max_examples=examples(40), deadline=None)
@given(st.one_of(cases(), tight()), st.data())
def test_what_is_remembered_is_what_would_be_decided_anew(case: Case, data: st.DataObject) -> None:
    snapshot = cloud(case.hosts, case.instances, pending=case.pending, age_s=case.ages)
    asking = Asking(snapshot)
    question = replace(case.question, explain=True)
    own = [one.id for one in case.instances]
    names = st.sampled_from([question.instance.id, "n", "zz", "A.1", *own, *STRANGE])
    for _ in range(data.draw(st.integers(1, 3))):
        for name in data.draw(st.lists(names, min_size=1, max_size=3)):
            if name not in question.constraints.affinity:
                asking.check(called(question, name))
        if own:
            changed = data.draw(st.sampled_from(case.instances))
            there = replace(changed, workload=data.draw(st.sampled_from(["spin", "web", None])), load=0.7)
            asking.see(asking.snapshot.changed(instances={there.id: there}, seen={}, pending=(), taken_at=NOW))


def test_an_answer_for_another_name_is_reused_with_the_name_replaced_in_every_text() -> None:
    limited = vm("r", on="a", min_throughput_ratio=0.95)
    asking = Asking(cloud([host("a", pcpus=1), host("b", pcpus=1)], [limited, vm("s", on="b")]))
    question = request(vm("shop-1", min_throughput_ratio=0.4), limit=1)
    assert not asking.check(question)
    assert asking.check(called(question, "shop-2"))
    assert asking.check(replace(called(question, "shop-3"), dry_run=True))
    reported = asking(called(question, "shop-4")).recommendation
    assert any("shop-4" in why.text for one in reported.candidates for why in one.reasons)


@pytest.mark.parametrize(
    "question",
    [
        request(vm("n", load=0.5)),
        request(vm("n"), limit=1),
        request(vm("n"), mitigate=False),
        request(vm("n"), explain=False),
        request(vm("n"), exclude=("a",)),
        replace(request(vm("n")), profile=WorkloadProfile("n", {"cpu": 50.0})),
    ],
    ids=["load", "limit", "mend", "explain", "constraints", "profile"],
)
def test_another_question_is_decided_anew(question: PlacementRequest) -> None:
    asking = Asking(cloud([host("a"), host("b")], [vm("r", on="a")]))
    assert not asking.check(request(vm("n")))
    assert not asking.check(question)


@pytest.mark.parametrize("name", ["r", *STRANGE])
def test_a_name_that_may_decide_something_has_answers_of_its_own(name: str) -> None:
    asking = Asking(cloud([host("a"), host("b")], [vm("r", on="a")]))
    asking.check(request(vm("n")))
    assert not asking.check(request(vm(name)))
    assert asking.check(request(vm(name)))


def test_commands_are_never_given_for_another_name() -> None:
    asking = Asking(cloud([host("a")], [vm("r", on="a")]))
    question = request(vm("n", pins="0:0"), commands=True)
    assert not asking.check(question)
    assert not asking.check(called(question, "m"))


def test_other_widths_of_intervals_are_another_answer() -> None:
    asking = Asking(cloud([host("a"), host("b")], [vm("r", on="a")]))
    plain, wide = asking(request()), asking(request(), a=2.0)
    assert "2.0 times as wide" in wide.recommendation.notes[0]
    assert not plain.recommendation.notes
    assert asking(request(), a=2.0).source == asking(request()).source == "hit"


def test_answers_given_while_a_model_fails_are_not_cached() -> None:
    asking = Asking(cloud([host("a")]), Failing())
    for _ in range(2):
        answer = asking(request())
        assert (answer.head.degraded, answer.source) == (True, "miss")


def test_hosts_whose_residents_changed_are_reported_anew() -> None:
    """The same contents under other names: what is predicted is the same, and what is said is not."""
    asking = Asking(cloud([host("a", pcpus=1)], [vm("r", on="a")]))
    assert _neighbours(asking(request()).recommendation) == ["r"]
    asking.see(cloud([host("a", pcpus=1)], [vm("other", on="a")]))
    assert asking.check(request()) is False
    assert _neighbours(asking(request()).recommendation) == ["other"]


def _neighbours(answer: Recommendation) -> list[Any]:
    return [one.instance for one in answer.candidates[0].neighbours]


def test_there_is_room_for_so_many_bytes_of_answers() -> None:
    asking = Asking(cloud([host("a")]))
    asking.answers = recommendations.RecommendationCache.on(asking.snapshot, 3 * asking(request()).size)
    for number in range(9):
        asking(request(Instance("n", load=0.1 + number / 10)))
    assert asking(request(Instance("n", load=0.9))).source == "hit"
    assert asking(request(Instance("n", load=0.1))).source == "miss"


def test_a_question_that_names_many_hosts_takes_room_for_all_of_them() -> None:
    asking = Asking(cloud([host("a")]))
    with_name = tuple(f"elsewhere-{number}" for number in range(5000))
    asking.answers = recommendations.RecommendationCache.on(asking.snapshot, sum(map(sys.getsizeof, with_name)))
    assert [asking(request(exclude=with_name)).source for _ in range(2)] == ["miss", "miss"]
    assert [asking(request(exclude=with_name[:50])).source for _ in range(2)] == ["miss", "hit"]


def test_what_cannot_be_reused_is_dropped_when_the_cloud_changes() -> None:
    asking = Asking(cloud([host("a")]))
    for number in range(9):
        asking(request(Instance("n", load=0.1 + number / 10)))
    asking.answers.moment.seen = NOW - timedelta(seconds=0.4)
    asking.see(cloud([host("a")], [vm("r", on="a")]))
    assert len(asking.answers._kept) == 9
    asking.answers.moment.seen = NOW
    asking(request())
    asking.see(replace(cloud([host("a")]), taken_at=NOW + timedelta(seconds=0.3)))
    assert len(asking.answers._kept) == 1


def _after_a_change(
    *, seen_s: float, former: bool = True, alone: bool = False
) -> recommendations.EncodedRecommendation:
    """What is answered after a change to a question that was answered before it and last found so `seen_s` ago."""
    asking = Asking(cloud([host("a", pcpus=1)], [vm("r", on="a")]))
    asking(request())
    asking.answers.moment.seen = NOW - timedelta(seconds=seen_s)
    asking.see(cloud([host("a", pcpus=1)], [vm("other", on="a")]))
    with nullcontext() if alone else asking.answers.deciding():
        return asking(called(request(), "n-2"), former=former)


def test_a_question_that_would_wait_gets_an_earlier_answer_under_its_own_name() -> None:
    reported = _after_a_change(seen_s=0.4)
    assert (reported.source, _neighbours(reported.recommendation)) == ("former", ["r"])
    assert reported.recommendation.request.instance.id == "n-2"
    assert b"n-2" in reported.as_json()


@pytest.mark.parametrize("why", [{"seen_s": 0.6}, {"seen_s": 0.4, "former": False}, {"seen_s": 0.4, "alone": True}])
def test_an_earlier_answer_is_not_given_late_nor_to_questions_that_hold_a_host_or_need_not_wait(
    why: dict[str, Any],
) -> None:
    reported = _after_a_change(**why)
    assert (reported.source, _neighbours(reported.recommendation)) == ("miss", ["other"])


def test_the_age_of_a_former_answer_is_that_of_the_cloud_that_it_was_decided_on() -> None:
    asking = Asking(replace(cloud([host("a", pcpus=1)]), taken_at=NOW - timedelta(seconds=3)))
    asking(request())
    asking.answers.moment.seen = NOW
    asking.see(cloud([host("a", pcpus=1)], [vm("r", on="a")]))
    with asking.answers.deciding():
        assert asking(request(), former=True).head.snapshot_age_s == 3.0
