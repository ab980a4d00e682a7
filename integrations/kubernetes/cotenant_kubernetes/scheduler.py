"""Kubernetes and KubeVirt: the scheduler extender's filter, prioritize and preempt, and a plug-in's question."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from advisor.domain import Instance
from advisor.errors import InvalidInput
from advisor.service import CloudService, InventoryService, PlacementService
from api import opinion
from api.routes.common import CloudDep, InventoryDep, PlacementDep
from api.routing import Route
from api.schemas.base import as_input
from cotenant_kubernetes import pods
from cotenant_kubernetes.pods import Json
from cotenant_kubernetes.schemas import (
    AdviceAnswer,
    AdviceArgs,
    ExtenderArgs,
    FilterAnswer,
    HostPriority,
    MetaVictims,
    PreemptionAnswer,
    PreemptionArgs,
)

log = logging.getLogger("cotenant.kubernetes")
MOST = 10  # MaxExtenderPriority, k8s.io/kube-scheduler/extender/v1
SILENT = 5  # score of nodes without fresh data: neither worst nor best
MOST_OF_FRAMEWORK = 100  # MaxNodeScore, k8s.io/kube-scheduler/framework
POD = "pod"  # label of an instance that has another id than its pod: the pod's UID
UNSIZED_VCPUS = 1  # of a pod that requests no CPU, which Kubernetes allows
_WHOLE_NODES = (
    "set nodeCacheCapable: true in the extender's configuration; without it kube-scheduler would take every node that "
    "it gets back for an empty one"
)


def filter(body: ExtenderArgs, inventory: InventoryDep, placements: PlacementDep) -> FilterAnswer:  # noqa: A001 - the verb's name
    """Which nodes may take the pod, for Kubernetes' scheduler extender.

    Nodes without data pass. So does every node where the pod is no guest and has no label or annotation of ours. A pod
    that describes itself wrongly passes nowhere; the reason, which Kubernetes shows as an event of the pod, says what
    is wrong.
    """
    if body.node_names is None:
        error = _WHOLE_NODES if body.nodes else ""
        return FilterAnswer(nodes=None, node_names=None if error else [], failed={}, unresolvable={}, error=error)
    named, pod = list(dict.fromkeys(body.node_names)), body.pod.as_json()
    try:
        instance = _instance(pod, inventory)
        scores = opinion.ask(placements, instance, named, most=1) if instance is not None and named else None
    except InvalidInput as error:
        log.warning("pod %s is refused everywhere: %s", _shown(pod), error.message)
        return _passing([], dict.fromkeys(named, error.message), named)
    return _passing(named, scores.refused if scores else {}, scores.lasting if scores else ())


def _passing(named: Collection[str], refused: Json, lasting: Collection[str]) -> FilterAnswer:
    return FilterAnswer(
        nodes=None,
        node_names=[name for name in named if name not in refused],
        failed={name: reason for name, reason in refused.items() if name not in lasting},
        unresolvable={name: reason for name, reason in refused.items() if name in lasting},
        error="",
    )


def prioritize(
    body: ExtenderArgs, inventory: InventoryDep, cloud: CloudDep, placements: PlacementDep
) -> list[HostPriority]:
    """What each node is worth to the pod, 0-10, for Kubernetes' scheduler extender.

    The best node is held for the pod under its uid, so that pods in a row spread, and a repeated question holds nothing
    more. No other node gets as many points, so kube-scheduler takes this one where nothing else decides. A node that
    the inventory does not have is new, and counts as empty; where that is better than all known nodes, nothing is held.
    """
    named = list(dict.fromkeys(body.node_names or ()))
    try:
        instance = _instance(body.pod.as_json(), inventory)
    except InvalidInput:  # the filter has said so; prioritize has no place for an error
        instance = None
    if instance is None or not named:
        return [HostPriority(host=name, score=0) for name in named]
    hosts = {host.id for host in cloud.inventory().hosts}
    new = [name for name in named if name not in hosts]
    if new:
        scores = opinion.ask(placements, instance, named, holds_next=True)
        holds = max(scores.points(MOST, None).values(), default=0) == MOST
        best = opinion.hold(placements, instance, scores) if holds else None
    else:
        scores, best = opinion.ask_and_hold(placements, instance, named)
    points = dict.fromkeys(scores.silent, SILENT) | scores.points(MOST, best)
    points |= dict.fromkeys(new, MOST if best is None else MOST - 1)
    return [HostPriority(host=name, score=points.get(name, 0)) for name in named]


def preempt(
    body: PreemptionArgs, inventory: InventoryDep, cloud: CloudDep, placements: PlacementDep
) -> PreemptionAnswer:
    """On which nodes evicting the victims that Kubernetes proposes would let the pod in.

    A node that would still be refused without them is left out, so that no pod is evicted for nothing. Nodes without
    data stay.
    """
    victims = {node: proposed or MetaVictims() for node, proposed in (body.victims or {}).items()}
    try:
        instance = _instance(body.pod.as_json(), inventory)
    except InvalidInput:
        return PreemptionAnswer(victims={})  # the pod passes nowhere, whoever leaves
    refused: Collection[str] = ()
    if instance is not None and victims:
        evicted = _instances({pod.uid for proposed in victims.values() for pod in proposed.pods or ()}, cloud)
        refused = opinion.ask(placements, instance, list(victims), most=1, without=evicted).refused
    return PreemptionAnswer(
        victims={node: pods.model_dump(by_alias=True) for node, pods in victims.items() if node not in refused}
    )


def advice(body: AdviceArgs, inventory: InventoryDep, cloud: CloudDep, placements: PlacementDep) -> AdviceAnswer:
    """Everything about one pod and all nodes in one answer, for the plug-in of kube-scheduler's framework.

    Nothing is held for the pod unless the question says `Hold`. The plug-in reports with its next question, or soon
    without one, where kube-scheduler put the pod (`Placed`); it then counts there like a held answer. Nodes that the
    inventory does not have are worth as much as empty ones, nodes without fresh data half as much.
    """
    others = _count_in(body, inventory, placements)
    if body.released:
        released = _advised((pod.as_json() for pod in body.released), inventory)
        placements.release([instance.id for instance in released])
    named = list(dict.fromkeys(body.node_names))
    if body.pod is None or not named:
        return _of_no_node({}, "", others)
    try:
        instance = _instance(body.pod.as_json(), inventory)
    except InvalidInput as error:
        return _of_no_node({}, error.message, others)
    if instance is None:
        return _of_no_node(dict.fromkeys(named, 0), "", others)
    gone = _instances(body.without, cloud) if body.without else ()
    # Every node gets a score of its own: in a large cluster kube-scheduler scores a part, which may lack the best ones.
    if body.hold and not gone:
        scores, best = opinion.ask_and_hold(placements, instance, named)
        placements.hold([replace(instance, host=best)] if best else [])
    else:
        scores = opinion.ask(placements, instance, named, most=len(named), holds_next=not gone, without=gone)
    points = dict.fromkeys(scores.unknown, MOST_OF_FRAMEWORK)
    points |= dict.fromkeys(scores.silent, MOST_OF_FRAMEWORK // 2) | scores.points(MOST_OF_FRAMEWORK, None)
    return AdviceAnswer(
        failed={name: why for name, why in scores.refused.items() if name not in scores.lasting},
        unresolvable={name: why for name, why in scores.refused.items() if name in scores.lasting},
        scores={name: points[name] for name in named if name not in scores.refused},
        error="",
        per_node=scores.per_host,
        others=others,
    )


def _of_no_node(scores: dict[str, int], error: str, others: bool) -> AdviceAnswer:
    return AdviceAnswer(failed={}, unresolvable={}, scores=scores, error=error, per_node=not others, others=others)


def _count_in(body: AdviceArgs, inventory: InventoryService, placements: PlacementService) -> bool:
    """Count pods on the nodes that they were put on, unless the inventory shows them there already.

    Returns whether another client had hosts held lately. A pod that is reported alone, or before the next one is asked
    about, is answered as if it had been asked about that node only, so that its prediction is stored and judged later.
    In a burst that would cost more than placing the pods, so the others only count.
    """
    placed = {report.pod.metadata.uid: report for report in body.placed}.values()
    reported = [
        (instance, report.node) for report in placed for instance in _advised([report.pod.as_json()], inventory)
    ]
    new = [(instance, node) for instance, node in reported if instance.host != node]
    if new and (len(new) == 1 or body.pod is not None):
        placements.in_turn([opinion.question(new[0][0], (new[0][1],))], hold=True)
    return placements.hold([replace(instance, host=node) for instance, node in new])


def _advised(described_pods: Iterable[Json], inventory: InventoryService) -> Iterator[Instance]:
    """The pods that we advise on, as instances; a pod that describes itself wrongly was never placed by us."""
    for pod in described_pods:
        with contextlib.suppress(InvalidInput):
            instance = _instance(pod, inventory)
            if instance is not None:
                yield instance


def _instances(uids: Collection[str], cloud: CloudService) -> frozenset[str]:
    """Ids of the instances that these pods are: the uids, and the ids of those that are named otherwise."""
    pod_uids = frozenset(uids)
    return pod_uids | {instance.id for instance in cloud.inventory().instances if instance.labels.get(POD) in pod_uids}


def _instance(pod: Json, inventory: InventoryService) -> Instance | None:
    """The pod as an instance; None where it is no guest and describes nothing. InvalidInput names what is wrong.

    The pod that a guest moves to counts as the guest under the pod's own uid, because the guest still runs elsewhere.
    """
    if not pods.says_something(pod):
        return None
    description = pods.said(pod)
    if description.wrong:
        raise InvalidInput("; ".join(description.wrong)[:500], field=description.wrong[0].partition(" ")[0])
    metadata = pod.get("metadata") or {}
    uid = metadata.get("uid") or f"{metadata.get('namespace')}.{metadata.get('name')}"
    name = description.name or pods.guest(pod) or uid
    given = {**_size(pod), **description.fields}
    classes = pods.class_labels(pod)
    instance = opinion.asked(inventory, name, given, vcpus=UNSIZED_VCPUS)
    instance = replace(instance, labels={**classes, **instance.labels})
    if instance.host is not None and pods.is_migration_target(pod):
        instance = replace(instance, id=uid, host=None)
    return instance


@as_input
def _size(pod: Json) -> dict[str, object]:
    return pods.size(pod)


def _shown(pod: Json) -> str:
    metadata = pod.get("metadata") or {}
    shown = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"[:200]
    return "".join(char for char in shown if char.isprintable())


ROUTES = (
    Route("POST", "/kubernetes/filter", filter, "schedulers", lane="question", scope="read", hurried=True),
    Route("POST", "/kubernetes/prioritize", prioritize, "schedulers", lane="question", hurried=True),
    Route("POST", "/kubernetes/preempt", preempt, "schedulers", lane="question", scope="read", hurried=True),
    Route("POST", "/kubernetes/advice", advice, "schedulers", lane="question"),
)
