"""Instances: put, get, delete, list; where they are, pinning, settings, workload, and what they were measured to do."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from advisor.domain import InstanceObtained
from api.http.conditional import Condition, IfMatch, IfNew, IfNoneMatch, tag, unless_known
from api.routes.common import Cursor, InventoryDep, Limit, PathId, QueryId, QueryName, TelemetryDep
from api.schemas.base import TEXT_PATTERN, PageOut
from api.schemas.commands import ProfileAnswer
from api.schemas.inventory import InstanceBody, InstanceItem

Since = Annotated[
    str, Query(pattern=r"^[1-9][0-9]{0,5}[smhd]$", description="how far back: 90m, 24h, 7d; `s`, `m`, `h` or `d`")
]


def put(
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


def get(
    instance: PathId, inventory: InventoryDep, response: Response, if_none_match: IfNoneMatch = None
) -> InstanceItem:
    """One instance."""
    return unless_known(InstanceItem.of(inventory.instance(instance)), if_none_match, response)


def delete(instance: PathId, inventory: InventoryDep, if_match: IfMatch = None) -> None:
    """Delete an instance."""
    inventory.delete_instance(instance, only_if=Condition(InstanceItem.of, if_match))


def profile(instance: PathId, telemetry: TelemetryDep, since: Since = "24h") -> ProfileAnswer:
    """What an instance does, phase by phase, by its stored samples; at most 10,000 windows are looked at."""
    return ProfileAnswer.of(telemetry.profile(instance, since=since))


def obtained(instance: PathId, telemetry: TelemetryDep, since: Since = "24h") -> InstanceObtained:
    """What an instance obtained as it was measured: CPU time, and its stalls at disks and networks."""
    return telemetry.obtained(instance, since=since)


def listing(
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
