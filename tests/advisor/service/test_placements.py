"""Answers: stored, held as pending until the inventory shows them, and the same for every process on the database."""

from __future__ import annotations

import math
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from advisor.domain import (
    Band,
    Host,
    Instance,
    Inventory,
    PlacementRequest,
    PlanRequest,
    Recommendation,
    Scene,
    WorkloadProfile,
    codec,
)
from advisor.errors import InvalidInput, NotFound
from advisor.placement import decision
from advisor.service import Advisor
from advisor.settings import Settings
from models.data.cloud_classes import CloudClasses
from profiler.demand import Demand
from profiler.observed import IsolationSettings, Pinning
from tests.advisor.service.service_clock import Clock

BUSY = WorkloadProfile("busy", {"cpu": 100.0})
HOSTS = tuple(Host(f"h{number}", "kvm", 2, 4096) for number in range(1, 5))


def ask(name: str, **changes: Any) -> PlacementRequest:
    return PlacementRequest(Instance(name, memory_mb=1024.0, workload="busy"), **changes)


def first(answer: Recommendation) -> str:
    return answer.candidates[0].host


@pytest.fixture(autouse=True)
def _cloud(advisor: Advisor) -> None:
    advisor.inventory.put(Inventory(HOSTS, workloads=(BUSY,)), mode="replace", generation=None)


def test_only_a_question_that_holds_no_host_and_would_wait_gets_an_earlier_answer(
    advisor: Advisor, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, over = threading.Event(), threading.Event()

    def slowly(snapshot: Any, chosen: Any, request: PlacementRequest, **more: Any) -> Recommendation:
        if request.instance.memory_mb == 7.0:
            begun.set()
            assert over.wait(30)
        return recommend(snapshot, chosen, request, **more)

    recommend = decision.recommend
    monkeypatch.setattr(decision, "recommend", slowly)
    dry, wait = ask("a", dry_run=True), PlacementRequest(Instance("long", memory_mb=7.0), dry_run=True)
    assert advisor.placements.place(dry).source == "miss"
    clock.turn(0.3)
    assert advisor.placements.place(dry).source == "hit"
    advisor.inventory.delete_host("h1")
    waiting = threading.Thread(target=advisor.placements.place, args=(wait,))
    waiting.start()
    try:
        assert begun.wait(30)
        clock.turn(0.4)
        reported = advisor.placements.place(dry)
        held = advisor.placements.place(replace(dry, dry_run=False))
        clock.turn(0.2)
        late = advisor.placements.place(dry)
    finally:
        over.set()
        waiting.join()
    assert (reported.source, first(reported.head), reported.head.snapshot_age_s) == ("former", "h1", pytest.approx(0.7))
    assert first(held.head) != "h1"
    assert (late.source, "h1" in {one.host for one in late.head.candidates}) == ("miss", False)


def test_answers_are_stored_as_they_were_given_and_listed_newest_first(advisor: Advisor, clock: Clock) -> None:
    answers = []
    for name in "abc":
        answers.append(advisor.placements.place(ask(name, commands=True)).recommendation)
        clock.turn(1)
    assert [advisor.placements.get(answer.id) for answer in answers] == answers
    page = advisor.outcomes.page(limit=2)
    rest = advisor.outcomes.page(limit=2, cursor=page.next_cursor)
    assert [one.recommendation for one in (*page.items, *rest.items)] == answers[::-1]


@pytest.mark.parametrize("threads", [1, 8], ids=["in a row", "at the same time"])
@pytest.mark.parametrize("processes", [1, 2])
def test_equal_answers_spread_over_the_hosts(
    advisor: Advisor, settings: Settings, clock: Clock, processes: int, threads: int
) -> None:
    def placed(one: Advisor, number: int) -> str:
        return first(one.placements.place(ask(f"n{number}")).recommendation)

    with Advisor(settings, clock=clock) as other, ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(placed, [advisor, other if processes == 2 else advisor] * 4, range(8)))
    assert Counter(found) == {host.id: 2 for host in HOSTS}


def test_pending_answers_survive_a_restart(advisor: Advisor, settings: Settings, clock: Clock) -> None:
    taken = first(advisor.placements.place(ask("a")).recommendation)
    advisor.close()
    with Advisor(settings, clock=clock) as restarted:
        assert first(restarted.placements.place(ask("b")).recommendation) != taken


