"""Workloads: put, get, delete, list named solo profiles."""

from __future__ import annotations

from fastapi import Response

from api.routes.common import AdvisorDep, Cursor, Limit, PathName
from api.schemas.inventory import WorkloadBody, WorkloadItem
from api.schemas.pages import PageOut


def put(workload: PathName, body: WorkloadBody, advisor: AdvisorDep, response: Response) -> WorkloadItem:
    """Create or replace a workload's solo profile."""
    wanted = body.to_domain(workload)
    if advisor.put_workload(wanted):
        response.status_code = 201
    return WorkloadItem.of(wanted)


def get(workload: PathName, advisor: AdvisorDep) -> WorkloadItem:
    """One workload's solo profile."""
    return WorkloadItem.of(advisor.workload(workload))


def delete(workload: PathName, advisor: AdvisorDep) -> None:
    """Delete a workload; instances that name it become unknown."""
    advisor.delete_workload(workload)


def listing(advisor: AdvisorDep, cursor: Cursor = None, limit: Limit = 100) -> PageOut[WorkloadItem]:
    """All workloads, in pages."""
    page = advisor.workloads(cursor=cursor, limit=limit)
    return PageOut(items=[WorkloadItem.of(workload) for workload in page.items], next_cursor=page.next_cursor)
