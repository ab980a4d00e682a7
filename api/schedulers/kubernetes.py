"""Kubernetes and KubeVirt: the scheduler extender's filter, prioritize and preempt, and a plug-in's question."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from advisor.domain import Instance, pods
from advisor.domain.pods import Json
from advisor.errors import InvalidInput
from advisor.service import CloudService, InventoryService, PlacementService
from api.routes.common import CloudDep, InventoryDep, PlacementDep
from api.schedulers import opinion
from api.schemas.base import as_input
from api.schemas.schedulers.kubernetes import (
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
SILENT = 5  # of nodes without fresh data: neither worst nor best
MOST_OF_FRAMEWORK = 100  # MaxNodeScore, k8s.io/kube-scheduler/framework
POD = "pod"  # label of an instance that has another id than its pod: the pod's UID
_WHOLE_NODES = (
    "set nodeCacheCapable: true in the extender's configuration; without it kube-scheduler would take the nodes that "
    "come back to be empty"
)


def filter(body: ExtenderArgs, inventory: InventoryDep, placements: PlacementDep) -> FilterAnswer:  # noqa: A001 - the verb's name
    """Which nodes may take the pod, for Kubernetes' scheduler extender.

    Nodes that nothing is known about pass, and so does every node for pods that are no guests and say nothing of
    themselves. A pod that describes itself wrongly passes nowhere, and the reason, which Kubernetes shows as an event
    of the pod, says what is wrong.
    """
    if body.node_names is None:
        error = _WHOLE_NODES if body.nodes else ""
        return FilterAnswer(nodes=None, node_names=None if error else [], failed={}, unresolvable={}, error=error)
    named, pod = list(dict.fromkeys(body.node_names)), body.pod.as_json()
    try:
        instance = _instance(pod, inventory)
        thought = opinion.ask(placements, instance, named, most=1) if instance is not None and named else None
    except InvalidInput as error:
        log.warning("pod %s is refused everywhere: %s", _shown(pod), error.message)
        return _passing([], dict.fromkeys(named, error.message), named)
    return _passing(named, thought.refused if thought else {}, thought.lasting if thought else ())


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

    The best node is held for the pod, under its uid, so that pods in a row spread and a question that is put again
    holds nothing more; no other node gets as much, so that this is the one that is taken where nothing else decides.
    A node that the inventory does not have is new, and counts as an empty one; where it is better than all that are
    known, nothing is held.
    """
    named = list(dict.fromkeys(body.node_names or ()))
    try:
        instance = _instance(body.pod.as_json(), inventory)
    except InvalidInput:  # the filter has told it; here Kubernetes would not listen
        instance = None
    if instance is None or not named:
        return [HostPriority(host=name, score=0) for name in named]
    hosts = {host.id for host in cloud.inventory().hosts}
    new = [name for name in named if name not in hosts]
    if new:
        thought = opinion.ask(placements, instance, named, holds_next=True)
        holds = max(thought.points(MOST, None).values(), default=0) == MOST
        best = opinion.hold(placements, instance, thought) if holds else None
    else:
        thought, best = opinion.ask_and_hold(placements, instance, named)
    points = dict.fromkeys(thought.silent, SILENT) | thought.points(MOST, best)
    points |= dict.fromkeys(new, MOST if best is None else MOST - 1)
    return [HostPriority(host=name, score=points.get(name, 0)) for name in named]


def preempt(
    body: PreemptionArgs, inventory: InventoryDep, cloud: CloudDep, placements: PlacementDep
) -> PreemptionAnswer:
    """On which nodes evicting the pods that Kubernetes has in mind would let the pod in.

    A node that would be refused without them, too, is left out, so that nobody is evicted for nothing. Nodes that
    nothing is known about stay.
    """
    victims = {name: of or MetaVictims() for name, of in (body.victims or {}).items()}
    try:
        instance = _instance(body.pod.as_json(), inventory)
    except InvalidInput:
        return PreemptionAnswer(victims={})  # it passes nowhere, whoever leaves
    refused: Collection[str] = ()
    if instance is not None and victims:
        gone = _instances({one.uid for of in victims.values() for one in of.pods or ()}, cloud)
        refused = opinion.ask(placements, instance, list(victims), most=1, without=gone).refused
    kept = {name: of for name, of in victims.items() if name not in refused}
    return PreemptionAnswer(victims={name: of.model_dump(by_alias=True) for name, of in kept.items()})


