"""What the API says of a node, a pod and a VirtualMachineInstance, as little of it as is kept; no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.domain import pods
from advisor.domain.pods import Json
from advisor.inventories.reading import Facts
from advisor.inventories.values import as_cpus, as_number, clean_labels, whole_cpus
from profiler.names import instance_id

NAME = "kubernetes"
OWN_LABELS = frozenset(
    {"source", "render", "zone", "disabled_reason", "node.", "taint.", "resource.",
     "name", "guest", "project", "class", "image", "flavor_name", "pod", "moving"}
)  # fmt: skip
KVM = "devices.kubevirt.io/kvm"  # what KubeVirt's device plugin offers on nodes that can run guests
# Requests are what kube-scheduler counts; vCPUs are them rounded up, so they are not counted against the node's CPUs.
OVERCOMMIT = 1000.0
_ZONE = "topology.kubernetes.io/zone"
_PLAIN = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})
_NODE_ID = re.compile(r"[A-Za-z0-9._:-]{1,255}\Z")
_OVER = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod that is bound: `facts` without id and host, beside what it `said` itself. `guest` is the UID of the guest
    that it runs, `target` whether that one moves there."""

    uid: str
    node: str
    guest: str | None
    target: bool
    created: str
    name: str | None
    facts: Facts
    said: Facts
    wrong: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """What is reported together: a guest with all of its pods, else the pod."""
        return self.guest or self.uid


@dataclass(frozen=True, slots=True)
class GuestSeen:
    """A VirtualMachineInstance: where it runs, and what it has; None and empty where it does not tell."""

    uid: str
    node: str | None
    facts: Facts


def node_seen(row: Json) -> Facts:
    """A node as a host; ValueError where it does not tell yet what it has."""
    metadata, spec, status = (row.get(part) or {} for part in ("metadata", "spec", "status"))
    name, offered = str(metadata["name"]), status.get("allocatable") or status.get("capacity") or {}
    if not _NODE_ID.match(name):
        raise ValueError(f"node {name[:60]!r} has a name that no host can have")
    labels = metadata.get("labels") or {}
    taints = {
        f"taint.{taint.get('key')}": f"{taint.get('value') or ''}:{taint.get('effect')}"
        for taint in spec.get("taints") or ()
    }
    extended = {key: value for key, value in offered.items() if key not in _PLAIN and not key.startswith("hugepages-")}
    reason = _away(spec, status)
    if not status.get("allocatable"):  # of which huge pages are no part, as they are of the capacity
        huge = sum(pods.quantity(value) for key, value in offered.items() if key.startswith("hugepages-"))
        offered = {**offered, "memory": pods.quantity(offered.get("memory")) - huge}
    cpus = pods.quantity((status.get("capacity") or offered).get("cpu"))
    return {
        "id": name,
        "kind": "kvm" if pods.quantity(offered.get(KVM)) else "lxc",
        "pcpus": whole_cpus(cpus, f"node {name}'s cpu"),
        "memory_mb": as_number(pods.quantity(offered.get("memory")) / 2**20, f"node {name}'s memory", least=1.0),
        "enabled": not reason,
        "cpu_overcommit": OVERCOMMIT,
        "labels": clean_labels(
            {
                "source": NAME,
                "render": "kubernetes",
                "zone": labels.get(_ZONE),
                "disabled_reason": reason,
                **{f"node.{key}": value for key, value in labels.items()},
                **taints,
                **{f"resource.{key}": value for key, value in extended.items()},
            }
        ),
    }


def _away(spec: Json, status: Json) -> str:
    """Why no pods are put there, empty = they may be."""
    if spec.get("unschedulable"):
        return "cordoned"
    conditions = status.get("conditions") or ()
    ready = [condition.get("status") for condition in conditions if condition.get("type") == "Ready"]
    return "not ready" if ready and ready[0] != "True" else ""


def pod_seen(row: Json) -> PodSeen | None:
    """A pod as it counts; None where it is on no node, or over. ValueError where it makes no sense."""
    metadata, spec = row.get("metadata") or {}, row.get("spec") or {}
    node = spec.get("nodeName")
    if not node or (row.get("status") or {}).get("phase") in _OVER:
        return None
    said, guest, uid = pods.said(row), pods.guest(row), str(metadata["uid"])
    labels = {"source": NAME, "name": f"{metadata.get('namespace')}/{metadata['name']}", **pods.class_labels(row)}
    wrong = tuple(f"pod {metadata.get('namespace')}/{metadata['name']}: {sentence}" for sentence in said.wrong)
    return PodSeen(
        uid=uid,
        node=str(node),
        guest=guest,
        target=pods.is_migration_target(row),
        created=str(metadata.get("creationTimestamp") or ""),
        name=said.name or _static_id(row),
        facts={**pods.size(row), "labels": clean_labels(labels)},
        said=said.fields,
        wrong=wrong,
    )


def _static_id(row: Json) -> str | None:
    """The id under which an agent sees a static pod."""
    uid = pods.static_uid(row)
    return None if uid is None else instance_id(uid)


def guest_seen(row: Json) -> GuestSeen:
    """A VirtualMachineInstance, kubevirt.io/v1; ValueError where it makes no sense."""
    metadata, spec, status = (row.get(part) or {} for part in ("metadata", "spec", "status"))
    domain = spec.get("domain") or {}
    name = f"{metadata.get('namespace')}/{metadata['name']}"
    facts: dict[str, Any] = {"labels": clean_labels({"name": name, "guest": name})}
    cpus = _cores(status.get("currentCPUTopology")) or _cores(domain.get("cpu"))
    if cpus:
        facts["vcpus"] = as_cpus(cpus, f"guest {metadata['name']}'s cpu")
    return GuestSeen(str(metadata["uid"]), status.get("nodeName") or None, facts)


def _cores(topology: Mapping[str, Any] | None) -> int:
    if not topology:
        return 0
    return int(topology.get("sockets") or 1) * int(topology.get("cores") or 1) * int(topology.get("threads") or 1)
