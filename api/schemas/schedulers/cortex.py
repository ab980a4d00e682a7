"""Schemas of Nova's external scheduler call as Cortex answers it, by cortex/api/external/nova/messages.go."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.base import WHOLE, Flag, Id, Number
from api.schemas.schedulers.base import MOST_HOSTS, HostName, Incoming


class Flavor(Incoming):
    """Of the flavor object, what is read."""

    vcpus: Annotated[int, Field(strict=True), WHOLE] | None = Field(default=None, description="virtual CPUs")
    memory_mb: Number | None = Field(default=None, description="memory in MiB")
    root_gb: Number | None = Field(default=None, description="root disk in GiB")
    ephemeral_gb: Number | None = Field(default=None, description="ephemeral disk in GiB, beside the root disk")
    extra_specs: dict[str, Any] | None = Field(
        default=None,
        description="extra specs of the flavor; `cotenant:…` among them say what the server runs and accepts",
    )


class FlavorObject(Incoming):
    """A versioned object of Nova."""

    data: Flavor = Field(default=Flavor(), alias="nova_object.data", description="the flavor's fields")


class RequestSpec(Incoming):
    """Of the request specification, what is read."""

    instance_uuid: Id = Field(description="UUID of the server")
    flavor: FlavorObject | None = Field(
        default=None, description="the flavor that it is built from; left out = the size that the inventory knows"
    )


class RequestSpecObject(Incoming):
    """A versioned object of Nova."""

    data: RequestSpec = Field(alias="nova_object.data", description="the request specification's fields")


class CandidateHost(Incoming):
    """A host that Nova's own filters let through."""

    host: HostName = Field(description="the compute service's host")
    hypervisor_hostname: str = Field(
        default="",
        description="the compute node's name, by which the inventory may know the host; empty = the same as host",
    )


class Options(Incoming):
    """How the answer is meant."""

    read_only: Flag = Field(default=False, description="a question only: no host counts as taken after it")


class ExternalBody(Incoming):
    """Where should this server go, of these hosts?"""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "spec": {
                        "nova_object.name": "RequestSpec",
                        "nova_object.namespace": "nova",
                        "nova_object.version": "1.14",
                        "nova_object.data": {
                            "project_id": "p",
                            "instance_uuid": "4d6a4b8e-41c5-4f5b-9d2a-0c7d8f4b4d11",
                            "num_instances": 1,
                            "flavor": {
                                "nova_object.name": "Flavor",
                                "nova_object.data": {
                                    "name": "m1.large",
                                    "vcpus": 2,
                                    "memory_mb": 4096,
                                    "extra_specs": {"cotenant:workload": "web-1k"},
                                },
                            },
                        },
                        "nova_object.changes": [],
                    },
                    "context": {"request_id": "req-1", "user": "u", "project_id": "p"},
                    "hosts": [{"host": "h1", "hypervisor_hostname": "h1"}, {"host": "h9", "hypervisor_hostname": "h9"}],
                    "weights": {"h1": 1.2, "h9": 0.8},
                    "pipeline": "",
                    "options": {"read_only": True},
                }
            ]
        }
    )

    spec: RequestSpecObject = Field(description="Nova's request specification of one server")
    hosts: Annotated[list[CandidateHost], Field(max_length=MOST_HOSTS)] = Field(
        description="hosts that passed Nova's filters"
    )
    options: Options | None = Field(default=None, description="how the answer is meant; left out = it is followed")


class ExternalAnswer(BaseModel):
    """The hosts, best first; Nova drops those left out, and refuses any further key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hosts: list[str] = Field(description="compute hosts by their `host`, best first")
