"""Kubernetes' extender: pods in a row spread, a pod that is tried again holds nothing more, any pod has an answer."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from cotenant_kubernetes import pods
from cotenant_kubernetes.schemas import ExtenderArgs
from hypothesis import given
from hypothesis import strategies as st

from advisor import deadline
from advisor.domain import Host, Instance, Inventory, PlacementRequest, WorkloadProfile
from advisor.errors import DeadlinePassed, StorageUnavailable
from advisor.service import Advisor
from advisor.settings import Settings
from api import opinion
from api.problems import Busy
from tests.api.any_json import FEW, check_that_no_json_breaks
from tests.api.api_client import Client, bent_client, failing

NODES = tuple(f"n{number:02}" for number in range(12))
SAID = st.dictionaries(
    st.sampled_from(
        [f"cotenant.io/{name}" for name in ("workload", "instance", "service", "load", "vcpus", "max-latency-ratio")]
        + ["kubevirt.io", "app"]
    ),
    st.text(max_size=30) | st.sampled_from(["busy", "2", "0.5", "nan", "1e999", "-1", "9" * 400, "²", "\0", "\ud800"]),
    max_size=4,
)
QUANTITY = st.text(max_size=12) | st.integers() | st.sampled_from(["500m", "4Gi", "1e3", "0.5", "9e99", "-1", "1E"])
PODS = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {}, optional={"uid": st.text(max_size=40), "labels": SAID | st.none(), "annotations": SAID | st.none()}
        ),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "containers": st.lists(
                    st.fixed_dictionaries(
                        {"resources": st.fixed_dictionaries({"requests": st.dictionaries(
                            st.sampled_from(["cpu", "memory", "x"]), QUANTITY, max_size=2)})}
                    ),
                    max_size=3,
                ),
                "overhead": st.dictionaries(st.sampled_from(["cpu", "memory"]), QUANTITY, max_size=1),
            },
        ),
    },
)  # fmt: skip


def pod(uid: str, **said: str) -> dict[str, Any]:
    annotations = {f"cotenant.io/{name.replace('_', '-')}": value for name, value in said.items()}
    return {
        "metadata": {"name": f"virt-launcher-{uid}", "namespace": "prod", "uid": uid, "annotations": annotations},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "900m", "memory": "1Gi"}}}]},
    }


@pytest.fixture
def equal(advisor: Advisor) -> Advisor:
    """Twelve equal nodes with nothing on them."""
    hosts = tuple(Host(name, "kvm", 1, 16_384.0) for name in NODES)
    workloads = (WorkloadProfile("busy", {"cpu": 100.0, "block": 0.0}),)
    advisor.inventory.put(Inventory(hosts, (), workloads), mode="replace", generation=None)
    return advisor


def scheduled(client: Client, uid: str) -> str:
    """Where Kubernetes would put the pod if the extender alone decided; of equal scores it takes any."""
    body = {"Pod": pod(uid, workload="busy"), "Nodes": None, "NodeNames": list(NODES)}
    fit = client.ask("POST", "/kubernetes/filter", json=body).json()["NodeNames"]
    rows = client.ask("POST", "/kubernetes/prioritize", json={**body, "NodeNames": fit}).json()
    best = max(row["Score"] for row in rows)
    return random.Random(uid).choice([str(row["Host"]) for row in rows if row["Score"] == best])


def without_reserving(equal: Advisor, settings: Settings) -> tuple[Client, list[PlacementRequest]]:
    """A client of a service that holds no node, and what the service is asked to score."""
    asked: list[PlacementRequest] = []

    def scores(request: PlacementRequest, **_: object) -> object:
        asked.append(request)
        return equal.placements.scores(request, hold=False)

    return bent_client(equal, settings, placements={"scores": scores}), asked


def test_pods_in_quick_succession_spread_as_if_placed_one_by_one(equal: Advisor, client: Client) -> None:
    first = [scheduled(client, f"pod-{number}") for number in range(12)]
    assert sorted(first) == list(NODES)
    then = [scheduled(client, f"pod-{number}") for number in range(12, 18)]
    assert max(Counter(then).values()) == 1


def test_without_reserving_they_all_go_to_one(equal: Advisor, settings: Settings) -> None:
    """What the test above would not see if answers did not count in."""
    client, _ = without_reserving(equal, settings)
    assert len({scheduled(client, f"pod-{number}") for number in range(6)}) == 1


def test_a_pod_that_is_tried_again_holds_one_node(equal: Advisor, client: Client) -> None:
    again = {scheduled(client, "pod-1") for _ in range(4)}
    assert len(again) == 1
    others = {scheduled(client, f"other-{number}") for number in range(11)}
    assert again | others == set(NODES)
    assert not again & others


def test_a_filter_keeps_nothing(equal: Advisor, client: Client) -> None:
    before = equal.cloud.ready()
    client.ask("POST", "/kubernetes/filter", json={"Pod": pod("p", workload="busy"), "NodeNames": list(NODES)})
    assert equal.outcomes.page().items == ()
    assert equal.cloud.ready()["generation"] == before["generation"]


def test_a_prioritised_pod_is_stored_once_with_one_candidate(equal: Advisor, client: Client) -> None:
    scheduled(client, "pod-1")
    stored = equal.outcomes.page().items[0].recommendation
    assert (stored.request.instance.id, len(stored.candidates)) == ("pod-1", 1)


def test_the_size_is_what_kubernetes_counts_a_pod_with(equal: Advisor, settings: Settings) -> None:
    """The containers together, or one that runs before them alone, and the overhead."""
    client, asked = without_reserving(equal, settings)
    body = pod("p")
    body["spec"] = {
        "containers": [{"resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}, {"resources": None},
                       {"resources": {"requests": {"cpu": "0.7", "memory": "512Mi"}}}],
        "initContainers": [{"resources": {"requests": {"cpu": "1", "memory": "3Gi"}}}],
        "overhead": {"cpu": "250m", "memory": "128Mi"},
    }  # fmt: skip
    body["metadata"]["labels"] = {"kubevirt.io": "virt-launcher"}
    assert client.ask("POST", "/kubernetes/filter", json={"Pod": body, "NodeNames": ["n00"]}).status_code == 200
    assert (asked[0].instance.vcpus, asked[0].instance.memory_mb) == (3, 3 * 1024 + 128)


@pytest.mark.parametrize(
    ("text", "value"),
    [("500m", 0.5), ("2", 2.0), ("1.5", 1.5), (".5", 0.5), ("4Gi", 4 * 2.0**30), ("1M", 1e6), ("1e3", 1000.0),
     ("12E-1", 1.2), ("1k", 1000.0), ("100n", 1e-7), ("1Ki", 1024.0), (2, 2.0), (0.5, 0.5), (None, 0.0)],
)  # fmt: skip
def test_quantities_are_read_as_kubernetes_writes_them(text: Any, value: float) -> None:
    assert pods.quantity(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "4GiB", "1 Gi", "K", "nan", "inf", "1e", "0x1", "1e999", "١", "1K"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no quantity"):
        pods.quantity(text)


class Framework:
    """A scheduler's plug-in that asks as it goes: each question says where the pod before it was put."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.placed: list[dict[str, Any]] = []

    def asks(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.client.ask("POST", "/kubernetes/advice", json={**body, "Placed": self.placed})
        assert answer.status_code == 200, answer.text
        self.placed = []
        found: dict[str, Any] = answer.json()
        return found

    def schedules(self, uid: str) -> str:
        """Where the pod goes; of equal scores any."""
        one = pod(uid, workload="busy")
        scores = self.asks({"Pod": one, "NodeNames": list(NODES)})["Scores"]
        best = random.Random(uid).choice([name for name in scores if scores[name] == max(scores.values())])
        self.placed = [{"Pod": one, "NodeName": best}]
        return str(best)


@pytest.fixture
def framework(equal: Advisor, client: Client) -> Framework:
    return Framework(client)


def test_one_question_for_each_pod_spreads_them(equal: Advisor, framework: Framework) -> None:
    assert sorted(framework.schedules(f"pod-{number}") for number in range(12)) == list(NODES)


def test_a_placement_counts_until_it_is_released(equal: Advisor, framework: Framework) -> None:
    big = pod("big", workload="busy")
    big["spec"]["containers"][0]["resources"]["requests"]["memory"] = "12Gi"
    asked = {"Pod": {**big, "metadata": {**big["metadata"], "uid": "other"}}, "NodeNames": ["n00"]}
    framework.placed = [{"Pod": big, "NodeName": "n00"}, {"Pod": pod("gone"), "NodeName": "nowhere"}]
    assert "MB" in framework.asks(asked)["FailedNodes"]["n00"]
    assert framework.asks({**asked, "Without": ["big"]})["FailedNodes"] == {}
    assert framework.asks({**asked, "Released": [big]})["FailedNodes"] == {}
    released = [one.objects for one in equal.access.audit().items if one.operation == "placement.release"]
    assert released == [("big",)]
    assert framework.asks({"NodeNames": []})["Scores"] == {}


def test_of_pods_that_are_reported_together_all_count_and_the_first_is_judged(
    equal: Advisor, framework: Framework
) -> None:
    framework.placed = [{"Pod": pod(f"p{at}", workload="busy"), "NodeName": NODES[at]} for at in range(4)]
    found = framework.asks({"Pod": pod("next", workload="busy"), "NodeNames": list(NODES)})
    assert {name for name in NODES if found["Scores"][name] < max(found["Scores"].values())} == set(NODES[:4])
    assert [one.recommendation.request.instance.id for one in equal.outcomes.page().items] == ["p0"]


def test_a_pod_that_was_put_where_it_would_be_refused_counts_there_all_the_same(
    equal: Advisor, framework: Framework
) -> None:
    body = pod("big", workload="busy")
    body["spec"]["containers"][0]["resources"]["requests"]["memory"] = "1Ti"
    framework.placed = [{"Pod": body, "NodeName": "n00"}]
    found = framework.asks({"Pod": pod("next", workload="busy"), "NodeNames": ["n00", "n01"]})
    assert "MB" in found["FailedNodes"]["n00"]
    assert equal.outcomes.page().items == ()


def test_scores_that_depend_on_the_other_nodes_say_so(equal: Advisor, client: Client) -> None:
    """In a cloud that is half full, where a new VM takes much of what is left, last places have a price."""
    asked: dict[str, Any] = {"Pod": pod("next", workload="busy"), "NodeNames": list(NODES)}
    assert client.ask("POST", "/kubernetes/advice", json=asked).json()["PerNode"] is True
    equal.inventory.put(
        Inventory(workloads=(WorkloadProfile("idle", {"cpu": 1.0, "block": 0.0}),)), mode="merge", generation=None
    )
    for number, host in enumerate(NODES):
        kind = "busy" if number % 2 else "idle"
        equal.inventory.put_instance(Instance(f"there-{number}", 1, 9_000.0, host=host, workload=kind))
    asked["Pod"]["spec"]["containers"][0]["resources"]["requests"]["memory"] = "4Gi"
    assert client.ask("POST", "/kubernetes/advice", json=asked).json()["PerNode"] is False


def test_where_others_place_too_a_node_is_held_with_the_question(equal: Advisor, client: Client) -> None:
    framework = Framework(client)
    assert framework.asks({"NodeNames": []})["Others"] is False
    scheduled(client, "theirs")  # by the extender, which holds
    found = framework.asks({"Pod": pod("a", workload="busy"), "NodeNames": ["n05"], "Hold": True})
    assert (found["Others"], found["PerNode"]) == (True, False)
    scores = framework.asks({"Pod": pod("b", workload="busy"), "NodeNames": list(NODES)})["Scores"]
    taken = {name for name in NODES if scores[name] < max(scores.values())}
    assert "n05" in taken
    assert len(taken) == 2


def test_what_the_inventory_shows_is_not_held_once_more(equal: Advisor, framework: Framework) -> None:
    """The watch may tell of a bound pod before the plug-in does."""
    equal.inventory.put_instance(Instance("early", host="n00"))
    before = equal.cloud.ready()
    framework.placed = [{"Pod": pod("early", workload="busy"), "NodeName": "n00"}]
    framework.asks({"NodeNames": []})
    assert equal.outcomes.page().items == ()
    assert equal.cloud.ready()["generation"] == before["generation"]


def test_storage_that_is_away_is_no_decision(advisor: Advisor, settings: Settings) -> None:
    away = failing(StorageUnavailable("the database does not answer"))
    client = bent_client(advisor, settings, placements={"scores": away})
    body = {"Pod": pod("p", workload="batch"), "NodeNames": ["h1"]}
    assert client.ask("POST", "/kubernetes/filter", json=body).status_code == 503


@pytest.mark.hypothesis
@pytest.mark.parametrize("verb", ["filter", "prioritize"])
def test_any_pod_has_an_answer_about_every_node_or_a_refusal(client: Client, verb: str) -> None:
    @FEW
    @given(PODS, st.lists(st.sampled_from(["h1", "h4", "h6", "zz", "", "a\0b"]), max_size=4))
    def ask(one: dict[str, Any], nodes: list[str]) -> None:
        raw = json.dumps({"Pod": one, "NodeNames": nodes})
        answer = client.ask(
            "POST", f"/kubernetes/{verb}", content=raw.encode(), headers={"Content-Type": "application/json"}
        )
        assert answer.status_code in {200, 400, 422}, answer.text
        if answer.status_code == 200 and verb == "filter":
            said = answer.json()
            failed = [*said["FailedNodes"], *said["FailedAndUnresolvableNodes"]]
            assert said["Error"] or {*said["NodeNames"], *failed} == set(nodes)
        elif answer.status_code == 200:
            assert {row["Host"]: 0 <= row["Score"] <= 10 for row in answer.json()} == dict.fromkeys(nodes, True)

    ask()


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "advice"])
@pytest.mark.hypothesis
def test_no_json_breaks_a_verb(client: Client, verb: str) -> None:
    names = ["Pod", "NodeNames", "Nodes", "NodeNameToMetaVictims", "spec"]
    check_that_no_json_breaks(client, f"/kubernetes/{verb}", names)


