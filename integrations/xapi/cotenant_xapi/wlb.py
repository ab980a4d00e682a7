"""XAPI (XCP-ng, XenServer): the Workload Balancing server that a pool asks, a SOAP service with a method per question.

XAPI takes any status but 200 for a failed authentication (xapi-project/xen-api, ocaml/xapi/workload_balancing.ml). So
the envelope says what is wrong with a question, by a ResultCode other than 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from starlette.exceptions import HTTPException

from advisor.domain import Host, Instance, Inventory, asked_about, found_in
from advisor.errors import AdvisorError, InvalidInput, NotFound
from advisor.service import CloudService, PlacementService
from api import opinion
from api.routes.common import CloudDep, PlacementDep
from api.routing import Route
from cotenant_xapi import soap
from cotenant_xapi.soap import Call
from profiler.observed import check_id

MOST_STARS = 5
MOST_MOVES = 10
WITHIN_S = 10.0  # for the search for moves; XAPI waits 30 s (Xapi_globs.default_wlb_timeout)
POOL, UUID = "pool", "uuid"  # labels of hosts and instances: XAPI's uuids, where they are not the names here
FAILED = "1"


class Xml(Response):
    """An envelope."""

    media_type = soap.MEDIA_TYPE


async def raw_xml(request: Request) -> bytes:
    """The body as it came; 415 for any other type: a browser sends plain text or forms to other sites unasked."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in soap.MEDIA_TYPES:
        raise HTTPException(415, f"the body is {kind[:100] or 'of no type'}, {soap.MEDIA_TYPE} is needed")
    return await request.body()


def service(raw: Annotated[bytes, Depends(raw_xml)], cloud: CloudDep, placements: PlacementDep) -> Xml:
    """Answer a question of XAPI's Workload Balancing client.

    VMGetRecommendations, HostGetRecommendations and GetOptimizationRecommendations are answered; AddXenServer,
    RemoveXenServer and GetXenPoolConfiguration as far as XAPI needs them; every other method is refused.
    """
    try:
        call = soap.read_call(raw)
    except soap.MalformedEnvelopeError as error:
        raise HTTPException(400, str(error)) from error
    try:
        envelope = _METHODS.get(call.method, _refuse)(call, cloud, placements)
    except AdvisorError as error:
        envelope = soap.answer(call.method, {"ResultCode": FAILED, "ErrorMessage": error.message})
    return Xml(envelope)


def _vm_get_recommendations(call: Call, cloud: CloudService, placements: PlacementService) -> bytes:
    """Stars for every host of the pool: XAPI refuses an answer about more or fewer hosts than are live.

    XAPI asks this when it is about to start a VM, so the best host is held for a VM that is on no host yet.
    """
    pool = _Pool.of(cloud.inventory(), call)
    instance = pool.instance(_needed(call, "VmUuid"))
    if instance.host is None:
        scores, held = opinion.ask_and_hold(placements, instance, tuple(pool.hosts))
    else:
        scores, held = opinion.ask(placements, instance, tuple(pool.hosts)), None
    tenths = scores.points(10 * MOST_STARS, held)
    rows = []
    for number, (name, uuid) in enumerate(pool.hosts.items(), 1):
        row = {"HostUuid": uuid, "RecommendationId": str(number)}
        if name in scores.refused:
            row["ZeroScoreReason"] = scores.refused[name]
        elif name in scores.unknown:
            row["ZeroScoreReason"] = "there is no fresh data of this host"
        else:
            row["Stars"] = f"{tenths[name] / 10:.1f}"
        rows.append(row)
    return soap.answer(call.method, {}, {"Recommendations": rows})


def _host_get_recommendations(call: Call, cloud: CloudService, placements: PlacementService) -> bytes:
    """Where every VM of a host goes when it is emptied; VMs that no host can take are left out."""
    pool = _Pool.of(cloud.inventory(), call)
    host = pool.named(_needed(call, "HostUuid"))
    moves = placements.evacuation(host, [name for name in pool.hosts if name != host])
    all_placed = str(all(move.target for move in moves)).lower()
    rows = [
        {"HostUuid": pool.hosts[move.target], "RecommendationId": str(number), "VmUuid": pool.uuid_of(move.instance)}
        for number, move in enumerate(moves, 1)
        if move.target
    ]
    return soap.answer(call.method, {"CanPlaceAllVMs": all_placed}, {"Recommendations": rows} if rows else None)


def _get_optimization_recommendations(call: Call, cloud: CloudService, placements: PlacementService) -> bytes:
    """Moves that gain more than is uncertain; an empty result where there is none."""
    pool = _Pool.of(cloud.inventory(), call)
    moves = placements.improvements(pool.targets(), most=MOST_MOVES, within_s=WITHIN_S)
    if not moves:
        return soap.answer(call.method, {})
    rows = [
        {
            "VmToMoveUuid": pool.uuid_of(move.instance),
            "MoveFromHostUuid": pool.hosts[move.source],
            "MoveToHostUuid": pool.hosts[move.target],
            "Reason": move.why,
            "RecommendationId": str(number),
        }
        for number, move in enumerate(moves, 1)
        if move.target
    ]
    number_of_this = str(int(time.time() * 1000))  # XAPI takes only a number
    return soap.answer(call.method, {"OptimizationId": number_of_this}, {"Recommendations": rows})


