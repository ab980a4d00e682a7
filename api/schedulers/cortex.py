"""OpenStack Nova's external scheduler call, as Cortex answers it and SAP's Nova asks it."""

from __future__ import annotations

from advisor.domain import Instance, dedicated_vcpus
from advisor.errors import InvalidInput
from advisor.service import InventoryService
from api.routes.common import CloudDep, InventoryDep, PlacementDep
from api.routing import Route
from api.schedulers import opinion
from api.schemas.schedulers.cortex import ExternalAnswer, ExternalBody
from profiler.observed import MAX_CPUS

PREFIX = "cotenant:"  # of extra specs


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
