"""Answers for schedulers: held together or not at all, and counted by whoever asks next."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.domain import Host, Instance, Inventory, PlacementRequest, WorkloadProfile
from advisor.errors import InvalidInput
from advisor.planning.joint_placement import JointAnswer, place_jointly
from advisor.service import Advisor
from advisor.settings import Settings
from tests.advisor.service.service_clock import Clock
from tests.servers.fixtures import sqlite_with_tables

EQUAL = Inventory(
    tuple(Host(f"h{number}", "kvm", 1, 16_384.0) for number in range(4)),
    (),
    (WorkloadProfile("busy", {"cpu": 100.0, "block": 0.0}),),
)


def question(name: str, *hosts: str) -> PlacementRequest:
    return PlacementRequest(Instance(name, 1, 1024.0, workload="busy"), hosts=hosts or None, limit=1, explain=False)


@pytest.fixture
def equal(advisor: Advisor) -> Advisor:
    advisor.inventory.put(EQUAL, mode="replace", generation=None)
    return advisor


def placed(advisor: Advisor, *names: str, hold: bool = True) -> list[str]:
    answers = advisor.placements.in_turn([question(name) for name in names], hold=hold)
    return [answer.candidates[0].host for answer in answers]


def test_all_answers_of_a_call_are_stored_and_held_and_count_for_the_next_call(equal: Advisor) -> None:
    answers = equal.placements.in_turn([question("a"), question("b")], hold=True)
    assert {one.recommendation.id for one in equal.outcomes.page().items} == {one.id for one in answers}
    held = [answer.candidates[0].host for answer in answers]
    assert sorted([*held, *placed(equal, "c", "d")]) == ["h0", "h1", "h2", "h3"]


def test_nothing_is_kept_where_nothing_is_to_be_held(equal: Advisor) -> None:
    assert placed(equal, "a", hold=False) == placed(equal, "b", hold=False)
    assert equal.outcomes.page().items == ()


def test_an_answer_without_a_host_is_noted_and_holds_nothing(equal: Advisor) -> None:
    (answer,) = equal.placements.in_turn([question("a", "nowhere")], hold=True)
    assert answer.candidates == ()
    assert placed(equal, "b", hold=False) == ["h0"]
    assert equal.outcomes.page().items == ()
    looks = [one for one in equal.access.audit().items if one.operation == "placement.look"]
    assert ("a",) in [one.objects for one in looks]


def test_without_reserving_answers_of_one_call_count_in_and_those_of_the_next_do_not(tmp_path: Path) -> None:
    settings = Settings(database=sqlite_with_tables(tmp_path / "db.sqlite3"), state_dir=tmp_path, reserve_s=0)
    with Advisor(settings) as advisor:
        advisor.inventory.put(EQUAL, mode="replace", generation=None)
        assert placed(advisor, "a", "b") == placed(advisor, "c", "d") == ["h0", "h1"]


def test_two_processes_count_in_what_the_other_one_held(equal: Advisor, settings: Settings, clock: Clock) -> None:
    with Advisor(settings, clock=clock) as other:
        assert sorted([*placed(equal, "a"), *placed(other, "b"), *placed(equal, "c"), *placed(other, "d")]) == [
            "h0", "h1", "h2", "h3",
        ]  # fmt: skip


@pytest.fixture
def during_the_search(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What happens, in threads of its own, once a joint search is over and before its answers are held."""
    happens: list[Callable[[], object]] = []

    def search(*args: Any, **more: Any) -> JointAnswer:
        found = place_jointly(*args, **more)
        with ThreadPoolExecutor() as threads:
            while happens:
                threads.submit(happens.pop()).result(timeout=120)
        return found

    monkeypatch.setattr("advisor.serving.placements.place_jointly", search)
    return happens


def placed_jointly(advisor: Advisor, *names: str) -> list[str]:
    joint = advisor.placements.jointly([question(name) for name in names], hold=True, time_limit_s=60)
    assert len(advisor.outcomes.page().items) >= len(names)
    return [answer.candidates[0].host for answer in joint.answers]


def test_no_question_waits_for_a_joint_search_and_what_was_held_meanwhile_counts(
    equal: Advisor, during_the_search: list[Callable[[], object]]
) -> None:
    others: list[str] = []
    during_the_search.append(lambda: others.extend(placed(equal, "a", "b")))
    found = placed_jointly(equal, "c", "d")
    assert len(others) == 2
    assert sorted([*others, *found]) == ["h0", "h1", "h2", "h3"]


def test_a_host_that_goes_while_a_joint_search_runs_is_in_no_answer(
    equal: Advisor, during_the_search: list[Callable[[], object]]
) -> None:
    during_the_search.append(lambda: equal.inventory.delete_host("h0"))
    assert sorted(placed_jointly(equal, "a", "b", "c")) == ["h1", "h2", "h3"]


