"""Guests of KubeVirt move to the node that was named, one at a time, where the cluster allows it; pods leave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from cotenant_kubernetes import mover as kubernetes
from cotenant_kubernetes.calls import ClusterAccount
from cotenant_kubernetes.mover import KubernetesMover, budget_forbids, guest_stays, pod_stays, selects
from cotenant_kubernetes.tests.kubernetes_server import TOKEN, ApiServer, Row, guest, launcher, node, pod, serving

from advisor.changes.movers import MoveOutcome, SystemFailed
from advisor.domain import Host, Instance

N1, N2 = (Host(name, "kvm", 64, 1e6, labels={"node.kubernetes.io/hostname": f"{name}.lan"}) for name in ("n1", "n2"))
VM = Instance("g1", 4, host="n1", labels={"source": "kubernetes", "guest": "prod/vm-g1"})
POD = Instance("uid-web", 1, host="n1", labels={"source": "kubernetes", "name": "prod/web"})
OWNED = [{"kind": "ReplicaSet", "name": "web", "controller": True}]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "POLL_S", 0.01)
    monkeypatch.setattr(kubernetes, "HINT_S", 0.01)


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with serving() as made:
        made.absent = set()
        for name in ("n1", "n2"):
            made.put("nodes", node(name))
        made.put("guests", movable("g1", "n1"))
        made.put("pods", launcher("virt-launcher-1", "g1", "n1"))
        made.put("pods", pod("web", "n1", ownerReferences=OWNED))
        made.made = lambda row: ends(made, row, "Succeeded")
        yield made


def movable(uid: str, on: str, status: str = "True", **more: Any) -> Row:
    row = guest(uid, on)
    row["status"]["conditions"] = [{"type": "LiveMigratable", "status": status, "message": "its disk is local"}]
    row["status"] |= more
    return row


def ends(api: ApiServer, migration: Row, phase: str, **more: Any) -> None:
    """What KubeVirt's controller does: the guest is on the node of the selector, and the migration says so."""
    if phase == "Succeeded":
        there = migration["spec"]["addedNodeSelector"]["kubernetes.io/hostname"].removesuffix(".lan")
        api.put("guests", movable("g1", there))
    api.put("migrations", {**migration, "status": {"phase": phase, **more}})


def mover(api: ApiServer, **more: Any) -> KubernetesMover:
    return KubernetesMover(asking=lambda: ClusterAccount(api.url, TOKEN), **more)


def move(api: ApiServer, instance: Instance = VM, **more: Any) -> MoveOutcome:
    return mover(api, **more).move(instance, N1, N2, "plan-1", threading.Event())


def changes(api: ApiServer) -> list[tuple[str, str]]:
    return [(method, path) for method, path, _ in api.sent]


def test_a_guest_moves_to_the_node_of_the_plan(api: ApiServer) -> None:
    assert move(api) == MoveOutcome("done", "it is on n2")
    ((method, path, body),) = api.sent
    assert (method, path) == ("POST", "/apis/kubevirt.io/v1/namespaces/prod/virtualmachineinstancemigrations")
    assert body["spec"] == {"vmiName": "vm-g1", "addedNodeSelector": {"kubernetes.io/hostname": "n2.lan"}}
    assert body["metadata"]["annotations"] == {"cotenant.io/plan": "plan-1"}


def test_a_move_whose_answer_was_lost_is_not_asked_for_twice(api: ApiServer) -> None:
    made = dict(mover(api).request(VM, N2, "plan-1"))
    api.put("migrations", made)
    ends(api, made, "Succeeded")
    api.put("guests", movable("g1", "n1"))  # as our list still has it
    assert move(api).became == "changed"
    assert len(api.objects["migrations"]) == 1


def test_a_guest_that_was_moved_meanwhile_stays_where_it_is(api: ApiServer) -> None:
    api.put("guests", movable("g1", "n3"))
    assert move(api) == MoveOutcome("changed", "it is on n3 and no longer on n1")
    api.delete("guests", "prod/vm-g1")
    assert move(api) == MoveOutcome("changed", "it is gone")
    assert api.sent == []