def score(client: Client, body: dict[str, Any], names: Sequence[str]) -> dict[str, int]:
    rows = client.ask("POST", "/kubernetes/prioritize", json={"Pod": body, "NodeNames": list(names)}).json()
    return {row["Host"]: row["Score"] for row in rows}


def test_a_new_node_is_as_good_as_an_empty_one(equal: Advisor, client: Client) -> None:
    """Behind the one that is held as long as that one is empty, and before nodes on which an instance would suffer."""
    assert score(client, pod("first", workload="busy"), ["n00", "new"]) == {"n00": 10, "new": 9}
    crowded = score(client, pod("second", workload="busy"), ["n00", "new"])
    assert crowded["new"] == 10
    assert crowded["n00"] < 10
    assert [one.recommendation.request.instance.id for one in equal.outcomes.page().items] == ["first"]


def test_a_pod_that_only_asks_is_taken_to_be_like_its_class(equal: Advisor, settings: Settings) -> None:
    client, asked = without_reserving(equal, settings)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4f", "controller": True}
    body = {
        "metadata": {"name": "web-7d4f-x", "namespace": "prod", "uid": "u1", "ownerReferences": [owner],
                     "labels": {"pod-template-hash": "7d4f"}},
        "spec": {"containers": [{"image": "web:1", "resources": {"requests": {"cotenant.io/advised": "1"}}}]},
    }  # fmt: skip
    score(client, body, ["n00"])
    assert asked[0].instance.labels == {"project": "prod", "class": "prod/Deployment/web", "image": "web:1"}


