"""Hosts: put, get, delete, list."""

from __future__ import annotations

from fastapi import Response

from api.routes.common import AdvisorDep, Cursor, Limit, PathId
from api.schemas.inventory import HostBody, HostItem
from api.schemas.pages import PageOut


def put(host: PathId, body: HostBody, advisor: AdvisorDep, response: Response) -> HostItem:
    """Create or replace a host."""
    wanted = body.to_domain(host)
    if advisor.put_host(wanted):
        response.status_code = 201
    return HostItem.of(wanted)


def get(host: PathId, advisor: AdvisorDep) -> HostItem:
    """One host."""
    return HostItem.of(advisor.host(host))


def delete(host: PathId, advisor: AdvisorDep) -> None:
    """Delete a host; refused while instances are on it."""
    advisor.delete_host(host)


def listing(advisor: AdvisorDep, cursor: Cursor = None, limit: Limit = 100) -> PageOut[HostItem]:
    """All hosts, in pages."""
    page = advisor.hosts(cursor=cursor, limit=limit)
    return PageOut(items=[HostItem.of(host) for host in page.items], next_cursor=page.next_cursor)
