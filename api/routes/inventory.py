"""The inventory: hosts, instances and workloads one by one, and all of it in one call, guarded by its generation."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Header, Query, Response
from pydantic import AfterValidator, WithJsonSchema

from advisor.domain import HostSlowing, InstanceObtained
from advisor.errors import InvalidInput
from api.http.conditional import Condition, IfMatch, IfNew, IfNoneMatch, tag, unless_known
from api.routes.common import (
    CloudDep,
    Cursor,
    InventoryDep,
    Limit,
    PathId,
    PathName,
    QueryId,
    QueryName,
    QueryPlatform,
    SettingsDep,
    TelemetryDep,
    check_batch,
)
from api.schemas.base import TEXT_PATTERN, PageOut
from api.schemas.commands import ProfileAnswer
from api.schemas.inventory import (
    Generation,
    GenerationStored,
    HostBody,
    HostItem,
    HostStored,
    InstanceBody,
    InstanceItem,
    InventoryBody,
    WorkloadBody,
    WorkloadItem,
)
from profiler.host_kinds import HostKind

Since = Annotated[
    str, Query(pattern=r"^[1-9][0-9]{0,5}[smhd]$", description="how far back: 90m, 24h, 7d; `s`, `m`, `h` or `d`")
]


def put_instance(
    instance: PathId,
    body: InstanceBody,
    inventory: InventoryDep,
    response: Response,
    if_match: IfMatch = None,
    if_none_match: IfNew = None,
) -> InstanceItem:
    """Create or replace an instance."""
    new_instance = body.to_domain(instance)
    if inventory.put_instance(new_instance, only_if=Condition(InstanceItem.of, if_match, if_none_match)):
        response.status_code = 201
    item = InstanceItem.of(inventory.instance(instance))  # with its measured demand
    response.headers["ETag"] = tag(item)
    return item


def get_instance(
    instance: PathId, inventory: InventoryDep, response: Response, if_none_match: IfNoneMatch = None
) -> InstanceItem:
    """One instance."""
    return unless_known(InstanceItem.of(inventory.instance(instance)), if_none_match, response)


def delete_instance(instance: PathId, inventory: InventoryDep, if_match: IfMatch = None) -> None:
    """Delete an instance."""
    inventory.delete_instance(instance, only_if=Condition(InstanceItem.of, if_match))


def profile(instance: PathId, telemetry: TelemetryDep, since: Since = "24h") -> ProfileAnswer:
    """What an instance does, phase by phase, by its stored samples; at most 10,000 windows are looked at."""
    return ProfileAnswer.of(telemetry.profile(instance, since=since))


def obtained(instance: PathId, telemetry: TelemetryDep, since: Since = "24h") -> InstanceObtained:
    """What an instance obtained as it was measured: CPU time, and its stalls at disks and networks."""
    return telemetry.obtained(instance, since=since)


def list_instances(
    inventory: InventoryDep,
    host: QueryId = None,
    workload: QueryName = None,
    q: Annotated[
        str | None,
        Query(
            pattern=TEXT_PATTERN, min_length=1, max_length=255, description="a part of the id or of the label `name`"
        ),
    ] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> PageOut[InstanceItem]:
    """All instances, or those on one host, of one workload or of such a name, in pages."""
    page = inventory.instances(host=host, workload=workload, part=q, cursor=cursor, limit=limit)
    return PageOut(items=[InstanceItem.of(instance) for instance in page.items], next_cursor=page.next_cursor)


# Names of labels have no quotes and backslashes, which the database's query for a label cannot hold.
_PAIR = r'^[^="\\\x00-\x1f\x7f]{1,255}=[^\x00-\x1f\x7f]{0,255}$'


def _pair(text: str) -> str:
    if not re.fullmatch(_PAIR, text):
        raise ValueError("is not name=value, each at most 255 characters that can be seen")
    return text


LabelPair = Annotated[str, AfterValidator(_pair), WithJsonSchema({"type": "string", "pattern": _PAIR})]
LabelFilter = Annotated[list[LabelPair], Query(max_length=20, description="`name=value`; may be repeated")]


def put_host(
    host: PathId,
    body: HostBody,
    inventory: InventoryDep,
    response: Response,
    if_match: IfMatch = None,
    if_none_match: IfNew = None,
) -> HostStored:
    """Create or replace a host. A pin of an instance there to a pCPU that the host no longer has is cut, or ends."""
    new_host, notes = body.to_domain(host), list[str]()
    if inventory.put_host(new_host, only_if=Condition(HostItem.of, if_match, if_none_match), notes=notes):
        response.status_code = 201
    item = HostItem.of(new_host)
    response.headers["ETag"] = tag(item)
    return HostStored.model_construct(**dict(item), notes=notes)


def get_host(host: PathId, inventory: InventoryDep, response: Response, if_none_match: IfNoneMatch = None) -> HostItem:
    """One host."""
    return unless_known(HostItem.of(inventory.host(host)), if_none_match, response)


def delete_host(host: PathId, inventory: InventoryDep, if_match: IfMatch = None) -> None:
    """Delete a host; refused while instances are on it."""
    inventory.delete_host(host, only_if=Condition(HostItem.of, if_match))


def slowing(host: PathId, cloud: CloudDep, telemetry: TelemetryDep, since: Since = "24h") -> HostSlowing:
    """How instances on a host slow each other down: what is predicted of each pair beside what was measured."""
    return HostSlowing.of(telemetry.slowing(host, since=since), cloud.host(host).slowing)


def list_hosts(
    inventory: InventoryDep,
    label: LabelFilter = [],  # noqa: B006 - FastAPI copies it
    kind: Annotated[HostKind | None, Query(description="only hosts of this hypervisor")] = None,
    enabled: Annotated[bool | None, Query(description="only hosts that take instances, or only others")] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> PageOut[HostItem]:
    """All hosts, or those that have every named label, are of one kind, are enabled or not, in pages."""
    labels = dict(pair.split("=", 1) for pair in label)
    if len(labels) < len(label):
        raise InvalidInput("a label can have one value only; name each once", field="label")
    page = inventory.hosts(labels=labels, kind=kind, enabled=enabled, cursor=cursor, limit=limit)
    return PageOut(items=[HostItem.of(host) for host in page.items], next_cursor=page.next_cursor)


def put_workload(
    workload: PathName,
    body: WorkloadBody,
    inventory: InventoryDep,
    response: Response,
    if_match: IfMatch = None,
    if_none_match: IfNew = None,
) -> WorkloadItem:
    """Create or replace a workload's solo profile; conditions are about the one on the platform that the body names."""
    profile = body.to_domain(workload)
    if inventory.put_workload(profile, only_if=Condition(WorkloadItem.of, if_match, if_none_match)):
        response.status_code = 201
    item = WorkloadItem.of(profile)
    response.headers["ETag"] = tag(item)
    return item


