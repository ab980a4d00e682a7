"""Workloads: put, get, delete, list named solo profiles."""

from __future__ import annotations

from fastapi import Response

from api.http.conditional import Condition, IfMatch, IfNew, IfNoneMatch, tag, unless_known
from api.routes.common import Cursor, InventoryDep, Limit, PathName, QueryPlatform
from api.schemas.base import PageOut
from api.schemas.inventory import WorkloadBody, WorkloadItem


def put(
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


def get(
    workload: PathName,
    inventory: InventoryDep,
    response: Response,
    platform: QueryPlatform = None,
    if_none_match: IfNoneMatch = None,
) -> WorkloadItem:
    """One workload's solo profile: that of one platform, else the one that holds everywhere, or else any."""
    return unless_known(WorkloadItem.of(inventory.workload(workload, platform=platform)), if_none_match, response)


def delete(workload: PathName, inventory: InventoryDep, if_match: IfMatch = None) -> None:
    """Delete a workload; instances that name it become unknown.

    It goes on every platform; `If-Match` is about what a GET without `platform` answers.
    """
    inventory.delete_workload(workload, only_if=Condition(WorkloadItem.of, if_match))


def listing(
    inventory: InventoryDep, platform: QueryPlatform = None, cursor: Cursor = None, limit: Limit = 100
) -> PageOut[WorkloadItem]:
    """All workloads, or those of one platform, in pages."""
    page = inventory.workloads(platform=platform, cursor=cursor, limit=limit)
    return PageOut(items=[WorkloadItem.of(workload) for workload in page.items], next_cursor=page.next_cursor)
