"""Schemas of Kubernetes' scheduler extender, by k8s.io/kube-scheduler/extender/v1/types.go."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from api.opinion import MOST_HOSTS, HostName, Incoming
from api.schemas.base import WHOLE, AnswerBody, Flag, Number

MOST_REPORTED = 256  # placements that one question may report
Texts = dict[str, str] | None
Quantities = dict[str, str | Number] | None


class Owner(Incoming):
    """Who made the pod."""

    kind: str = Field(default="", description="kind of the owner, such as ReplicaSet")
    name: str = Field(default="", description="name of the owner")
    controller: Flag | None = Field(default=None, description="whether it is the managing controller")


class Metadata(Incoming):
    """Of a pod."""

    name: str = Field(default="", description="the pod's name within its namespace")
    namespace: str = Field(default="", description="the pod's namespace")
    uid: str = Field(default="", description="the pod's UID, unique over time and space")
    labels: Texts = Field(default=None, description="the pod's labels")
    annotations: Texts = Field(
        default=None,
        description="the pod's annotations; `cotenant.io/…` among them and the labels say what it runs and accepts",
    )
    owners: list[Owner] | None = Field(
        default=None, alias="ownerReferences", description="objects that the pod depends on"
    )


class Resources(Incoming):
    """Of a container, or of the pod as a whole."""

    requests: Quantities = Field(
        default=None,
        description="least amounts that are required, as quantities of Kubernetes: cpu in CPUs (`500m` = half a one), "
        "memory in bytes (`4Gi`)",
    )


class Container(Incoming):
    """What it asks for, what it runs, and whether it is a sidecar (an init container that restarts always)."""

    image: str | None = Field(default=None, description="the container image's name")
    resources: Resources | None = Field(default=None, description="what the container asks for")
    restart_policy: str | None = Field(
        default=None,
        alias="restartPolicy",
        description="`Always` in an init container: it is a sidecar, which runs as long as the pod",
    )


class PodSpec(Incoming):
    """Only what is asked for."""

    containers: list[Container] | None = Field(default=None, description="the containers that run together")
    init_containers: list[Container] | None = Field(
        default=None,
        alias="initContainers",
        description="containers that run to their end before, one after the other, and sidecars",
    )
    overhead: Quantities = Field(
        default=None,
        description="what the pod takes beside its containers, by its RuntimeClass, as quantities of Kubernetes",
    )
    resources: Resources | None = Field(
        default=None, description="what the pod as a whole asks for; it counts instead of its containers' sum"
    )


class Pod(Incoming):
    """The pod that is to be scheduled; of all its fields only these are read."""

    metadata: Metadata = Field(description="its names, labels and annotations")
    spec: PodSpec | None = Field(default=None, description="what it asks for")

    def as_json(self) -> dict[str, Any]:
        """As the API of Kubernetes writes it."""
        return self.model_dump(by_alias=True, exclude_none=True)


class _EitherCase(Incoming):
    """Keys may be written in either case: old schedulers sent small letters."""

    @model_validator(mode="before")
    @classmethod
    def _either_case(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        aliases = {str(field.alias).lower(): field.alias for field in cls.model_fields.values()}
        return {aliases.get(str(key).lower(), key): value for key, value in body.items()}


_POD: dict[str, Any] = {
    "metadata": {
        "name": "virt-launcher-db1-x",
        "namespace": "prod",
        "uid": "0c8f5f0e-7a4b-4b0e-9a35-5a1d3c3d9e10",
        "labels": {"kubevirt.io": "virt-launcher"},
        "annotations": {"cotenant.io/workload": "web-1k"},
    },
    "spec": {"containers": [{"resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}]},
}


class ExtenderArgs(_EitherCase):
    """The question of filter and prioritize, with `nodeCacheCapable: true`: names of nodes, not whole nodes."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"Pod": _POD, "Nodes": None, "NodeNames": ["h1", "h2"]}]})

    pod: Pod = Field(alias="Pod", description="the pod to be scheduled")
    nodes: Any = Field(
        default=None,
        alias="Nodes",
        description="whole nodes, sent without nodeCacheCapable; they are refused with a sentence",
    )
    node_names: Annotated[list[HostName] | None, Field(max_length=MOST_HOSTS)] = Field(
        default=None, alias="NodeNames", description="names of candidate nodes, sent with nodeCacheCapable"
    )