def get_workload(
    workload: PathName,
    inventory: InventoryDep,
    response: Response,
    platform: QueryPlatform = None,
    if_none_match: IfNoneMatch = None,
) -> WorkloadItem:
    """One workload's solo profile: that of one platform, else the one that holds everywhere, or else any."""
    return unless_known(WorkloadItem.of(inventory.workload(workload, platform=platform)), if_none_match, response)


def delete_workload(workload: PathName, inventory: InventoryDep, if_match: IfMatch = None) -> None:
    """Delete a workload; instances that name it become unknown.

    It goes on every platform; `If-Match` is about what a GET without `platform` answers.
    """
    inventory.delete_workload(workload, only_if=Condition(WorkloadItem.of, if_match))


def list_workloads(
    inventory: InventoryDep, platform: QueryPlatform = None, cursor: Cursor = None, limit: Limit = 100
) -> PageOut[WorkloadItem]:
    """All workloads, or those of one platform, in pages."""
    page = inventory.workloads(platform=platform, cursor=cursor, limit=limit)
    return PageOut(items=[WorkloadItem.of(workload) for workload in page.items], next_cursor=page.next_cursor)


_GENERATION = r'^(\*|"([0-9]{1,15})")$'

IfGeneration = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=100,
        description='the generation as an entity tag, `"7"`, instead of the body field',
        json_schema_extra={"format": "entity-tags", "pattern": _GENERATION},
    ),
]


def put_all(
    body: InventoryBody,
    inventory: InventoryDep,
    settings: SettingsDep,
    response: Response,
    if_match: IfGeneration = None,
) -> GenerationStored:
    """Replace or merge a whole cloud; 409 when the named generation is no longer the current one.

    To replace, send hosts and instances, which may be empty lists, or name the generation. Where a host loses a pCPU,
    pins to it of instances that are stored and not sent are cut, or end.
    """
    for field in ("hosts", "instances", "workloads"):
        check_batch(getattr(body, field), settings, field)
    expected = _expected(body.generation, if_match)
    if expected is None:
        body.check_complete()
    notes: list[str] = []
    generation = inventory.put(body.to_domain(), mode=body.mode, generation=expected, notes=notes)
    response.headers["ETag"] = f'"{generation}"'
    return GenerationStored(generation=generation, notes=notes)


def get_all(inventory: InventoryDep, response: Response, if_none_match: IfNoneMatch = None) -> Generation:
    """The current generation, to be named in the next change."""
    generation = inventory.generation()
    return unless_known(Generation(generation=generation), if_none_match, response, entity_tag=f'"{generation}"')


def _expected(generation: int | None, if_match: str | None) -> int | None:
    if if_match is None:
        return generation
    match = re.fullmatch(_GENERATION, if_match.strip())
    if not match:
        raise InvalidInput('If-Match is not an entity tag of this resource, such as "7"', field="if-match")
    if match[2] is None:
        return generation
    if generation is not None and generation != int(match[2]):
        raise InvalidInput("If-Match and the field generation name different generations", field="generation")
    return int(match[2])
