"""What an answer rests on: classes of the own cloud for who is not known, how well residents are known, what to do."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from advisor.domain import (
    EvidenceLevel,
    Host,
    Instance,
    Inventory,
    PlacementRequest,
    Recommendation,
    evidence_in_words,
    evidence_level,
    like_another,
)
from advisor.placement.decision import recommend
from advisor.placement.evidence import with_class
from advisor.placement.requests import without_name
from advisor.snapshot import ClusterSnapshot
from profiler.demand import Demand
from tests.advisor.core.core_clouds import NOW, context, request

HOSTS = (Host("h1", "kvm", 16, 65536.0), Host("h2", "kvm", 16, 65536.0))
MEASURED = tuple(
    Instance(f"{stem}-{at}", 4, host=host, demand={"cpu": Demand(mean, windows=300, origin="measured")})
    for stem, mean, host in (("web", 3.2, "h1"), ("idle", 0.05, "h2"))
    for at in range(4)
)


def cloud(*more: Instance, measured: tuple[Instance, ...] = MEASURED) -> ClusterSnapshot:
    return ClusterSnapshot.build(Inventory(HOSTS, (*measured, *more)), seen={}, pending=(), taken_at=NOW)


def ask(snapshot: ClusterSnapshot, instance: Instance) -> Recommendation:
    return recommend(snapshot, context(), request(instance, limit=5, allow_stale=True))


def share_of(answer: Recommendation, host: str) -> float:
    (cpu,) = (one.new_vm.cpu for one in answer.candidates if one.host == host)
    assert cpu
    return cpu.share


def test_a_new_vm_of_which_nothing_is_known_is_taken_to_be_like_those_of_its_name() -> None:
    snapshot = cloud()
    busy, idle = ask(snapshot, Instance("web-99", 8)), ask(snapshot, Instance("idle-99", 8))
    assert share_of(busy, "h1") < share_of(idle, "h1")
    assert busy.evidence and busy.evidence.level == "class"
    (note,) = (one for one in busy.notes if "is estimated from" in one)
    assert note.startswith("The demand of web-99 is estimated from 4 known instances with the same name (web): about ")
    assert re.search(r"within a factor of \d+\.\d in 90 % of cases here\.", note)


def test_a_resident_of_which_nothing_is_known_counts_as_those_of_its_kind_do() -> None:
    new_vm = Instance("x", 4, demand={"cpu": Demand(3.0)})
    crowded = ask(cloud(*(Instance(f"web-{at}", 4, host="h1") for at in range(50, 54))), new_vm)
    quiet = ask(cloud(*(Instance(f"idle-{at}", 4, host="h1") for at in range(50, 54))), new_vm)
    assert share_of(crowded, "h1") < share_of(quiet, "h1") - 0.02


def test_a_cloud_of_which_nothing_is_known_says_so_and_what_to_do() -> None:
    answer = ask(cloud(Instance("a", 4, host="h1"), measured=()), Instance("b", 4))
    assert answer.evidence and (answer.evidence.level, answer.candidates[0].evidence) == ("size", {})
    assert "name an instance that it is like" in answer.evidence.advice
    assert any("as in public traces" in note for note in answer.notes)


def test_where_residents_were_never_measured_the_advice_is_to_measure_them() -> None:
    given = Instance("x", 2, demand={"cpu": Demand(0.5)})
    answer = ask(cloud(*(Instance(f"idle-{at}", 4, host="h2") for at in range(50, 52))), given)
    (best, *_) = answer.candidates
    assert (best.host, best.evidence) == ("h2", {"class": 2, "measured": 4})
    assert answer.evidence and answer.evidence.advice == (
        "To know more, run the agent on h2 (cotenant-profiler run --host h2 --push URL): "
        "2 of its 6 residents were never measured."
    )
    assert ask(cloud(), given).evidence == replace(answer.evidence, advice="")


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({}, ""),
        ({"size": 1}, "The only resident of h1 is known by its size only."),
        ({"given": 2}, "Both residents of h1 are known by the demand that a user gave."),
        ({"measured": 3}, "All 3 residents of h1 are measured by the agent."),
        (
            {"class": 1, "measured": 3},
            "Of the 4 residents of h1 1 is estimated from similar ones of this cloud, 3 are measured by the agent.",
        ),
    ],
)
def test_what_is_known_of_residents_is_said_in_one_sentence(counts: dict[EvidenceLevel, int], words: str) -> None:
    assert evidence_in_words(counts, "h1") == words


def test_what_is_known_of_an_instance_has_a_level() -> None:
    for level, instance in (
        ("size", Instance("a")),
        ("given", Instance("a", load=0.5)),
        ("profile", Instance("a", workload="shop")),
        ("size", Instance("a", workload="never seen")),
        ("given", Instance("a", demand={"cpu": Demand(0.5, origin="trace")})),
        ("history", Instance("a", demand={"cpu": Demand(0.5, origin="history")})),
    ):
        assert evidence_level(instance, {"shop"}) == level


def test_a_new_vm_may_be_said_to_be_like_another_one() -> None:
    found = like_another(Instance("new", 8, service="throughput"), MEASURED[0], {"vcpus"})
    assert (found.vcpus, found.demand["cpu"].mean, found.demand["cpu"].origin) == (8, 6.4, "class")
    said = "The demand of new is estimated from another instance of its kind: about 6.4 CPUs"
    assert any(note.startswith(said) for note in ask(cloud(), found).notes)


def test_the_similar_instance_is_named_though_answers_are_cached_without_names() -> None:
    snapshot = cloud()
    asked = without_name(with_class(snapshot, PlacementRequest(Instance("web-99", 8))), snapshot)
    assert asked.instance.id != "web-99"
    (note,) = (one for one in ask(snapshot, asked.instance).notes if "is estimated from" in one)
    assert "4 known instances with the same name (web)" in note
    assert asked == without_name(with_class(snapshot, PlacementRequest(Instance("web-7", 8))), snapshot)
