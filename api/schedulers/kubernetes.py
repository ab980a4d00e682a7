"""Kubernetes and KubeVirt: the scheduler extender's filter and prioritize verbs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from advisor.domain import Instance
from advisor.errors import InvalidInput
from advisor.protocols import InventoryService
from api.routes.common import InventoryDep, PlacementDep
from api.schedulers import opinion
from api.schemas.schedulers.kubernetes import ExtenderArgs, FilterAnswer, HostPriority, Pod
from profiler.observed import MAX_CPUS

MOST = 10  # MaxExtenderPriority, k8s.io/kube-scheduler/extender/v1
NEUTRAL = 5  # of nodes that the advisor knows nothing about: neither worst nor best
PREFIX = "cotenant.io/"
KUBEVIRT = "kubevirt.io"  # the label that KubeVirt puts on its pods, with virt-launcher for the one that runs a guest
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]{1,18}\.?[0-9]{0,18}|\.[0-9]{1,18}))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,2}))?\Z"
)
_SUFFIX = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3} | {
    letter + i: base**power
    for i, base in (("", 1000.0), ("i", 1024.0))
    for power, letter in enumerate("KMGTPE", 1)
    if letter + i != "K"
}


def filter(body: ExtenderArgs, inventory: InventoryDep, placements: PlacementDep) -> FilterAnswer:  # noqa: A001 - the verb's name
    """Which nodes may take the pod, for Kubernetes' scheduler extender.

    Nodes that nothing is known about pass, and so does every node for pods that are no guests and say nothing of
    themselves. A pod that describes itself wrongly is told so in `Error`, never by an HTTP status.
    """
    named, failed = _named(body), {}
    try:
        instance = _instance(body.pod, inventory)
        if instance is not None and named:
            failed = dict(opinion.ask(placements, instance, named, most=1).refused)
    except InvalidInput as error:
        return FilterAnswer(nodes=None, node_names=None, failed={}, unresolvable={}, error=error.message)
    items = body.nodes.items if body.nodes else None
    full = items is not None and body.node_names is None
    return FilterAnswer(
        nodes={"items": [item for item in items or () if item["metadata"]["name"] not in failed]} if full else None,
        node_names=None if full else [name for name in named if name not in failed],
        failed=failed,
        unresolvable={},
        error="",
    )


def prioritize(body: ExtenderArgs, inventory: InventoryDep, placements: PlacementDep) -> list[HostPriority]:
    """What each node is worth to the pod, 0-10, for Kubernetes' scheduler extender.

    The best node is held for the pod, under its uid, so that pods in a row spread and a question that is put again
    holds nothing more; no other node gets as much, so that this is the one that is taken where nothing else decides.
    """
    named = _named(body)
    try:
        instance = _instance(body.pod, inventory)
    except InvalidInput:  # the filter has told it; here Kubernetes would not listen
        instance = None
    if instance is None or not named:
        return [HostPriority(host=name, score=0) for name in named]
    thought, best = opinion.ask_and_hold(placements, instance, named)
    points = dict.fromkeys(thought.unknown, NEUTRAL) | thought.points(MOST, best)
    return [HostPriority(host=name, score=points.get(name, 0)) for name in named]


def _named(body: ExtenderArgs) -> list[str]:
    if body.node_names is not None:
        return list(dict.fromkeys(body.node_names))
    items = body.nodes.items if body.nodes else None
    return list(dict.fromkeys(item["metadata"]["name"] for item in items or ()))


def _instance(pod: Pod, inventory: InventoryService) -> Instance | None:
    """The pod as an instance, None where it is no guest and says nothing; InvalidInput where it says it wrongly."""
    told = {**(pod.metadata.labels or {}), **(pod.metadata.annotations or {})}
    if KUBEVIRT not in told and not any(key.startswith(PREFIX) for key in told):
        return None
    name = told.get(f"{PREFIX}instance") or pod.metadata.uid or f"{pod.metadata.namespace}.{pod.metadata.name}"
    cpu, memory = _asked(pod, "cpu"), _asked(pod, "memory")
    return opinion.described(
        opinion.known(inventory, name),
        told,
        _spelt,
        vcpus=_vcpus(told, cpu),
        memory_mb=memory / 2**20 if memory else None,
    )


def _spelt(field: str) -> str:
    return PREFIX + field.replace("_", "-")


def _vcpus(told: Mapping[str, str], cpu: float) -> int | None:
    key = f"{PREFIX}vcpus"
    if key in told:
        try:
            return opinion.whole(told[key])
        except ValueError as error:
            raise InvalidInput(f"{key} {told[key][:60]!r}: {error}", field=key) from error
    return min(max(1, math.ceil(cpu)), MAX_CPUS) if cpu else None


def _asked(pod: Pod, resource: str) -> float:
    """What the pod is counted with: what its containers ask for together, or one that runs first alone, and overhead.

    https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers
    """
    if pod.spec is None:
        return 0.0
    together, first = (
        [_quantity((one.resources.requests or {}).get(resource)) for one in some or () if one.resources]
        for some in (pod.spec.containers, pod.spec.init_containers)
    )
    return max(sum(together), *first, 0.0) + _quantity((pod.spec.overhead or {}).get(resource))


def _quantity(value: Any) -> float:
    """A quantity such as 500m, 4Gi or 1e3 as a number; k8s.io/apimachinery/pkg/api/resource/quantity.go."""
    if value is None:
        return 0.0
    match = _QUANTITY.match(str(value))
    if not match:
        raise InvalidInput(f"{str(value)[:60]!r} is no quantity such as 500m or 4Gi", field="requests")
    factor = _SUFFIX.get(match[2], 1.0) * 10.0 ** int(match[3] or 0)
    return float(match[1]) * factor