@pytest.mark.parametrize("kind", ["virt-handler", "virt-api", "hotplug-disk", ""])
def test_kubevirt_s_own_pods_are_no_guests(client: Client, kind: str) -> None:
    body = {"metadata": {"uid": "u1", "labels": {"kubevirt.io": kind}}}
    assert score(client, body, ["h4", "h6"]) == {"h4": 0, "h6": 0}


def test_a_guest_that_moves_is_asked_about_as_itself_and_held_as_its_new_pod(equal: Advisor, client: Client) -> None:
    equal.inventory.put_instance(Instance("vm1", vcpus=1, host="n00", workload="busy"))
    labels = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": "vm1", "kubevirt.io/migrationJobUID": "job"}
    body = {"metadata": {"name": "virt-launcher-2", "uid": "new-pod", "labels": labels}, "spec": {}}
    points = score(client, body, ["n00", "n01", "n02"])
    assert points["n00"] < points["n01"]  # it runs there still
    stored = equal.outcomes.page().items[0].recommendation.request.instance
    assert (stored.id, stored.workload, stored.host) == ("new-pod", "busy", None)


def test_a_misspelt_annotation_passes_nowhere_and_the_reason_says_what_is_meant(client: Client) -> None:
    body = {"Pod": {"metadata": {"uid": "u", "annotations": {"cotenant.io/worklod": "web"}}}, "NodeNames": ["h1", "h4"]}
    said = client.ask("POST", "/kubernetes/filter", json=body).json()
    assert (said["NodeNames"], said["FailedNodes"], said["Error"]) == ([], {}, "")
    reasons = said["FailedAndUnresolvableNodes"]
    assert set(reasons) == {"h1", "h4"}
    assert all("cotenant.io/worklod is not known; is cotenant.io/workload meant?" in one for one in reasons.values())