def test_a_budget_that_allows_no_disruption_keeps_a_guest_but_kubevirt_s_own_does_not(api: ApiServer) -> None:
    own = [{"kind": "VirtualMachineInstance", "name": "vm-g1"}]
    selector = {"matchLabels": {"kubevirt.io": "virt-launcher"}}
    budget = {"spec": {"selector": selector}, "status": {"disruptionsAllowed": 0}}
    api.put("budgets", {"metadata": {"name": "kubevirt-1", "namespace": "prod", "ownerReferences": own}, **budget})
    assert move(api).became == "done"
    api.put("guests", movable("g1", "n1"))
    api.put("budgets", {"metadata": {"name": "mine", "namespace": "prod"}, **budget})
    assert move(api) == MoveOutcome("refused", "PodDisruptionBudget mine allows no disruption now")


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (movable("g1", "n1", "False"), "it cannot move live: its disk is local"),
        (movable("g1", "n1", migrationState={"migrationUid": "m"}), "it moves already"),
        (movable("g1", "n1", phase="Scheduling"), "it is scheduling"),
        (guest("g1", "n1"), "KubeVirt has not said yet whether it can move live"),
        (movable("g1", "n1", migrationState={"completed": True}), ""),
    ],
)
def test_why_a_guest_stays(row: Row, why: str) -> None:
    assert guest_stays(row) == why


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, ""),
        ({"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}, "owner DaemonSet"),
        ({"ownerReferences": []}, "owner none"),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, "nothing makes another one"),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}, "forbids it"),
        ({"spec": {"volumes": [{"name": "cache", "emptyDir": {}}]}}, "its volume cache would be lost"),
        ({"spec": {"priority": 2_000_000_000}}, "critical"),
        ({"deletionTimestamp": "2026-11-26T10:00:00Z"}, "it goes already"),
    ],
)
def test_why_a_pod_stays(more: dict[str, Any], why: str) -> None:
    found = pod_stays(pod("web", "n1", **{"ownerReferences": OWNED, **more}))
    assert (why in found) if why else found == ""


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "db"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}]}, True),
    ],
)
def test_selectors_take_what_kubernetes_takes(selector: Row | None, taken: bool) -> None:
    assert selects(selector, {"app": "web"}) is taken
    budgets = [{"metadata": {"name": "b"}, "spec": {"selector": selector}, "status": {"disruptionsAllowed": 0}}]
    assert bool(budget_forbids(budgets, [{"metadata": {"labels": {"app": "web"}}}])) is taken


def test_a_cordoned_target_takes_no_instance(api: ApiServer) -> None:
    api.put("nodes", node("n2", unschedulable=True))
    assert move(api) == MoveOutcome("changed", "n2 accepts no pods: it is cordoned")
    assert api.sent == []


def test_a_failed_migration_says_why(api: ApiServer) -> None:
    api.made = lambda row: ends(api, row, "Failed", migrationState={"failureReason": "target ran out of memory"})
    assert move(api) == MoveOutcome("failed", "target ran out of memory")


def test_a_migration_that_does_not_end_is_called_off(api: ApiServer) -> None:
    api.made = lambda _: None
    assert move(api, patience_s=0.2).became == "failed"
    assert api.objects["migrations"] == {}
    assert changes(api)[-1][0] == "DELETE"


def test_a_migration_goes_on_when_the_command_is_stopped(api: ApiServer) -> None:
    api.made = lambda _: None
    stop = threading.Event()
    stop.set()
    outcome = mover(api).move(VM, N1, N2, "plan-1", stop)
    assert outcome.became == "left"
    assert len(api.objects["migrations"]) == 1


def test_what_the_role_lacks_is_said(api: ApiServer) -> None:
    api.refused = {"migrations"}
    outcome = move(api)
    assert outcome.became == "failed"
    assert "cannot create resource" in outcome.sentence


def test_who_may_move_and_what_moves_already(api: ApiServer) -> None:
    elsewhere = Instance("other", 1, host="h9", labels={"source": "openstack"})
    here = mover(api, evict=True)
    assert [(one.instance, one.why_not) for one in here.standings((VM, POD, elsewhere))] == [
        ("g1", ""),
        ("uid-web", ""),
    ]
    others = mover(api, namespaces=("shop",)).standings((VM, POD))
    assert {one.why_not for one in others} == {"its namespace was not named"}
    assert mover(api).standings((POD,))[0].why_not.startswith("pods are evicted only")
    assert here.busy() == ""
    api.put("migrations", {"metadata": {"name": "m", "namespace": "prod"}, "status": {"phase": "Running"}})
    assert here.busy() == "1 guests move already, prod/m among them"


def test_a_cluster_without_kubevirt_has_no_guests_and_one_that_is_away_is_said(api: ApiServer) -> None:
    api.absent = {"guests", "migrations"}
    assert mover(api).busy() == ""
    assert mover(api).standings((VM,))[0].why_not == "it is gone"
    with pytest.raises(SystemFailed, match="Kubernetes cannot be asked"):
        KubernetesMover(asking=lambda: ClusterAccount(api.url, "wrong")).busy()


def test_a_pod_is_evicted_while_its_node_asks_to_be_left_alone(api: ApiServer) -> None:
    assert move(api, POD, evict=True) == MoveOutcome("done", "it left n1; what owns it makes another one")
    assert "prod/web" not in api.objects["pods"]
    hint, eviction, taken_back = (body for _, _, body in api.sent)
    assert hint["spec"]["taints"] == [{"key": "cotenant.io/relieved", "effect": "PreferNoSchedule"}]
    assert eviction["deleteOptions"]["preconditions"] == {"uid": "uid-web"}
    assert taken_back["spec"]["taints"] == [{"key": "cotenant.io/relieved", "$patch": "delete"}]


def test_a_budget_refuses_an_eviction_and_the_node_s_hint_goes(api: ApiServer) -> None:
    api.evicts = lambda _: False
    outcome = move(api, POD, evict=True)
    assert outcome.became == "refused"
    assert changes(api)[-1] == ("PATCH", "/api/v1/nodes/n1")
    assert "prod/web" in api.objects["pods"]


def test_another_pod_of_the_same_name_is_not_evicted(api: ApiServer) -> None:
    api.put("pods", {**pod("web", "n1", ownerReferences=OWNED, uid="uid-new")})
    assert move(api, POD, evict=True) == MoveOutcome("changed", "another pod has its name now")
