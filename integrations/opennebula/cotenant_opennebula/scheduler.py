"""OpenNebula: the external scheduler of 6.8-6.10 over HTTP, and what the scripts of 7.x ask.

Bodies by Scheduler.cc and VirtualMachineXML.cc of 6.10.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

from pydantic import ConfigDict, Field, StrictInt

from advisor.domain import Instance, Inventory, PlacementRequest
from advisor.domain.names import whole
from advisor.errors import InvalidInput
from advisor.service import InventoryService
from api import opinion
from api.opinion import MOST_HOSTS, Incoming
from api.routes.common import CloudDep, InventoryDep, PlacementDep, SettingsDep, check_batch
from api.routing import Route
from api.schemas.base import WHOLE, Amount, AnswerBody
from api.schemas.base import Number as Finite
from profiler.observed import MAX_CPUS

LABEL = "opennebula_id"  # of a host: its number there, where that is not its name here
PREFIX = "COTENANT_"
WITHIN_S = 20.0  # for the search for moves: OpenNebula asks every ten minutes (DRS_INTERVAL 600)


Number = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1), WHOLE]


class VmCapacity(Incoming):
    """What a virtual machine asks for."""

    cpu: Amount = Field(default=0.0, alias="CPU", description="share of physical CPUs, 0.5 = half a one")
    memory: Amount = Field(default=0.0, alias="MEMORY", description="KiB")
    disk_size: Amount = Field(default=0.0, alias="DISK_SIZE", description="MiB of the system datastore")


class VmRequest(Incoming):
    """A virtual machine that is to be placed, and where it could go."""

    id: Number = Field(alias="ID", description="number of the virtual machine")
    state: str = Field(default="", alias="STATE", description="its state, such as PENDING; not read")
    host_ids: Annotated[list[Number], Field(max_length=MOST_HOSTS)] = Field(
        default=[], alias="HOST_IDS", description="numbers of hosts that it could go to"
    )
    host_id: Number | None = Field(default=None, alias="HOST_ID", description="where it is, if it is anywhere")
    capacity: VmCapacity = Field(default=VmCapacity(), alias="CAPACITY", description="what it asks for")
    attributes: dict[str, str | StrictInt | Finite] = Field(
        default={},
        alias="VM_ATTRIBUTES",
        description="its template's attributes; `COTENANT_…` among them say what it runs and accepts",
    )


class PlaceBody(Incoming):
    """Virtual machines to be placed, or looked at."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "VMS": [
                        {
                            "ID": 32,
                            "STATE": "PENDING",
                            "HOST_IDS": [3, 4, 5],
                            "CAPACITY": {"CPU": 1.5, "MEMORY": 131072, "DISK_SIZE": 1024},
                            "VM_ATTRIBUTES": {"GNAME": "web", "COTENANT_WORKLOAD": "web-1k", "VCPU": "2"},
                        }
                    ]
                }
            ]
        }
    )

    vms: Annotated[list[VmRequest], Field(alias="VMS")] = Field(
        description="the virtual machines, in the order in which they are answered"
    )


class OptimizeBody(PlaceBody):
    """Virtual machines of a cluster that may move."""

    limit: Annotated[int, Field(strict=True, ge=1, le=1000), WHOLE] = Field(
        default=10, alias="LIMIT", description="most moves"
    )


class VmPlacement(AnswerBody):
    """Where one goes; without `HOST_ID` OpenNebula decides."""

    id: int = Field(serialization_alias="ID", description="number of the virtual machine")
    host_id: int | None = Field(
        default=None, serialization_alias="HOST_ID", description="number of the host that it should go to"
    )
    error: str | None = Field(default=None, serialization_alias="ERROR", description="what it says wrongly of itself")


class PlaceAnswer(AnswerBody):
    """The answer, one line per virtual machine that there is something to say of."""

    vms: list[VmPlacement] = Field(serialization_alias="VMS", description="where each goes")