def _add_xen_server(call: Call, cloud: CloudService, placements: PlacementService) -> bytes:  # noqa: ARG001 - the inventory comes from elsewhere
    """Registered. The XenServer's user and password that come along are neither used nor kept."""
    return soap.answer(call.method, {"Id": "1"})


def _nothing(call: Call, cloud: CloudService, placements: PlacementService) -> bytes:  # noqa: ARG001
    return soap.answer(call.method, {})


def _get_configuration(call: Call, cloud: CloudService, placements: PlacementService) -> bytes:  # noqa: ARG001
    """There are no thresholds: what an instance accepts stands in the inventory."""
    return soap.answer(call.method, {}, {"OptimizationParms": ()})


def _refuse(call: Call, cloud: CloudService, placements: PlacementService) -> bytes:  # noqa: ARG001
    raise InvalidInput(
        f"{call.method} is not answered here: limits are set on instances in the inventory, reports are at /"
    )


@dataclass(frozen=True, slots=True)
class _Pool:
    """The hosts of a pool, our name -> XAPI's uuid, and all instances, by our name."""

    hosts: Mapping[str, str]
    instances: Mapping[str, Instance]

    @classmethod
    def of(cls, inventory: Inventory, call: Call) -> _Pool:
        """Hosts with the pool's uuid as their label `pool`, or every Xen host that says nothing of a pool."""
        uuid = _needed(call, "PoolUuid")
        labelled = [host for host in inventory.hosts if host.labels.get(POOL) == uuid]
        hosts = labelled or [host for host in inventory.hosts if host.kind == "xen" and POOL not in host.labels]
        if not hosts:
            raise NotFound(f"the inventory has no hosts of pool {uuid[:60]}; put them with the label {POOL}")
        return cls(
            {host.id: _uuid(host) for host in hosts}, {instance.id: instance for instance in inventory.instances}
        )

    def named(self, uuid: str) -> str:
        """Our name of a host; NotFound when it is none of the pool."""
        for name, host_uuid in self.hosts.items():
            if uuid in {name, host_uuid}:
                return name
        raise NotFound(f"the inventory has no host {uuid[:60]} in this pool")

    def instance(self, uuid: str) -> Instance:
        """A VM as the inventory has it, by its id or its label `uuid`; InvalidInput where it has none such."""
        try:
            check_id(uuid)
        except ValueError as error:
            raise InvalidInput(str(error), field="VmUuid") from error
        labelled = next((name for name, known in self.instances.items() if known.labels.get(UUID) == uuid), uuid)
        return asked_about(uuid if uuid in self.instances else labelled, {}, found_in(self.instances.values()))

    def uuid_of(self, name: str) -> str:
        """XAPI's uuid of an instance."""
        return _uuid(self.instances[name]) if name in self.instances else name

    def targets(self) -> dict[str, list[str]]:
        """Instances on the pool's hosts, and where each may go."""
        return {instance.id: list(self.hosts) for instance in self.instances.values() if instance.host in self.hosts}


def _uuid(thing: Host | Instance) -> str:
    return thing.labels.get(UUID, thing.id)


def _needed(call: Call, name: str) -> str:
    if not call.parameters.get(name):
        raise InvalidInput(f"{call.method} names no {name}", field=name)
    return call.parameters[name]


_METHODS: Mapping[str, Callable[[Call, CloudService, PlacementService], bytes]] = {
    "VMGetRecommendations": _vm_get_recommendations,
    "HostGetRecommendations": _host_get_recommendations,
    "GetOptimizationRecommendations": _get_optimization_recommendations,
    "AddXenServer": _add_xen_server,
    "RemoveXenServer": _nothing,
    "GetXenPoolConfiguration": _get_configuration,
}

# What the route's description says of its body, which is read above and not by FastAPI.
_POOL = ("PoolUuid",)
_ENVELOPE = soap.describe(
    {"VMGetRecommendations": ("PoolUuid", "VmUuid"), "HostGetRecommendations": ("HostUuid", "PoolUuid")}
    | dict.fromkeys(("GetOptimizationRecommendations", "RemoveXenServer", "GetXenPoolConfiguration"), _POOL)
    | {"AddXenServer": ()}
)
BODY: Mapping[str, Any] = {
    "required": True,
    "content": {media_type: {"schema": _ENVELOPE} for media_type in soap.MEDIA_TYPES},
}


ROUTES = (
    Route("POST", "/Citrix.Dwm.WorkloadBalance/Service", service, "schedulers", answers=Xml, body=BODY, lane="long"),
)
