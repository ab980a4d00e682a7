"""KubeVirt's real virt-controller on the real control plane, and what stands in for the rest of KubeVirt."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import requests

from tests.kubernetes.build_kubevirt import CONTROLLER, DEFINITIONS
from tests.kubernetes.build_kubevirt import NAMESPACE as KUBEVIRT
from tests.kubernetes.control_plane import NAMESPACE, PATCH, ControlPlane, Row
from tests.kubernetes.lab import wait
from tests.kubernetes.moving import GROUP, GUESTS, MIGRATIONS, collection, within
from tests.servers.running import Running, free_port

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_MERGE = {"Content-Type": "application/merge-patch+json"}
_FINALIZER = "kubevirt.io/migrationJobFinalize"
# What virt-handler reports of a node, and what a kubelet does: launchers ask for space on its disk.
_DEVICES = {f"devices.kubevirt.io/{name}": "1k" for name in ("kvm", "tun", "vhost-net")} | {
    "ephemeral-storage": "100Gi"
}
_LABELS = {
    "kubevirt.io/schedulable": "true", "kubernetes.io/arch": "amd64", "machine-type.node.kubevirt.io/q35": "true",
}  # fmt: skip


def offer_devices(cluster: ControlPlane, nodes: list[str]) -> None:
    """What virt-handler's device plugin and labeller tell of a node."""
    labels, size = {"metadata": {"labels": _LABELS}}, {"status": {"capacity": _DEVICES, "allocatable": _DEVICES}}
    for name in nodes:
        cluster.call("PATCH", f"/api/v1/nodes/{name}", data=json.dumps(labels), headers=PATCH)
        cluster.call("PATCH", f"/api/v1/nodes/{name}/status", data=json.dumps(size), headers=PATCH)


@contextmanager
def virt_controller(cluster: ControlPlane, folder: Path) -> Iterator[Running]:
    """All of KubeVirt's kinds, and virt-controller with the rights that virt-operator gives it; gone afterwards."""
    rows: list[Row] = json.loads(DEFINITIONS.read_text())
    kinds = [row for row in rows if row["kind"] == "CustomResourceDefinition"]
    for row in kinds:
        # one of the same name may be on its way out
        wait(partial(_made, cluster, _DEFINITIONS, row))
    for row in kinds:
        wait(partial(_established, cluster, row["metadata"]["name"]))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KUBEVIRT}}
    cluster.try_call("POST", "/api/v1/namespaces", json=namespace)
    for row in rows:
        if row not in kinds:
            cluster.try_call("POST", collection(cluster, row), json=row)
    own = {"apiVersion": f"{GROUP}/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt", "namespace": KUBEVIRT}}
    cluster.call("POST", f"/apis/{GROUP}/v1/namespaces/{KUBEVIRT}/kubevirts", json={**own, "spec": {}})
    path = f"/api/v1/namespaces/{KUBEVIRT}/serviceaccounts/kubevirt-controller/token"
    reported = cluster.call("POST", path, json={"spec": {"expirationSeconds": 3600}})
    config, port = cluster.kubeconfig(reported["status"]["token"], "virt-controller.kubeconfig"), free_port()
    certificate = cluster.certificates / "apiserver.crt"  # its own server takes any
    argv = [
        str(CONTROLLER), "--kubeconfig", str(config), "--listen", "127.0.0.1", "--port", str(port),
        "--launcher-image", "none", "--prom-cert-file", str(certificate),
        "--prom-key-file", str(certificate.with_suffix(".key")),
    ]  # fmt: skip
    made = Running(argv, lambda: _leads(port), folder / "virt-controller.log", drop=False)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        for plural in (MIGRATIONS, GUESTS):
            for one in cluster.call("GET", within(plural))["items"]:
                _let_go(cluster, within(plural, one["metadata"]["name"]))
        _let_go(cluster, f"/apis/{GROUP}/v1/namespaces/{KUBEVIRT}/kubevirts/kubevirt")
        for row in kinds:
            cluster.call("DELETE", f"{_DEFINITIONS}/{row['metadata']['name']}")
        wait(
            lambda: not any(one["spec"]["group"].endswith(GROUP) for one in cluster.call("GET", _DEFINITIONS)["items"])
        )


def _made(cluster: ControlPlane, path: str, row: Row) -> bool:
    return "reason" not in cluster.try_call("POST", path, json=row)


def _established(cluster: ControlPlane, name: str) -> bool:
    reported = cluster.call("GET", f"{_DEFINITIONS}/{name}").get("status", {}).get("conditions", ())
    return any(one["type"] == "Established" and one["status"] == "True" for one in reported)


def _leads(port: int) -> bool:
    """Whether it is the leader and its caches are filled."""
    try:
        reported = requests.get(f"https://127.0.0.1:{port}/leader", verify=False, timeout=5).json()
    except (requests.RequestException, ValueError):
        return False
    return bool(reported["apiserver"]["leader"] == "true")


def _let_go(cluster: ControlPlane, path: str) -> None:
    """Delete what only the program that is stopped would let go."""
    cluster.try_call("DELETE", path)
    cluster.try_call("PATCH", path, data=json.dumps({"metadata": {"finalizers": None}}), headers=_MERGE)


