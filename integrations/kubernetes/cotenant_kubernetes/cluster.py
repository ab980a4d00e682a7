"""A cluster as its API last described it: nodes, pods and guests, and what is new to the inventory; no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from advisor.inventories.reading import STOPPED_LOAD, Facts, Part, Reading, as_cpus, as_number, clean_labels, whole_cpus
from cotenant_kubernetes import pods
from cotenant_kubernetes.pods import Json
from profiler.names import instance_id

# What the API says of a node, a pod and a VirtualMachineInstance, as little of it as is kept; no I/O.

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


Kind = Literal["nodes", "pods", "guests"]
KINDS: tuple[Kind, ...] = ("nodes", "pods", "guests")
Seen = Facts | PodSeen | GuestSeen


@dataclass(frozen=True, slots=True)
class Change:
    """One object as it is now, `seen` None = gone, or it counts for nothing; `ended` are ids of which a hold ends."""

    kind: Kind
    key: str
    seen: Seen | None
    sentence: str = ""
    ended: tuple[str, ...] = ()


def change(kind: Kind, row: Mapping[str, Any], *, deleted: bool = False) -> Change:
    """What an object of a list or an event of a watch says; it never raises for what stands there."""
    row = row if isinstance(row, dict) else {}
    metadata = row.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = str(metadata.get("name"))
    key = name if kind == "nodes" else str(metadata.get("uid"))
    if deleted:
        holders = (key, pods.guest(row)) if kind == "pods" else ()
        return Change(kind, key, None, ended=tuple(filter(None, holders)))
    try:
        reads: Any = {"nodes": node_seen, "pods": pod_seen, "guests": guest_seen}[kind]
        return Change(kind, key, reads(row))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        where = f"{kind.removesuffix('s')} {metadata.get('namespace', '')}/{name}"
        return Change(kind, key, None, " ".join(f"{where}: {error}".split())[:300])


@dataclass(slots=True)
class WatchedCluster:
    """Nodes, pods and guests by key; which groups of instances and which nodes changed since the last reading, and
    which ids of the inventory each group had then."""

    nodes: dict[str, Facts] = field(default_factory=dict)
    pods: dict[str, PodSeen] = field(default_factory=dict)
    guests: dict[str, GuestSeen] = field(default_factory=dict)
    _sentences: dict[tuple[Kind, str], tuple[str, ...]] = field(default_factory=dict)
    _members: dict[str, set[str]] = field(default_factory=dict)  # uids of pods by group
    _on: dict[str, set[str]] = field(default_factory=dict)  # uids of pods by node
    _reported: dict[str, frozenset[str]] = field(default_factory=dict)
    _new_nodes: set[str] = field(default_factory=set)
    _left_nodes: set[str] = field(default_factory=set)
    _groups: set[str] = field(default_factory=set)
    _ended: set[str] = field(default_factory=set)
    _said: list[str] = field(default_factory=list)

    def apply(self, update: Change) -> None:
        """Take in what an object is now."""
        self._ended.update(update.ended)
        sentences = update.seen.wrong if isinstance(update.seen, PodSeen) else tuple(filter(None, [update.sentence]))
        if sentences and self._sentences.get((update.kind, update.key)) != sentences:
            self._said += sentences
        _put(self._sentences, (update.kind, update.key), sentences or None)
        if update.sentence:
            return  # what was known of it stays
        if update.kind == "nodes":
            self._node(update.key, update.seen)  # type: ignore[arg-type]
        elif update.kind == "pods":
            self._pod(update.key, update.seen)  # type: ignore[arg-type]
        elif self.guests.get(update.key) != update.seen:
            _put(self.guests, update.key, update.seen)
            self._groups.add(update.key)

    def replace(self, kind: Kind, everything: Iterable[Change]) -> None:
        """Take in a whole list: what it does not have is gone."""
        by_key = {entry.key: entry for entry in everything}
        known = {"nodes": self.nodes.keys(), "pods": self.pods.keys(), "guests": self.guests.keys()}[kind]
        for key in known - by_key.keys():
            self.apply(Change(kind, key, None, ended=(key,) if kind == "pods" else ()))
        for entry in by_key.values():
            self.apply(entry)

    def _node(self, name: str, seen: Facts | None) -> None:
        if self.nodes.get(name) == seen:
            return
        if name not in self.nodes:  # who was there before its node was known could not be shown
            self._groups.update(self.pods[uid].group for uid in self._on.get(name, ()))
        _put(self.nodes, name, seen)
        (self._new_nodes if seen else self._left_nodes).add(name)
        (self._left_nodes if seen else self._new_nodes).discard(name)

    def _pod(self, uid: str, seen: PodSeen | None) -> None:
        former = self.pods.get(uid)
        if former == seen:
            return
        for pod in (former, seen):
            if pod is not None:
                self._groups.add(pod.group)
        if former is not None:
            _leave(self._members, former.group, uid)
            _leave(self._on, former.node, uid)
        _put(self.pods, uid, seen)
        if seen is not None:
            self._members.setdefault(seen.group, set()).add(uid)
            self._on.setdefault(seen.node, set()).add(uid)

    def whole(self, parts: tuple[Part, ...]) -> Reading:
        """Everything; the next news are those after it. What was not read is not gone."""
        every = {part.name for part in parts if part.state == "read"}
        self._groups, self._new_nodes, self._ended = set(), set(), set()
        self._reported = {group: ids for group in self._members if (ids := frozenset(_ids(self._instances(group))))}
        return Reading(
            source=NAME,
            parts=parts,
            hosts=tuple(self.nodes.values()),
            instances=tuple(facts for group in self._members for facts in self._instances(group)),
            every_host="nodes" in every and not any(kind == "nodes" for kind, _ in self._sentences),
            every_instance="pods" in every,
            unclear=frozenset(key for kind, key in self._sentences if kind == "pods" and key not in self.pods),
            own_labels=OWN_LABELS,
            left_out=self._new_sentences(),
        )

    def news(self, parts: tuple[Part, ...], *, heard: bool) -> Reading:
        """What changed since the last reading; `heard` = every node counts as heard of now."""
        instances: list[Facts] = []
        gone: set[str] = set()
        for group in self._groups:
            rows = self._instances(group)
            ids = frozenset(_ids(rows))
            gone |= self._reported.pop(group, frozenset()) - ids
            if ids:
                self._reported[group] = ids
            instances += rows
        gone |= {name for name in self._ended if name not in self._reported.get(name, ())}
        empty = frozenset(name for name in self._left_nodes if not self._on.get(name))
        reading = Reading(
            source=NAME,
            parts=parts,
            hosts=tuple(self.nodes[name] for name in self._new_nodes),
            instances=tuple(instances),
            gone=frozenset(gone) - frozenset(_ids(instances)),
            gone_hosts=empty,
            heard=frozenset(self.nodes) if heard else frozenset(),
            own_labels=OWN_LABELS,
            left_out=self._new_sentences(),
            partial=True,
        )
        self._left_nodes -= empty
        self._groups, self._new_nodes, self._ended = set(), set(), set()
        return reading

    @property
    def has_news(self) -> bool:
        """Whether anything changed since the last reading."""
        emptied = any(not self._on.get(name) for name in self._left_nodes)
        return bool(self._groups or self._new_nodes or self._ended or self._said or emptied)

    def _new_sentences(self) -> tuple[str, ...]:
        sentences, self._said = tuple(self._said), []
        return sentences

    def _instances(self, group: str) -> list[Facts]:
        """A pod as an instance; of a guest the one where it runs, and while it moves another one, which holds its place
        on the other node and does nothing."""
        pods_there = [self.pods[uid] for uid in self._members.get(group, ()) if self.pods[uid].node in self.nodes]
        pods_there.sort(key=lambda pod: (pod.target, pod.created, pod.uid))
        guest = self.guests.get(group)
        main = next(
            (pod for pod in pods_there if guest is not None and pod.node == guest.node),
            pods_there[0] if pods_there else None,
        )
        return [_instance(pod, guest, None if pod is main else group) for pod in pods_there]


def _instance(pod: PodSeen, guest: GuestSeen | None, moving: str | None) -> Facts:
    name = pod.uid if moving else pod.name or pod.group
    of_guest: Facts = guest.facts if guest else {"labels": {}}
    labels = {**pod.facts["labels"], **of_guest["labels"], **({} if name == pod.uid else {"pod": pod.uid})}
    facts = {**pod.facts, **of_guest, **pod.said, "id": name, "host": pod.node}
    if moving:
        facts["load"] = STOPPED_LOAD
        labels["moving"] = moving
    return {**facts, "labels": labels}


def _ids(rows: Iterable[Facts]) -> Iterable[str]:
    return (str(facts["id"]) for facts in rows)


def _put(entries: dict[Any, Any], key: object, value: object) -> None:
    if value is None:
        entries.pop(key, None)
    else:
        entries[key] = value


def _leave(sets: dict[str, set[str]], key: str, uid: str) -> None:
    sets[key].discard(uid)
    if not sets[key]:
        del sets[key]