def advice(body: AdviceArgs, inventory: InventoryDep, cloud: CloudDep, placements: PlacementDep) -> AdviceAnswer:
    """Everything about one pod and all nodes in one answer, for the plug-in of kube-scheduler's framework.

    Nothing is held for the pod unless the question says `Hold`: the plug-in tells with its next question, or soon
    without one, where kube-scheduler put it (`Placed`), and then it counts there as an answer that is held does. Nodes
    that the inventory does not have are worth what an empty one is, those without fresh data half of it.
    """
    others = _count_in(body, inventory, placements)
    if body.released:
        placements.release([one.id for one in _told((pod.as_json() for pod in body.released), inventory)])
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
    # All of them are told apart: of a large cluster kube-scheduler scores a part, which may have none of the best.
    if body.hold and not gone:
        thought, best = opinion.ask_and_hold(placements, instance, named)
        placements.hold([replace(instance, host=best)] if best else [])
    else:
        thought = opinion.ask(placements, instance, named, most=len(named), holds_next=not gone, without=gone)
    points = dict.fromkeys(thought.unknown, MOST_OF_FRAMEWORK)
    points |= dict.fromkeys(thought.silent, MOST_OF_FRAMEWORK // 2) | thought.points(MOST_OF_FRAMEWORK, None)
    return AdviceAnswer(
        failed={name: why for name, why in thought.refused.items() if name not in thought.lasting},
        unresolvable={name: why for name, why in thought.refused.items() if name in thought.lasting},
        scores={name: points[name] for name in named if name not in thought.refused},
        error="",
        per_node=thought.per_host,
        others=others,
    )


def _of_no_node(scores: dict[str, int], error: str, others: bool) -> AdviceAnswer:
    return AdviceAnswer(failed={}, unresolvable={}, scores=scores, error=error, per_node=not others, others=others)


def _count_in(body: AdviceArgs, inventory: InventoryService, placements: PlacementService) -> bool:
    """Count pods on the nodes that they were put on, unless the inventory shows them there already; whether somebody
    else had hosts held lately.

    A pod that is told alone, or before the next one is asked about, is answered as if it had been asked about that node
    only, so that what is predicted for it is stored and judged later. In a burst that would cost more than placing the
    pods, so that they only count.
    """
    placed = {one.pod.metadata.uid: one for one in body.placed}.values()
    told = [(each, one.node) for one in placed for each in _told([one.pod.as_json()], inventory)]
    new = [(each, node) for each, node in told if each.host != node]
    if new and (len(new) == 1 or body.pod is not None):
        placements.in_turn([opinion.question(new[0][0], (new[0][1],))], hold=True)
    return placements.hold([replace(each, host=node) for each, node in new])


def _told(some: Iterable[Json], inventory: InventoryService) -> Iterator[Instance]:
    """The pods that are ours to advise on; who says something wrong was never placed by us."""
    for pod in some:
        with contextlib.suppress(InvalidInput):
            instance = _instance(pod, inventory)
            if instance is not None:
                yield instance


def _instances(uids: Collection[str], cloud: CloudService) -> frozenset[str]:
    """The instances that these pods are: their uids, and the names of those that have another."""
    those = frozenset(uids)
    return those | {one.id for one in cloud.inventory().instances if one.labels.get(POD) in those}


def _instance(pod: Json, inventory: InventoryService) -> Instance | None:
    """The pod as an instance, None where it is no guest and says nothing; InvalidInput where it says it wrongly.

    The pod that a guest moves to is the guest under the pod's own uid: the guest still runs where it is.
    """
    if not pods.says_something(pod):
        return None
    said = pods.said(pod)
    if said.wrong:
        raise InvalidInput("; ".join(said.wrong)[:500], field=said.wrong[0].partition(" ")[0])
    metadata = pod.get("metadata") or {}
    uid = metadata.get("uid") or f"{metadata.get('namespace')}.{metadata.get('name')}"
    instance = opinion.known(inventory, said.name or pods.guest(pod) or uid)
    if instance.host is not None and pods.is_migration_target(pod):
        instance = replace(instance, id=uid, host=None)
    return opinion.changed(instance, {**_fields(pod, instance), **said.fields})


@as_input
def _fields(pod: Json, known: Instance) -> dict[str, object]:
    return {**pods.size(pod), "labels": {**pods.class_labels(pod), **known.labels}}


def _shown(pod: Json) -> str:
    metadata = pod.get("metadata") or {}
    shown = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"[:200]
    return "".join(char for char in shown if char.isprintable())