class StandIn(threading.Thread):
    """Stands in for virt-api's webhook, and for the kubelets, virt-handlers and launchers of all nodes.

    A new migration gets the finalizer that keeps it until virt-controller has called it off. A bound launcher runs and
    is ready. A guest runs where its launcher does and can move live. A guest that moves is prepared at its target and
    then moves for as long as `may_arrive` is not set. The fields and their order are those of KubeVirt 1.6:
    pkg/virt-api/webhooks/mutating-webhook/mutators/migration-create-mutator.go, and pkg/virt-handler's vm.go,
    migration-source.go and migration-target.go. `wrong` has what the API refused.
    """

    def __init__(self, cluster: ControlPlane) -> None:
        super().__init__(daemon=True)
        self.may_arrive = threading.Event()
        self.wrong: list[str] = []
        self._cluster = cluster
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(0.2):
            for one in self._cluster.call("GET", within(MIGRATIONS))["items"]:
                self._virt_api(one)
            guests = {one["metadata"]["uid"]: one for one in self._cluster.call("GET", within(GUESTS))["items"]}
            for one in self._cluster.pods():
                self._kubelet(one, guests.get(one["metadata"]["labels"].get("kubevirt.io/created-by", "")))
            for one in guests.values():
                if self._virt_handler(one):
                    # refused where virt-controller has changed it meanwhile: looked at anew the next time
                    reported = self._cluster.try_call("PUT", within(GUESTS, one["metadata"]["name"]), json=one)
                    if reported.get("reason") not in {None, "Conflict"}:
                        self.wrong.append(str(reported))

    def stop(self) -> None:
        self._done.set()
        self.join(60)

    def _virt_api(self, migration: Row) -> None:
        metadata = migration["metadata"]
        over = migration.get("status", {}).get("phase") in {"Succeeded", "Failed"}  # virt-controller takes it off
        if over or "deletionTimestamp" in metadata or _FINALIZER in metadata.get("finalizers", ()):
            return
        labels = {"kubevirt.io/vmi-name": migration["spec"]["vmiName"]}
        body = {"metadata": {"finalizers": [_FINALIZER], "labels": labels}}
        self._cluster.try_call("PATCH", within(MIGRATIONS, metadata["name"]), data=json.dumps(body), headers=_MERGE)

    def _kubelet(self, pod: Row, guest: Row | None) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
        node, status = pod["spec"].get("nodeName"), pod["status"]
        if pod["metadata"].get("deletionTimestamp"):
            self._cluster.try_call("DELETE", path, params={"gracePeriodSeconds": "0"})
        elif node and guest and status["phase"] == "Pending":
            self._report(path, pod, "Running", ready=True)
        elif guest and status["phase"] == "Running" and _left(guest, str(node)):
            self._report(path, pod, "Succeeded", ready=False)  # a launcher ends with its guest

    def _report(self, path: str, pod: Row, phase: str, *, ready: bool) -> None:
        now, said = _now(), "True" if ready else "False"
        state = {"running": {"startedAt": now}} if ready else {"terminated": {"exitCode": 0, "finishedAt": now}}
        rows = [
            {"name": one["name"], "image": one["image"], "imageID": one["image"], "ready": ready, "restartCount": 0,
             "started": ready, "state": state}
            for one in pod["spec"]["containers"]
        ]  # fmt: skip
        conditions = [
            {"type": name, "status": said, "lastTransitionTime": now} for name in ("Ready", "ContainersReady")
        ]
        status = {"phase": phase, "podIP": "127.0.0.1", "containerStatuses": rows, "conditions": conditions}
        self._cluster.try_call("PATCH", f"{path}/status", data=json.dumps({"status": status}), headers=PATCH)

    def _virt_handler(self, guest: Row) -> bool:
        """Take the next step in this row; whether there was one."""
        status, labels = guest.get("status") or {}, guest["metadata"].setdefault("labels", {})
        if status.get("phase") == "Scheduled":
            live = {"type": "LiveMigratable", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
            status["conditions"] = [*status.get("conditions", ()), live]
            status |= {"phase": "Running", "migrationMethod": "LiveMigration", "selinuxContext": "none"}
            return True
        moves = status.get("migrationState") or {}
        target = labels.get("kubevirt.io/migrationTargetNodeName")
        if status.get("phase") != "Running" or not target or moves.get("targetNode") != target:
            return False
        if moves.get("completed"):
            del labels["kubevirt.io/migrationTargetNodeName"]
        elif not moves.get("targetNodeAddress"):
            moves |= {"targetNodeAddress": "127.0.0.1", "targetDirectMigrationNodePorts": {"49152": 49152}}
        elif not moves.get("startTimestamp"):
            moves |= {"startTimestamp": _now(), "mode": "PreCopy"}
        elif not self.may_arrive.is_set():
            return False
        elif not moves.get("targetNodeDomainReadyTimestamp"):
            moves |= {"targetNodeDomainDetected": True, "targetNodeDomainReadyTimestamp": _now()}
        elif not moves.get("endTimestamp"):
            moves["endTimestamp"] = _now()
            labels["kubevirt.io/nodeName"] = status["nodeName"] = target
        else:
            moves["completed"] = True
        return True


def _left(guest: Row, node: str) -> bool:
    """Whether the guest has moved away from there."""
    status = guest.get("status") or {}
    moves = status.get("migrationState") or {}
    return bool(moves.get("completed") and moves.get("sourceNode") == node and status.get("nodeName") != node)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