def test_only_victims_whose_leaving_helps_are_evicted(equal: Advisor, client: Client) -> None:
    """Two busy ones on each node; a new VM that must keep its speed gets in where both leave, not where one does."""
    for name in ("n00", "n01"):
        for number in (1, 2):
            equal.inventory.put_instance(Instance(f"{name}-{number}", vcpus=1, host=name, workload="busy"))
    equal.inventory.put_instance(Instance("vm", vcpus=1, host="n02", workload="busy", labels={"pod": "launcher"}))
    new_vm = pod("high", workload="busy", min_throughput_ratio="0.9")
    fit = client.ask("POST", "/kubernetes/filter", json={"Pod": new_vm, "NodeNames": ["n00", "n01", "n02"]}).json()
    assert fit["NodeNames"] == []
    assert set(fit["FailedNodes"]) == {"n00", "n01", "n02"}
    victims = {
        "n00": {"Pods": [{"UID": "n00-1"}], "NumPDBViolations": 0},
        "n01": {"Pods": [{"UID": "n01-1"}, {"UID": "n01-2"}], "NumPDBViolations": 1},
        "n02": {"Pods": [{"UID": "launcher"}], "NumPDBViolations": 0},
        "unknown": {"Pods": None, "NumPDBViolations": 0},
    }
    said = client.ask("POST", "/kubernetes/preempt", json={"Pod": new_vm, "NodeNameToMetaVictims": victims}).json()
    assert said == {"NodeNameToMetaVictims": {name: victims[name] for name in ("n01", "n02", "unknown")}}
    says_nothing = {"Pod": {"metadata": {"uid": "u"}}, "NodeNameToMetaVictims": victims}
    assert client.ask("POST", "/kubernetes/preempt", json=says_nothing).json() == {"NodeNameToMetaVictims": victims}


