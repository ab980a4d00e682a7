"""Instances: put, get, delete, list; where they are, pinning, settings, workload, and what they were measured to do."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from api.routes.common import AdvisorDep, Cursor, Limit, PathId, QueryId
from api.schemas.inventory import InstanceBody, InstanceItem
from api.schemas.pages import PageOut
from api.schemas.profiles import ProfileAnswer

Since = Annotated[
    str, Query(pattern=r"^[0-9]{1,6}[smhd]$", description="how far back: 90m, 24h, 7d; `s`, `m`, `h` or `d`")
]


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


def profile(instance: PathId, advisor: AdvisorDep, since: Since = "24h") -> ProfileAnswer:
    """What an instance does, phase by phase, by its stored samples; at most 10,000 windows are looked at."""
    return ProfileAnswer.of(advisor.profile(instance, since=since))


def listing(
    advisor: AdvisorDep, host: QueryId = None, cursor: Cursor = None, limit: Limit = 100
) -> PageOut[InstanceItem]:
    """All instances, or those on one host, in pages."""
    page = advisor.instances(host=host, cursor=cursor, limit=limit)
    return PageOut(items=[InstanceItem.of(instance) for instance in page.items], next_cursor=page.next_cursor)
