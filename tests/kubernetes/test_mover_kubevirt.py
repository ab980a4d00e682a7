"""`cotenant migrate kubernetes` with KubeVirt's real virt-controller; the rest of KubeVirt is stood in for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kubernetes.build_kubevirt import CONTROLLER, DEFINITIONS, VERSION
from tests.kubernetes.control_plane import PATCH, ControlPlane, Row
from tests.kubernetes.kubevirt_controller import StandIn, offer_devices, virt_controller
from tests.kubernetes.lab import Lab, wait
from tests.kubernetes.moving import GROUP, GUESTS, MIGRATIONS, mover, within


@pytest.fixture
def rest(lab: Lab, tmp_path: Path) -> Iterator[StandIn]:
    """Two nodes that run guests; virt-controller runs, and the second node is cordoned."""
    if not (CONTROLLER.is_file() and DEFINITIONS.is_file()):
        pytest.skip(f"there is no virt-controller {VERSION} of KubeVirt: make kubevirt builds it with Go")
    names = lab.fresh(2)
    offer_devices(lab.cluster, names)
    cordon(lab.cluster, names[1], True)
    with virt_controller(lab.cluster, tmp_path):
        made = StandIn(lab.cluster)
        made.start()
        try:
            yield made
        finally:
            made.stop()


def cordon(cluster: ControlPlane, node: str, closed: bool) -> None:
    body = {"spec": {"unschedulable": closed}}
    cluster.call("PATCH", f"/api/v1/nodes/{node}", data=json.dumps(body), headers=PATCH)


def start(lab: Lab, guests: int) -> None:
    """So many that want 40 CPUs each, all on the only node that is open; then the other one is opened."""
    notes = {"cotenant.io/workload": "compute", "cotenant.io/vcpus": "40"}
    domain = {"cpu": {"cores": 40}, "machine": {"type": "q35"}, "devices": {}, "memory": {"guest": "1Gi"},
              "resources": {"requests": {"memory": "1Gi"}}}  # fmt: skip
    spec = {"architecture": "amd64", "terminationGracePeriodSeconds": 0, "domain": domain}
    for number in range(guests):
        metadata = {"name": f"vm-{number}", "annotations": notes}
        body = {"apiVersion": f"{GROUP}/v1", "kind": "VirtualMachineInstance", "metadata": metadata, "spec": spec}
        lab.cluster.call("POST", within(GUESTS), json=body)
    wait(lambda: [one.get("status", {}).get("phase") for one in listed(lab, GUESTS)] == ["Running"] * guests, 300)
    cordon(lab.cluster, "node-001", False)
    wait(lambda: sum("guest" in one["labels"] for one in lab.instances().values()) == guests, 120)
    wait(lambda: all(one["enabled"] for one in lab.hosts()))


def listed(lab: Lab, plural: str) -> list[Row]:
    items: list[Row] = lab.cluster.call("GET", within(plural))["items"]
    return items


def launchers(lab: Lab) -> list[Row]:
    """Pods that a migration made."""
    return [one for one in lab.cluster.pods() if "kubevirt.io/migrationJobUID" in one["metadata"]["labels"]]


def rows(lab: Lab) -> list[Row]:
    """What the inventory has; while a guest moves, two rows have its name."""
    items: list[Row] = lab.ask("GET", "/v1/instances")["items"]
    return items


def moving(lab: Lab) -> list[Row]:
    return [one for one in rows(lab) if "moving" in one["labels"]]


def test_kubevirt_moves_a_guest_to_the_node_of_the_plan_and_it_is_on_both_meanwhile(lab: Lab, rest: StandIn) -> None:
    """Three guests want 40 CPUs each of a node that has 64, beside an empty one."""
    start(lab, 3)
    with ThreadPoolExecutor(1) as aside:
        done = aside.submit(mover, lab, "--apply")
        try:
            wait(lambda: moving(lab), 120)
            wait(lambda: [one["status"]["phase"] for one in listed(lab, MIGRATIONS)] == ["Running"])
            (migration,), (target,), (moves,) = listed(lab, MIGRATIONS), launchers(lab), moving(lab)
            assert migration["spec"]["addedNodeSelector"] == {"kubernetes.io/hostname": "node-001"}
            assert target["spec"]["nodeSelector"]["kubernetes.io/hostname"] == "node-001"
            assert target["spec"]["nodeName"] == "node-001"
            assert target["metadata"]["annotations"]["cotenant.io/workload"] == "compute"
            assert moves["host"] == "node-001"
            guest = lab.cluster.call("GET", within(GUESTS, migration["spec"]["vmiName"]))["metadata"]["uid"]
            assert (moves["id"], moves["labels"]["moving"]) == (target["metadata"]["uid"], guest)
            assert [one["host"] for one in rows(lab) if one["id"] == guest] == ["node-000"]
            assert len(rows(lab)) == 4
        finally:
            rest.may_arrive.set()
    reported = done.result()
    assert reported.returncode == 0, reported.stdout + reported.stderr
    planned = json.loads(reported.stdout)["moves"]
    assert [(one["became"], one["to"]) for one in planned] == [("done", "node-001")] * len(planned)
    assert Counter(one["status"]["phase"] for one in listed(lab, MIGRATIONS)) == {"Succeeded": len(planned)}
    wait(lambda: len(rows(lab)) == 3 and not moving(lab))
    there = {one["id"]: one["host"] for one in rows(lab)}
    assert there == {one["metadata"]["uid"]: one["status"]["nodeName"] for one in listed(lab, GUESTS)}
    assert set(there.values()) == {"node-000", "node-001"}
    assert rest.wrong == []


def test_a_move_that_does_not_come_about_is_called_off_and_leaves_nothing(lab: Lab, rest: StandIn) -> None:
    """The target's disk has no room for a launcher, which Cotenant does not count; KubeVirt cleans up."""
    start(lab, 3)
    full = {"status": {"allocatable": {"ephemeral-storage": "1"}}}
    lab.cluster.call("PATCH", "/api/v1/nodes/node-001/status", data=json.dumps(full), headers=PATCH)
    reported = mover(lab, "--apply", "--patience", "10s")
    assert reported.returncode == 1, reported.stdout + reported.stderr
    first = json.loads(reported.stdout)["moves"][0]
    assert (first["became"], "called off" in first["said"]) == ("failed", True), first
    wait(lambda: not launchers(lab) and not listed(lab, MIGRATIONS))
    wait(lambda: set(lab.on().values()) == {"node-000"})
    assert {one["status"]["phase"] for one in listed(lab, GUESTS)} == {"Running"}
    assert rest.wrong == []