def test_after_a_late_answer_no_request_waits_for_a_while() -> None:
    now, asked = [0.0], [0]

    async def late(*, body: ExtenderArgs) -> None:
        asked[0] += 1
        now[0] += 0.25
        raise DeadlinePassed("late")

    async def soon(*, body: ExtenderArgs) -> str:
        asked[0] += 1
        return "answer"

    waits = opinion.Patience(0.25, clock=lambda: now[0])
    about = ExtenderArgs.model_validate({"Pod": {"metadata": {"uid": "u"}}, "NodeNames": []})
    with pytest.raises(DeadlinePassed):
        asyncio.run(waits.wrap(late)(body=about))
    with pytest.raises(Busy):
        asyncio.run(waits.wrap(soon)(body=about))
    assert asked == [1]
    now[0] += opinion.REST_S + 0.01
    assert asyncio.run(waits.wrap(soon)(body=about)) == "answer"
    assert asyncio.run(waits.wrap(soon)(body=about)) == "answer"


def test_the_questions_of_one_attempt_to_schedule_a_pod_have_one_time_together() -> None:
    now = [0.0]
    left: list[float] = []

    async def filter(*, body: ExtenderArgs) -> None:  # noqa: A001 - the verb's name
        left.append(round(deadline.left_s(), 1))

    async def prioritize(*, body: ExtenderArgs) -> None:
        left.append(round(deadline.left_s(), 1))

    waits = opinion.Patience(10.0, clock=lambda: now[0])
    steps = [(0.0, filter, "a"), (6.0, prioritize, "a"), (6.0, prioritize, "b"), (7.0, filter, "a")]
    steps += [(8.0, prioritize, "a"), (20.0, filter, "a"), (0.0, filter, ""), (6.0, prioritize, "")]
    for at, verb, uid in steps:
        now[0] = at
        asyncio.run(waits.wrap(verb)(body=ExtenderArgs.model_validate({"Pod": {"metadata": {"uid": uid}}})))
    assert left == [10.0, 4.0, 10.0, 10.0, 9.0, 10.0, 10.0, 10.0]