class FilterAnswer(AnswerBody):
    """Which nodes may take the pod; keys as Go writes them where a structure has no tags."""

    nodes: None = Field(serialization_alias="Nodes", description="always null: whole nodes are not answered")
    node_names: list[str] | None = Field(
        serialization_alias="NodeNames", description="nodes that may take the pod; null where the question is wrong"
    )
    failed: dict[str, str] = Field(
        serialization_alias="FailedNodes", description="others, with a sentence each, that may do once pods are gone"
    )
    unresolvable: dict[str, str] = Field(
        serialization_alias="FailedAndUnresolvableNodes", description="others that preemption would not help"
    )
    error: str = Field(serialization_alias="Error", description="what is wrong with the question, else empty")


class HostPriority(AnswerBody):
    """What a node is worth to the pod."""

    host: str = Field(serialization_alias="Host", description="name of the node")
    score: int = Field(serialization_alias="Score", ge=0, le=10, description="what it is worth, 0-10; higher is better")


class MetaPod(Incoming):
    """A pod by its UID."""

    uid: str = Field(alias="UID", description="UID of the pod")


class MetaVictims(Incoming):
    """Pods that would be evicted from a node."""

    pods: list[MetaPod] | None = Field(default=None, alias="Pods", description="pods that would be evicted")
    violations: Annotated[int, Field(strict=True), WHOLE] = Field(
        default=0, alias="NumPDBViolations", description="number of PodDisruptionBudget violations that this would make"
    )


class PreemptionArgs(_EitherCase):
    """The question of preempt, with `nodeCacheCapable: true`: UIDs of the pods, not whole pods."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"Pod": _POD, "NodeNameToMetaVictims": {"h1": {"Pods": [{"UID": "5f0a"}], "NumPDBViolations": 0}}}
            ]
        }
    )

    pod: Pod = Field(alias="Pod", description="the pod to be scheduled")
    victims: Annotated[dict[HostName, MetaVictims | None] | None, Field(max_length=MOST_HOSTS)] = Field(
        description="victims by the name of the node that they would be evicted from",
        default=None,
        alias="NodeNameToMetaVictims",
    )


class PreemptionAnswer(AnswerBody):
    """The nodes on which evicting these pods would let the pod in, with the pods as they came."""

    victims: dict[str, Any] = Field(
        serialization_alias="NodeNameToMetaVictims",
        description="victims by the name of the node, of nodes where evicting them helps",
    )


class PlacedPod(Incoming):
    """A pod that kube-scheduler has put on a node, and that no inventory shows yet."""

    pod: Pod = Field(alias="Pod", description="the pod")
    node: HostName = Field(alias="NodeName", description="name of the node that it was put on")


class AdviceArgs(Incoming):
    """The question of the plug-in: one pod and all nodes, and what became of the pods before it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "Pod": _POD,
                    "NodeNames": ["h1", "h2"],
                    "Without": [],
                    "Placed": [{"Pod": {"metadata": {**_POD["metadata"], "uid": "5f0a"}}, "NodeName": "h2"}],
                    "Released": [],
                }
            ]
        }
    )

    pod: Pod | None = Field(default=None, alias="Pod", description="the question is about no pod without it")
    node_names: Annotated[list[HostName], Field(max_length=MOST_HOSTS)] = Field(
        default=[], alias="NodeNames", description="names of all nodes that are candidates"
    )
    without: Annotated[list[HostName], Field(max_length=MOST_HOSTS)] = Field(
        default=[], alias="Without", description="UIDs of pods that count as gone: those that preemption would evict"
    )
    placed: Annotated[list[PlacedPod], Field(max_length=MOST_REPORTED)] = Field(
        default=[], alias="Placed", description="pods that count on their nodes from now on, in their order"
    )
    released: Annotated[list[Pod], Field(max_length=MOST_REPORTED)] = Field(
        default=[], alias="Released", description="pods that were placed and then were not bound"
    )
    hold: Flag = Field(
        default=False,
        alias="Hold",
        description="count the pod on the best of these nodes, if it may go to one; not with `Without`",
    )


class AdviceAnswer(AnswerBody):
    """Every node that was named is in exactly one of `FailedNodes`, `FailedAndUnresolvableNodes` and `Scores`, unless
    `Error` says what is wrong with the pod."""

    failed: dict[str, str] = Field(
        serialization_alias="FailedNodes", description="with a sentence each; they may do once pods are gone"
    )
    unresolvable: dict[str, str] = Field(
        serialization_alias="FailedAndUnresolvableNodes", description="those that preemption would not help"
    )
    scores: dict[str, int] = Field(
        serialization_alias="Scores", description="what every other node is worth to the pod, 0-100"
    )
    error: str = Field(serialization_alias="Error", description="what the pod says wrongly of itself, else empty")
    per_node: bool = Field(
        serialization_alias="PerNode",
        description="what is said of each node depends on no other node, and there are no `Others`: it stands until "
        "that node changes",
    )
    others: bool = Field(
        serialization_alias="Others", description="another client had hosts held lately, and may place there, too"
    )