def place(
    body: PlaceBody, cloud: CloudDep, inventory: InventoryDep, placements: PlacementDep, settings: SettingsDep
) -> PlaceAnswer:
    """Where each virtual machine goes, for OpenNebula's external scheduler; each counts for those after it.

    Only hosts of the machine's own list are answered. Without advice `HOST_ID` is left out, and OpenNebula ranks by
    itself; its protocol cannot say that no host is good enough. `ERROR` says what a machine says wrongly of itself: an
    HTTP status would leave all others without advice.
    """
    check_batch(body.vms, settings, "VMS")
    numbers = _numbers(cloud.inventory())
    names = {number: name for name, number in numbers.items()}
    questions: dict[int, PlacementRequest] = {}
    wrong: dict[int, str] = {}
    for vm in body.vms:
        hosts = [names[number] for number in vm.host_ids if number in names]
        if hosts:
            try:
                questions[vm.id] = opinion.question(_instance(vm, inventory), hosts)
            except InvalidInput as error:
                wrong[vm.id] = error.message
    answers = (
        dict(zip(questions, placements.in_turn(tuple(questions.values()), hold=True), strict=True)) if questions else {}
    )
    first = {vm: answer.candidates[0].host for vm, answer in answers.items() if answer.candidates}
    placement_of = {vm.id: VmPlacement(id=vm.id) for vm in body.vms}
    placement_of |= {vm: VmPlacement(id=vm, error=why) for vm, why in wrong.items()}
    placement_of |= {vm: VmPlacement(id=vm, host_id=numbers[host]) for vm, host in first.items()}
    return PlaceAnswer(vms=list(placement_of.values()))


def optimize(body: OptimizeBody, cloud: CloudDep, placements: PlacementDep, settings: SettingsDep) -> PlaceAnswer:
    """Which virtual machines should move, and where to, because a machine gains more by it than is uncertain.

    `HOST_ID` is where each is, `HOST_IDS` where it could go. Those that stay are not in the answer.
    """
    check_batch(body.vms, settings, "VMS")
    inventory = cloud.inventory()
    numbers = _numbers(inventory)
    names = {number: name for name, number in numbers.items()}
    where = {instance.id: instance.host for instance in inventory.instances}
    vms = {
        _name(vm): vm
        for vm in body.vms
        if vm.host_id in names and where.get(_name(vm)) == names[vm.host_id]  # else the inventory is behind
    }
    targets = {name: [names[number] for number in vm.host_ids if number in names] for name, vm in vms.items()}
    moves = placements.improvements(targets, most=body.limit, within_s=WITHIN_S)
    return PlaceAnswer(
        vms=[VmPlacement(id=vms[move.instance].id, host_id=numbers[move.target]) for move in moves if move.target]
    )


def _name(vm: VmRequest) -> str:
    """Its name on the host: OpenNebula's deployment id on KVM and LXC, which the profiler reports, too."""
    return f"one-{vm.id}"


def _numbers(inventory: Inventory) -> dict[str, int]:
    """OpenNebula's number of each host that has one: its label, else its name where that is a number."""
    texts = {host.id: host.labels.get(LABEL, host.id) for host in inventory.hosts}
    return {name: int(text) for name, text in texts.items() if text.isascii() and text.isdecimal() and len(text) <= 9}


def _instance(vm: VmRequest, inventory: InventoryService) -> Instance:
    attributes: Mapping[str, str] = {name: str(value) for name, value in vm.attributes.items()}
    cpus = vm.capacity.cpu
    if "VCPU" in attributes:
        try:
            cpus = whole(attributes["VCPU"])
        except ValueError as error:
            raise InvalidInput(f"VCPU {attributes['VCPU'][:60]!r}: {error}", field="VM_ATTRIBUTES.VCPU") from error
    given = opinion.described(
        attributes,
        lambda field: PREFIX + field.upper(),
        vcpus=min(max(1, math.ceil(round(cpus, 6))), MAX_CPUS) if cpus else None,
        memory_mb=vm.capacity.memory / 1024 if vm.capacity.memory else None,
        disk_gb=vm.capacity.disk_size / 1024 if vm.capacity.disk_size else None,
    )
    return opinion.asked(inventory, _name(vm), given)


ROUTES = (
    Route("POST", "/opennebula/place", place, "schedulers", lane="question"),
    Route("POST", "/opennebula/optimize", optimize, "schedulers", lane="long", scope="read"),
)