def test_a_short_deadline_takes_the_answer_from_no_other_caller() -> None:
    async def late(*, body: ExtenderArgs) -> None:
        deadline.check()

    async def soon(*, body: ExtenderArgs) -> str:
        return "answer"

    waits = opinion.Patience(60.0)
    about = ExtenderArgs.model_validate({"Pod": {"metadata": {"uid": "u"}}})
    with deadline.within(-1.0), pytest.raises(DeadlinePassed):
        asyncio.run(waits.wrap(late)(body=about))
    assert asyncio.run(waits.wrap(soon)(body=about)) == "answer"


def test_every_recommendation_has_one_entry_in_the_audit_log(client: Client, advisor: Advisor) -> None:
    def pod(memory: str) -> dict[str, Any]:
        asks = {"containers": [{"resources": {"requests": {"memory": memory}}}]}
        about = {"name": "p", "namespace": "d", "uid": "p-1", "labels": {"kubevirt.io": "virt-launcher"}}
        return {"Pod": {"metadata": about, "spec": asks}, "NodeNames": list(NODES)}

    asked = [
        ("filter", "1Ti", "placement.look"), ("prioritize", "1Ti", "placement.look"),
        ("prioritize", "1Gi", "placement.answer"),
    ]  # fmt: skip
    advisor.inventory.put(
        Inventory(tuple(Host(name, "kvm", 1, 16_384.0) for name in NODES)), mode="replace", generation=None
    )
    before = len(advisor.access.audit(limit=1000).items)
    for verb, memory, _ in asked:
        assert client.ask("POST", f"/kubernetes/{verb}", json=pod(memory)).status_code == 200
    found = [one.operation for one in advisor.access.audit(limit=1000).items][::-1]
    assert found[before:] == [operation for *_, operation in asked]