def test_a_dry_run_is_stored_and_holds_nothing(advisor: Advisor) -> None:
    answers = [advisor.placements.place(ask(f"n{number}", dry_run=True)).recommendation for number in range(3)]
    assert len({first(answer) for answer in answers}) == 1
    assert advisor.placements.get(answers[0].id).request.dry_run
    assert codec.answer_values(answers[0])["dry_run"] is True


def test_holding_can_be_switched_off(settings: Settings, clock: Clock) -> None:
    with Advisor(settings.model_copy(update={"reserve_s": 0.0}), clock=clock) as advisor:
        assert len({first(advisor.placements.place(ask(f"n{number}")).recommendation) for number in range(3)}) == 1


def test_a_pending_answer_lapses_after_its_time(advisor: Advisor, clock: Clock) -> None:
    taken = first(advisor.placements.place(ask("a")).recommendation)
    clock.turn(59)
    assert first(advisor.placements.place(ask("b", dry_run=True)).recommendation) != taken
    clock.turn(1)
    assert first(advisor.placements.place(ask("b", dry_run=True)).recommendation) == taken


def test_a_pending_answer_ends_when_the_inventory_shows_the_instance_elsewhere(advisor: Advisor) -> None:
    taken = first(advisor.placements.place(ask("a")).recommendation)
    advisor.inventory.put_instance(Instance("a", memory_mb=1024.0, workload="busy", host="h4"))
    assert first(advisor.placements.place(ask("b", dry_run=True)).recommendation) == taken


def test_a_pending_answer_counts_once_when_the_inventory_shows_the_instance(advisor: Advisor) -> None:
    taken = first(advisor.placements.place(ask("a")).recommendation)
    cloud = Inventory(HOSTS, (Instance("a", memory_mb=1024.0, workload="busy", host=taken),))
    advisor.inventory.put(cloud, mode="replace", generation=None)
    answer = advisor.placements.place(ask("b", hosts=(taken,), dry_run=True)).recommendation
    assert [effect.instance for effect in answer.candidates[0].neighbours] == ["a"]


def test_an_instance_that_is_asked_about_again_is_not_its_own_neighbour(advisor: Advisor) -> None:
    taken = first(advisor.placements.place(ask("a")).recommendation)
    again = advisor.placements.place(ask("a")).recommendation
    assert first(again) == taken
    assert again.candidates[0].neighbours == ()


def test_a_pending_answer_counts_with_the_profile_that_its_question_gave(advisor: Advisor) -> None:
    heavy = WorkloadProfile("", {"cpu": 100.0})
    asked = Instance("a", vcpus=2, memory_mb=1024.0)
    taken = first(advisor.placements.place(PlacementRequest(asked, profile=heavy, hosts=("h1",))).recommendation)
    pressed = advisor.placements.place(ask("b", hosts=(taken,), dry_run=True)).recommendation
    assert "unknown" not in " ".join(pressed.notes)
    assert [effect.instance for effect in pressed.candidates[0].neighbours] == ["a"]


def test_a_pending_answer_counts_with_its_advised_pinning_and_breaks_no_later_one_where_its_host_lost_the_cpus(
    advisor: Advisor,
) -> None:
    pinned = replace(ask("a").instance, settings=IsolationSettings(pinning=Pinning(((1,),))))
    answer = advisor.placements.place(PlacementRequest(pinned, hosts=("h1",))).recommendation
    view, _ = advisor._cache.at(answer.created_at)
    assert view.expected.instances[0].settings.pinning == answer.candidates[0].pinning == Pinning(((1,),))
    assert view.expected.instances[0].host == "h1"
    assert view.inventory.instances == ()
    advisor.inventory.put_host(replace(HOSTS[0], pcpus=1))
    assert advisor.placements.place(ask("b", hosts=("h1",))).recommendation.candidates[0].neighbours == ()
    advisor.inventory.delete_host("h1")
    assert advisor.cloud.ready()["hosts"] == 3


