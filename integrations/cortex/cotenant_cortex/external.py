"""OpenStack Nova's external scheduler call, as Cortex answers it and SAP's Nova asks it.

Bodies by cortex/api/external/nova/messages.go.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from advisor.domain import Instance, dedicated_vcpus
from advisor.errors import InvalidInput
from advisor.service import InventoryService
from api import opinion
from api.opinion import MOST_HOSTS, HostName, Incoming
from api.routes.common import CloudDep, InventoryDep, PlacementDep
from api.routing import Route
from api.schemas.base import WHOLE, Flag, Id, Number
from profiler.observed import MAX_CPUS

PREFIX = "cotenant:"  # of extra specs


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


def external(body: ExternalBody, cloud: CloudDep, inventory: InventoryDep, placements: PlacementDep) -> ExternalAnswer:
    """The named hosts, best first, for Nova's external scheduler call.

    Hosts without data come after the others, in the order in which they were named. Hosts that cannot take the server,
    or where a limit would break, are left out. Unless the question is `read_only`, the best one is held for a while.
    """
    known_hosts = {host.id for host in cloud.inventory().hosts}
    by_name: dict[str, str] = {}  # our name of a host -> Nova's
    unknown: list[str] = []
    for asked_host in body.hosts:
        name = next((name for name in (asked_host.hypervisor_hostname, asked_host.host) if name in known_hosts), None)
        if name is None:
            unknown.append(asked_host.host)
        else:
            by_name[name] = asked_host.host
    if not by_name:
        return ExternalAnswer(hosts=list(dict.fromkeys(unknown)))
    instance = _instance(body, inventory)
    if body.options and body.options.read_only:
        scores, best = opinion.ask(placements, instance, tuple(by_name)), None
    else:
        scores, best = opinion.ask_and_hold(placements, instance, tuple(by_name))
    order = sorted([*scores.scores, *scores.behind, *scores.unknown], key=lambda name: name != best)
    return ExternalAnswer(hosts=list(dict.fromkeys([*(by_name[name] for name in order), *unknown])))


def _instance(body: ExternalBody, inventory: InventoryService) -> Instance:
    spec = body.spec.data
    flavor = spec.flavor.data if spec.flavor else None
    if flavor is None:
        return opinion.asked(inventory, spec.instance_uuid, {})
    if flavor.vcpus is not None and not 1 <= flavor.vcpus <= MAX_CPUS:
        raise InvalidInput(f"{flavor.vcpus} vcpus are outside 1-{MAX_CPUS}", field="flavor.vcpus")
    disks = [size for size in (flavor.root_gb, flavor.ephemeral_gb) if size is not None]
    specs = {name: str(value) for name, value in (flavor.extra_specs or {}).items()}
    given = opinion.described(
        specs,
        lambda field: PREFIX + field,
        vcpus=flavor.vcpus,
        memory_mb=flavor.memory_mb,
        disk_gb=sum(disks) if disks else None,
    )
    if flavor.vcpus is not None:
        given["dedicated_vcpus"] = dedicated_vcpus(specs, flavor.vcpus) or 0
    return opinion.asked(inventory, spec.instance_uuid, given)


ROUTES = (Route("POST", "/scheduler/nova/external", external, "schedulers", lane="question"),)
