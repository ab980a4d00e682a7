"""Kubernetes' extender: pods in a row spread, a pod that is tried again holds nothing more, any pod has an answer."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as bounds
from hypothesis import strategies as st

from advisor.domain import Host, Inventory, PlacementRequest, WorkloadProfile
from advisor.errors import InvalidInput, StorageUnavailable
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from api.schedulers.kubernetes import _quantity
from tests.api.api_client import Bent, Client, failing

FEW = bounds(max_examples=25, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
NODES = tuple(f"n{number:02}" for number in range(12))
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
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


def test_pods_in_quick_succession_spread_as_if_placed_one_by_one(equal: Advisor, settings: Settings) -> None:
    client = Client(create_app(equal, settings))
    first = [scheduled(client, f"pod-{number}") for number in range(12)]
    assert sorted(first) == list(NODES)
    then = [scheduled(client, f"pod-{number}") for number in range(12, 18)]
    assert max(Counter(then).values()) == 1


def test_without_reserving_they_all_go_to_one(equal: Advisor, settings: Settings) -> None:
    """What the test above would not see if answers did not count in."""
    bent = Bent(equal, placements={"in_turn": lambda asked, **_: equal.placements.in_turn(asked, hold=False)})
    client = Client(create_app(bent, settings))  # type: ignore[arg-type]
    assert len({scheduled(client, f"pod-{number}") for number in range(6)}) == 1


def test_a_pod_that_is_tried_again_holds_one_node(equal: Advisor, settings: Settings) -> None:
    client = Client(create_app(equal, settings))
    again = {scheduled(client, "pod-1") for _ in range(4)}
    assert len(again) == 1
    others = {scheduled(client, f"other-{number}") for number in range(11)}
    assert again | others == set(NODES)
    assert not again & others


def test_a_filter_keeps_nothing(equal: Advisor, settings: Settings) -> None:
    client = Client(create_app(equal, settings))
    before = equal.cloud.ready()
    client.ask("POST", "/kubernetes/filter", json={"Pod": pod("p", workload="busy"), "NodeNames": list(NODES)})
    assert equal.outcomes.page().items == ()
    assert equal.cloud.ready()["generation"] == before["generation"]


def test_a_prioritised_pod_is_stored_once_with_one_candidate(equal: Advisor, settings: Settings) -> None:
    client = Client(create_app(equal, settings))
    scheduled(client, "pod-1")
    stored = equal.outcomes.page().items[0].recommendation
    assert (stored.request.instance.id, len(stored.candidates)) == ("pod-1", 1)


def test_the_size_is_what_kubernetes_counts_a_pod_with(equal: Advisor, settings: Settings) -> None:
    """The containers together, or one that runs before them alone, and the overhead."""
    asked: list[PlacementRequest] = []

    def in_turn(some: Sequence[PlacementRequest], **_: object) -> object:
        asked.extend(some)
        return equal.placements.in_turn(some, hold=False)

    spied = Bent(equal, placements={"in_turn": in_turn})
    body = pod("p")
    body["spec"] = {
        "containers": [{"resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}, {"resources": None},
                       {"resources": {"requests": {"cpu": "0.7", "memory": "512Mi"}}}],
        "initContainers": [{"resources": {"requests": {"cpu": "1", "memory": "3Gi"}}}],
        "overhead": {"cpu": "250m", "memory": "128Mi"},
    }  # fmt: skip
    body["metadata"]["labels"] = {"kubevirt.io": "virt-launcher"}
    client = Client(create_app(spied, settings))  # type: ignore[arg-type]
    assert client.ask("POST", "/kubernetes/filter", json={"Pod": body, "NodeNames": ["n00"]}).status_code == 200
    assert (asked[0].instance.vcpus, asked[0].instance.memory_mb) == (3, 3 * 1024 + 128)


@pytest.mark.parametrize(
    ("text", "value"),
    [("500m", 0.5), ("2", 2.0), ("1.5", 1.5), (".5", 0.5), ("4Gi", 4 * 2.0**30), ("1M", 1e6), ("1e3", 1000.0),
     ("12E-1", 1.2), ("1k", 1000.0), ("100n", 1e-7), ("1Ki", 1024.0), (2, 2.0), (0.5, 0.5), (None, 0.0)],
)  # fmt: skip
def test_quantities_are_read_as_kubernetes_writes_them(text: Any, value: float) -> None:
    assert _quantity(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "4GiB", "1 Gi", "K", "nan", "inf", "1e", "0x1", "1e999", "١", "1K"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="no quantity"):
        _quantity(text)


def test_storage_that_is_away_is_no_decision(advisor: Advisor, settings: Settings) -> None:
    away = Bent(advisor, placements={"in_turn": failing(StorageUnavailable("the database does not answer"))})
    client = Client(create_app(away, settings))  # type: ignore[arg-type]
    body = {"Pod": pod("p", workload="batch"), "NodeNames": ["h1"]}
    assert client.ask("POST", "/kubernetes/filter", json=body).status_code == 503


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
            assert said["Error"] or {*said["NodeNames"], *said["FailedNodes"]} == set(nodes)
        elif answer.status_code == 200:
            assert {row["Host"]: 0 <= row["Score"] <= 10 for row in answer.json()} == dict.fromkeys(nodes, True)

    ask()


@pytest.mark.parametrize(
    "path", ["/kubernetes/filter", "/kubernetes/prioritize", "/opennebula/place", "/opennebula/optimize",
             "/scheduler/nova/external"],
)  # fmt: skip
def test_no_json_breaks_a_scheduler_s_route(client: Client, path: str) -> None:
    keys = st.sampled_from(
        ["Pod", "NodeNames", "Nodes", "VMS", "LIMIT", "spec", "hosts", "options", "items", "metadata"]
    )
    bodies = st.dictionaries(keys, ANYTHING, max_size=4) | ANYTHING

    @FEW
    @given(bodies)
    def ask(body: Any) -> None:
        raw = json.dumps(body).encode()  # NaN and Infinity as Python's parser lets them in
        answer = client.ask("POST", path, content=raw, headers={"Content-Type": "application/json"})
        assert answer.status_code in {200, 400, 422}, answer.text

    ask()


def test_nodes_with_numbers_that_json_lacks_are_refused(client: Client) -> None:
    raw = b'{"Pod": {"metadata": {}}, "Nodes": {"items": [{"metadata": {"name": "h1"}, "x": NaN}]}}'
    answer = client.ask("POST", "/kubernetes/filter", content=raw, headers={"Content-Type": "application/json"})
    assert answer.status_code in {400, 422}