def test_nothing_is_held_when_no_host_fits_or_there_is_none(advisor: Advisor) -> None:
    answer = advisor.placements.place(PlacementRequest(Instance("huge", memory_mb=1e6))).recommendation
    assert answer.candidates == ()
    assert {one.code for one in answer.rejected} == {"capacity.memory"}
    assert advisor.placements.get(answer.id) == answer

    advisor.inventory.put(Inventory(), mode="replace", generation=None)
    answer = advisor.placements.place(ask("a")).recommendation
    assert answer.candidates == answer.rejected == ()


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (ask("a", objective="best"), "objective"),
        (ask("a", limit=0), "limit"),
        (PlacementRequest(Instance("a", memory_mb=math.nan)), "instance.memory_mb"),
        (PlacementRequest(Instance("a", settings=IsolationSettings(Pinning(((0,), (1,)))))), "pinning"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_by_field_and_not_stored(
    advisor: Advisor, request_: PlacementRequest, field: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        advisor.placements.place(request_)
    assert caught.value.field == field
    assert advisor.outcomes.page().items == ()


def test_the_outcome_of_an_answer_is_kept_and_the_latest_word_wins(advisor: Advisor) -> None:
    answer = advisor.placements.place(ask("a")).recommendation
    assert advisor.outcomes.get(answer.id).reported_at is None
    advisor.outcomes.record(answer.id, "h1", {"a": 0.9})
    advisor.outcomes.record(answer.id, "h2", {"a": 0.8, "b": 1.0})
    outcome = advisor.outcomes.get(answer.id)
    assert (outcome.host, {row.instance: row.measured for row in outcome.beside}) == ("h2", {"a": 0.8, "b": 1.0})
    with pytest.raises(NotFound):
        advisor.outcomes.record("ghost", "h1", {})
    with pytest.raises(InvalidInput, match=r"ratios\.a"):
        advisor.outcomes.record(answer.id, "h1", {"a": math.nan})


def test_a_scene_looks_up_workloads_that_it_does_not_bring(advisor: Advisor) -> None:
    crowded = Scene(Host("x", "kvm", 1, 1024), (Instance("a", workload="busy"), Instance("b", workload="busy")))
    shared = advisor.placements.predict(crowded).effects[0].throughput_ratio.expected
    light = replace(crowded, workloads=(WorkloadProfile("busy", {"cpu": 5.0}),))
    assert shared < 0.8 < advisor.placements.predict(light).effects[0].throughput_ratio.expected


def test_a_scene_counts_an_instance_of_unknown_demand_as_placements_do(advisor: Advisor) -> None:
    seen = tuple(Instance(f"front-{n}", 4, host="h1", demand={"cpu": Demand(3.2, "cpu")}) for n in range(8))
    advisor.inventory.put(Inventory(HOSTS, seen), mode="replace", generation=None)
    estimated = CloudClasses.of(seen).demand_of(Instance("x", 4))
    assert estimated is not None
    assert estimated.mean > 1.0  # a tenth would be 0.4

    def beside(one: Instance, *workloads: WorkloadProfile) -> Band:
        other = Instance("other", 4, demand={"cpu": Demand(2.0, "cpu")})
        return (
            advisor.placements.predict(Scene(Host("x", "kvm", 4, 4096), (one, other), workloads))
            .effects[1]
            .throughput_ratio
        )

    assert beside(Instance("x", 4)) == beside(Instance("x", 4, demand={"cpu": estimated}))
    idle = WorkloadProfile("idle", {"cpu": 1.0})
    assert beside(Instance("x", 4, workload="idle"), idle).expected > beside(Instance("x", 4)).expected + 0.02


@pytest.mark.parametrize(
    "instances",
    [(Instance("a"), Instance("a")), (Instance("a", settings=IsolationSettings(Pinning(((4,),)))),)],
)
def test_an_impossible_scene_is_refused(advisor: Advisor, instances: tuple[Instance, ...]) -> None:
    with pytest.raises(InvalidInput):
        advisor.placements.predict(Scene(HOSTS[0], instances))


def test_a_plan_builds_on_pending_answers_and_holds_nothing_itself(advisor: Advisor) -> None:
    taken = first(advisor.placements.place(ask("a")).recommendation)
    arriving = tuple(ask(f"n{number}").instance for number in range(3))
    asked = PlanRequest(instances=arriving)
    plan = advisor.plans.make(asked)
    assert "a" in {effect.instance for effect in plan.before[taken]}
    assert [step.instance for step in plan.steps] == ["n0", "n1", "n2"]
    assert advisor.plans.make(asked).steps == plan.steps


def test_readiness_tells_what_answers(advisor: Advisor, clock: Clock) -> None:
    advisor.placements.place(ask("a"))
    clock.turn(5)
    assert advisor.cloud.ready() == {
        "database": "sqlite",
        "generation": 1,
        "model": "analytic",
        "degraded": False,
        "snapshot_age_s": 0.0,
        "hosts": 4,
    }
    clock.turn(3)
    assert advisor.cloud.ready()["snapshot_age_s"] == 3.0
