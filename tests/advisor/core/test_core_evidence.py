"""What an answer rests on: classes of the own cloud for who is not known, how well residents are known, what to do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from advisor.domain import (
    EvidenceLevel,
    Host,
    Instance,
    Inventory,
    PlacementRequest,
    Recommendation,
    WorkloadProfile,
    evidence_in_words,
    evidence_level,
    like_another,
)
from advisor.placement.decision import recommend
from advisor.placement.evidence import with_class
from advisor.placement.request_normalization import without_name
from advisor.prediction.active import ActivePredictor
from advisor.prediction.context import QuestionContext
from advisor.snapshot import ClusterSnapshot
from models.physics.prior import PriorPredictor
from profiler.demand import Demand

NOW = datetime(2026, 1, 31, tzinfo=UTC)
HOSTS = (Host("h1", "kvm", 16, 65536.0), Host("h2", "kvm", 16, 65536.0))
MEASURED = tuple(
    Instance(f"{stem}-{at}", 4, host=host, demand={"cpu": Demand(mean, windows=300, origin="measured")})
    for stem, mean, host in (("web", 3.2, "h1"), ("idle", 0.05, "h2"))
    for at in range(4)
)


def cloud(*more: Instance, workloads: tuple[WorkloadProfile, ...] = ()) -> ClusterSnapshot:
    inventory = Inventory(HOSTS, (*MEASURED, *more), workloads)
    return ClusterSnapshot.build(inventory, seen={}, pending=(), taken_at=NOW)


def ask(snapshot: ClusterSnapshot, instance: Instance) -> Recommendation:
    context = QuestionContext(ActivePredictor(PriorPredictor()), NOW, float("inf"))
    request = PlacementRequest(instance, constraints=replace(PlacementRequest(instance).constraints, allow_stale=True))
    return recommend(snapshot, context, request)


def share_of(answer: Recommendation, host: str) -> float:
    found = next(one for one in answer.candidates if one.host == host)
    assert found.newcomer.cpu is not None
    return found.newcomer.cpu.share


def test_a_newcomer_of_which_nothing_is_known_is_taken_to_be_like_those_of_its_name() -> None:
    snapshot = cloud()
    busy, idle = ask(snapshot, Instance("web-99", 8)), ask(snapshot, Instance("idle-99", 8))
    assert share_of(busy, "h1") < share_of(idle, "h1")
    assert busy.evidence is not None
    assert busy.evidence.level == "class"
    (note,) = (one for one in busy.notes if "is taken to be like" in one)
    assert note.startswith("web-99 is taken to be like 4 known instances with the same name (web): about ")
    assert "Known instances are told by the others within a factor of" in note


def test_a_resident_of_which_nothing_is_known_counts_as_those_of_its_kind_do() -> None:
    newcomer = Instance("x", 4, demand={"cpu": Demand(3.0)})
    crowded = ask(cloud(*(Instance(f"web-{at}", 4, host="h1") for at in range(50, 54))), newcomer)
    quiet = ask(cloud(*(Instance(f"idle-{at}", 4, host="h1") for at in range(50, 54))), newcomer)
    assert share_of(crowded, "h1") < share_of(quiet, "h1") - 0.02


def test_a_cloud_of_which_nothing_is_known_says_so_and_what_to_do() -> None:
    inventory = Inventory(HOSTS, (Instance("a", 4, host="h1"),))
    snapshot = ClusterSnapshot.build(inventory, seen={}, pending=(), taken_at=NOW)
    answer = ask(snapshot, Instance("b", 4))
    assert answer.evidence is not None
    assert (answer.evidence.level, answer.candidates[0].evidence) == ("size", {})
    assert "name an instance that it is like" in answer.evidence.advice
    assert any("as in public traces" in note for note in answer.notes)


def test_where_residents_were_never_measured_the_advice_is_to_measure_them() -> None:
    given = Instance("x", 2, demand={"cpu": Demand(0.5)})
    answer = ask(cloud(*(Instance(f"idle-{at}", 4, host="h2") for at in range(50, 52))), given)
    assert answer.evidence is not None
    assert answer.candidates[0].host == "h2"
    assert answer.candidates[0].evidence == {"class": 2, "measured": 4}
    assert answer.evidence.advice == (
        "To know more, run the agent on h2 (cotenant-profiler run --host h2 --push URL): "
        "2 of its 6 residents were never measured."
    )
    assert ask(cloud(), given).evidence == replace(answer.evidence, advice="")


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({}, ""),
        ({"size": 1}, "The only resident of h1 is known by its size only."),
        ({"given": 2}, "Both residents of h1 are described by somebody."),
        ({"measured": 3}, "All 3 residents of h1 are measured by the agent."),
        (
            {"class": 1, "measured": 3},
            "Of the 4 residents of h1 1 is taken to be like others of this cloud, 3 are measured by the agent.",
        ),
    ],
)
def test_what_is_known_of_residents_is_said_in_one_sentence(counts: dict[EvidenceLevel, int], words: str) -> None:
    assert evidence_in_words(counts, "h1") == words


def test_what_is_known_of_an_instance_has_a_level() -> None:
    levels = [
        evidence_level(one, {"shop"})
        for one in (
            Instance("a"),
            Instance("a", load=0.5),
            Instance("a", workload="shop"),
            Instance("a", workload="never seen"),
            Instance("a", demand={"cpu": Demand(0.5, origin="trace")}),
            Instance("a", demand={"cpu": Demand(0.5, origin="history")}),
        )
    ]
    assert levels == ["size", "given", "profile", "size", "given", "history"]


def test_a_newcomer_may_be_said_to_be_like_another_one() -> None:
    found = like_another(Instance("new", 8, service="throughput"), MEASURED[0], {"vcpus"})
    assert (found.vcpus, found.demand["cpu"].mean) == (8, 6.4)
    assert found.demand["cpu"].origin == "class"
    answer = ask(cloud(), found)
    assert any(
        note.startswith("new is taken to be like another instance of its kind: about 6.4 CPUs") for note in answer.notes
    )


def test_whom_it_is_like_is_told_by_its_name_though_answers_are_remembered_without() -> None:
    snapshot = cloud()
    asked = without_name(with_class(snapshot, PlacementRequest(Instance("web-99", 8))), snapshot)
    assert asked.instance.id != "web-99"
    (note,) = (one for one in ask(snapshot, asked.instance).notes if "is taken to be like" in one)
    assert "4 known instances with the same name (web)" in note
    assert asked == without_name(with_class(snapshot, PlacementRequest(Instance("web-7", 8))), snapshot)
