"""OpenNebula: the external scheduler of 6.8-6.10 over HTTP, and what the scripts of 7.x ask."""

from __future__ import annotations

import math
from collections.abc import Mapping

from advisor.domain import Instance, Inventory, PlacementRequest
from advisor.domain.said import whole
from advisor.errors import InvalidInput
from advisor.service import InventoryService
from api.routes.common import CloudDep, InventoryDep, PlacementDep, SettingsDep, check_batch
from api.routing import Route
from api.schedulers import opinion
from api.schemas.schedulers.opennebula import OptimizeBody, PlaceAnswer, PlaceBody, VmPlacement, VmRequest
from profiler.observed import MAX_CPUS

LABEL = "opennebula_id"  # of a host: its number there, where that is not its name here
PREFIX = "COTENANT_"
WITHIN_S = 20.0  # for the search for moves: OpenNebula asks every ten minutes (DRS_INTERVAL 600)


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
