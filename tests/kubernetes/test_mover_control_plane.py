"""The chart and `cotenant migrate` against a real kube-apiserver: what is installed, and what the mover may do."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.kubernetes.control_plane import ControlPlane, Row
from tests.kubernetes.lab import Lab, pod, wait
from tests.kubernetes.moving import GROUP, GUESTS, MIGRATIONS, collection, mover, rendered, within

_KINDS = {GUESTS: "VirtualMachineInstance", MIGRATIONS: "VirtualMachineInstanceMigration"}


def test_the_api_takes_everything_that_the_chart_makes(lab: Lab) -> None:
    """All values that are off by default are on; `dryRun` goes through admission and stores nothing."""
    rows = rendered("agent.enabled=true", "mover.enabled=true", "mover.apply=true", "mover.evict=true")
    for row in rows:
        there = {"AlreadyExists"} if row["kind"] in {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"} else set()
        path = collection(lab.cluster, row)
        answer = lab.cluster.try_call("POST", path, params={"dryRun": "All", "fieldValidation": "Strict"}, json=row)
        assert answer.get("reason") in there | {None}, f"{row['kind']} {row['metadata']['name']}: {answer}"
    assert {"DaemonSet", "Deployment", "Secret", "ConfigMap"} <= {row["kind"] for row in rows}


@pytest.fixture
def kubevirt(lab: Lab) -> Iterator[ControlPlane]:
    """The two kinds of KubeVirt that are read, as definitions that take every field."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for plural, kind in _KINDS.items():
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"plural": plural, "kind": kind, "singular": kind.lower()}
        spec = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]}
        body = {"metadata": {"name": f"{plural}.{GROUP}"}, "spec": spec}
        lab.cluster.try_call("POST", path, json=body)
    wait(lambda: all("items" in lab.cluster.try_call("GET", f"/apis/{GROUP}/v1/{plural}") for plural in _KINDS))
    yield lab.cluster
    for plural in _KINDS:
        lab.cluster.call("DELETE", f"{path}/{plural}.{GROUP}")


def change(cluster: ControlPlane, path: str, **status: Any) -> None:
    merge = {"Content-Type": "application/merge-patch+json"}
    cluster.call("PATCH", path, data=json.dumps({"status": status}), headers=merge)


@contextmanager
def virt_controller(cluster: ControlPlane) -> Iterator[list[Row]]:
    """Does at once what a migration asks for; yields those that it saw."""
    seen: list[Row] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.2):
            for one in cluster.call("GET", within(MIGRATIONS))["items"]:
                if "status" not in one:
                    seen.append(one)
                    node = one["spec"]["addedNodeSelector"]["kubernetes.io/hostname"]
                    change(cluster, within(GUESTS, one["spec"]["vmiName"]), nodeName=node)
                    change(cluster, within(MIGRATIONS, one["metadata"]["name"]), phase="Succeeded")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join(30)


def test_guests_move_to_the_nodes_of_the_plan_with_the_rights_of_the_chart(lab: Lab, kubevirt: ControlPlane) -> None:
    """Three guests want 40 CPUs each of a node that has 64, beside an empty one."""
    names = lab.fresh(2)
    for number in range(3):
        body = {"apiVersion": f"{GROUP}/v1", "kind": _KINDS[GUESTS], "metadata": {"name": f"vm-{number}"}, "spec": {}}
        uid = kubevirt.call("POST", within(GUESTS), json=body)["metadata"]["uid"]
        live = [{"type": "LiveMigratable", "status": "True"}]
        change(kubevirt, within(GUESTS, f"vm-{number}"), phase="Running", nodeName=names[0], conditions=live)
        labels = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": uid}
        kubevirt.create([pod(f"virt-launcher-{number}", "compute", nodeName=names[0], labels=labels)])
    wait(lambda: sum("guest" in one["labels"] for one in lab.instances().values()) == 3, 120)
    looked = mover(lab)
    assert looked.returncode == 0, looked.stderr
    assert json.loads(looked.stdout)["moves"]
    assert kubevirt.call("GET", within(MIGRATIONS))["items"] == []
    with virt_controller(kubevirt) as seen:
        done = mover(lab, "--apply")
    assert done.returncode == 0, done.stdout + done.stderr
    moves = json.loads(done.stdout)["moves"]
    assert [one["became"] for one in moves] == ["done"] * len(moves)
    assert {one["to"] for one in moves} == {names[1]}
    assert len(seen) == len(moves)
    time.sleep(1)
    there = {one["status"]["nodeName"] for one in kubevirt.call("GET", within(GUESTS))["items"]}
    assert there == set(names)
