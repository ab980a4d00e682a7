"""Schemas of Kubernetes' scheduler extender, by k8s.io/kube-scheduler/extender/v1/types.go."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from api.schemas.base import TEXT_PATTERN, AnswerBody, Number
from api.schemas.schedulers.base import MOST_HOSTS, HostName, Incoming

Texts = dict[str, str] | None
# A node is sent back as it came, so it stays what it is; its name is all that is read.
_NAME = {"type": "string", "pattern": TEXT_PATTERN, "minLength": 1, "maxLength": 255}
_METADATA = {"type": "object", "required": ["name"], "properties": {"name": _NAME}}
Node = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "required": ["metadata"], "properties": {"metadata": _METADATA}}),
]
Quantities = dict[str, str | Number] | None


class Metadata(Incoming):
    """Of a pod."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: Texts = None
    annotations: Texts = None


class Resources(Incoming):
    """Of a container."""

    requests: Quantities = None


class Container(Incoming):
    """Only what it asks for."""

    resources: Resources | None = None


class PodSpec(Incoming):
    """Only what is asked for."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = Field(default=None, alias="initContainers")
    overhead: Quantities = None


class Pod(Incoming):
    """The pod that is to be scheduled; of all its fields only these are read."""

    metadata: Metadata
    spec: PodSpec | None = None


class NodeList(Incoming):
    """The nodes in question where `nodeCacheCapable` is false."""

    items: Annotated[list[Node] | None, Field(max_length=MOST_HOSTS)] = None

    @field_validator("items")
    @classmethod
    def _can_be_sent_back(cls, items: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        for item in items or ():
            name = item.get("metadata", {}).get("name") if isinstance(item.get("metadata", {}), dict) else None
            if not isinstance(name, str) or not 1 <= len(name) <= 255 or not name.isprintable():
                raise ValueError("a node has no metadata.name")
        json.dumps(items, allow_nan=False)  # JSON has no NaN, though parsers let it in
        return items


class ExtenderArgs(Incoming):
    """The question of both verbs. Keys may be written in either case: old schedulers sent small letters."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "Pod": {
                        "metadata": {
                            "name": "virt-launcher-db1-x",
                            "namespace": "prod",
                            "uid": "0c8f5f0e-7a4b-4b0e-9a35-5a1d3c3d9e10",
                            "labels": {"kubevirt.io": "virt-launcher"},
                            "annotations": {"cotenant.io/workload": "web-1k"},
                        },
                        "spec": {"containers": [{"resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}]},
                    },
                    "Nodes": None,
                    "NodeNames": ["h1", "h2"],
                }
            ]
        }
    )

    pod: Pod = Field(alias="Pod")
    nodes: NodeList | None = Field(default=None, alias="Nodes")
    node_names: Annotated[list[HostName] | None, Field(max_length=MOST_HOSTS)] = Field(default=None, alias="NodeNames")

    @model_validator(mode="before")
    @classmethod
    def _either_case(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        wanted = {"pod": "Pod", "nodes": "Nodes", "nodenames": "NodeNames"}
        return {wanted.get(str(key).lower(), key): value for key, value in body.items()}


class FilterAnswer(AnswerBody):
    """Which nodes may take the pod; keys as Go writes them where a structure has no tags."""

    nodes: dict[str, Any] | None = Field(serialization_alias="Nodes")
    node_names: list[str] | None = Field(serialization_alias="NodeNames")
    failed: dict[str, str] = Field(serialization_alias="FailedNodes", description="the others, with a sentence each")
    unresolvable: dict[str, str] = Field(serialization_alias="FailedAndUnresolvableNodes")
    error: str = Field(serialization_alias="Error", description="why there is no answer; empty = there is one")


class HostPriority(AnswerBody):
    """What a node is worth to the pod."""

    host: str = Field(serialization_alias="Host")
    score: int = Field(serialization_alias="Score", ge=0, le=10)