def test_joint_answers_stay_where_the_search_put_them_if_that_still_is_better(
    advisor: Advisor, during_the_search: list[Callable[[], object]]
) -> None:
    hosts = (Host("big", "kvm", 4, 2000.0), Host("small", "kvm", 1, 1000.0), Host("other", "kvm", 1, 500.0))
    advisor.inventory.put(Inventory(hosts), mode="replace", generation=None)
    during_the_search.append(lambda: advisor.placements.in_turn([PlacementRequest(Instance("x", 1, 400.0))], hold=True))
    asked = [PlacementRequest(Instance(name, 1, memory), limit=1) for name, memory in (("s", 900.0), ("l", 1600.0))]
    joint = advisor.placements.jointly(asked, hold=True, time_limit_s=60)
    assert [one.candidates[0].host for one in joint.answers] == ["small", "big"]
    assert (joint.search.given.placed, joint.search.found.placed) == (1, 2)
    assert joint.search.tried == ("given", "largest_first", "planned_worst", "planned_total")


def test_a_wrong_question_refuses_them_all_and_no_questions_have_no_answers(equal: Advisor) -> None:
    assert equal.placements.in_turn([], hold=True) == ()
    wrong = PlacementRequest(Instance("a"), limit=0)
    with pytest.raises(InvalidInput):
        equal.placements.in_turn([question("b"), wrong], hold=True)
    assert equal.outcomes.page().items == ()


def test_scores_are_those_of_the_candidates_that_an_answer_tells(equal: Advisor) -> None:
    equal.inventory.put_instance(Instance("there", 1, 1024.0, host="h2", workload="busy"))
    asked = replace(question("a"), limit=4)
    (answer,) = equal.placements.in_turn([asked], hold=False)
    ranking = equal.placements.scores(asked, hold=False)
    assert list(ranking.scores.items()) == [(one.host, pytest.approx(one.score)) for one in answer.candidates]
    assert ranking.scores["h2"] < ranking.scores["h0"]
    assert ranking.answer.candidates == ()
    assert ranking.answer.rejected == answer.rejected


def test_of_scores_the_best_host_is_held_and_stored_alone(equal: Advisor) -> None:
    first, second = (equal.placements.scores(replace(question(name), limit=4), hold=True) for name in ("a", "b"))
    assert next(iter(first.scores)) != next(iter(second.scores))
    stored = [one.recommendation for one in equal.outcomes.page().items]
    assert sorted((one.request.instance.id, one.candidates[0].host, len(one.candidates)) for one in stored) == [
        ("a", next(iter(first.scores)), 1), ("b", next(iter(second.scores)), 1),
    ]  # fmt: skip


def test_scores_that_are_not_held_leave_a_note_unless_they_are_asked_for_again(equal: Advisor) -> None:
    equal.placements.scores(question("a"), hold=False, holds_next=True)
    equal.placements.scores(question("b"), hold=False)
    equal.placements.scores(question("c", "nowhere"), hold=False, holds_next=True)
    equal.placements.scores(question("d", "nowhere"), hold=True)
    looks = [one.objects for one in equal.access.audit().items if one.operation == "placement.look"]
    assert sorted(looks) == [("b", "h0"), ("c",), ("d",)]
    assert equal.outcomes.page().items == ()


def test_a_pod_that_a_scheduler_placed_counts_there_until_time_is_up(equal: Advisor, clock: Clock) -> None:
    there = [Instance(name, 1, 1024.0, host=host, workload="busy") for name, host in (("a", "h0"), ("b", "h1"))]
    equal.placements.hold([*there, Instance("c", 1, 1024.0, host="nowhere", workload="busy")])
    assert sorted(placed(equal, "d", "e")) == ["h2", "h3"]
    assert [one.objects for one in equal.access.audit().items if one.operation == "placement.hold"] == [("a", "b")]
    clock.turn(61)
    assert placed(equal, "f") == ["h0"]


def test_for_some_seconds_an_answer_says_that_another_request_held_a_host(equal: Advisor, clock: Clock) -> None:
    def alone() -> bool:
        """As an answer, and what is placed, say it."""
        per_host = equal.placements.scores(question("x"), hold=False).per_host
        assert equal.placements.hold([]) is not per_host
        return per_host

    assert equal.placements.hold([Instance("a", 1, 1024.0, host="h0", workload="busy")]) is False
    assert alone()
    placed(equal, "b")
    assert not alone()
    assert equal.placements.hold([Instance("c", 1, 1024.0, host="h3", workload="busy")]) is True
    clock.turn(6)
    assert alone()


def test_who_is_placed_anew_counts_on_its_new_host_only(equal: Advisor) -> None:
    for host in ("h0", "h1"):
        equal.placements.hold([Instance("a", 1, 1024.0, host=host, workload="busy")])
        assert placed(equal, "b", hold=False) == ["h1" if host == "h0" else "h0"]
    equal.placements.release(["a"])
    scores = equal.placements.scores(replace(question("b"), limit=4), hold=False).scores
    assert sorted(scores) == ["h0", "h1", "h2", "h3"]
