"""Instances: put, get, delete, list; where they are, pinning, settings, workload."""

from __future__ import annotations

from fastapi import Response

from api.routes.common import AdvisorDep, Cursor, Limit, PathId, QueryId
from api.schemas.inventory import InstanceBody, InstanceItem
from api.schemas.pages import PageOut


def put(instance: PathId, body: InstanceBody, advisor: AdvisorDep, response: Response) -> InstanceItem:
    """Create or replace an instance."""
    wanted = body.to_domain(instance)
    if advisor.put_instance(wanted):
        response.status_code = 201
    return InstanceItem.of(wanted)


def get(instance: PathId, advisor: AdvisorDep) -> InstanceItem:
    """One instance."""
    return InstanceItem.of(advisor.instance(instance))


def delete(instance: PathId, advisor: AdvisorDep) -> None:
    """Delete an instance."""
    advisor.delete_instance(instance)


def listing(
    advisor: AdvisorDep, host: QueryId = None, cursor: Cursor = None, limit: Limit = 100
) -> PageOut[InstanceItem]:
    """All instances, or those on one host, in pages."""
    page = advisor.instances(host=host, cursor=cursor, limit=limit)
    return PageOut(items=[InstanceItem.of(instance) for instance in page.items], next_cursor=page.next_cursor)
