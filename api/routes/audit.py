"""The audit log: who changed something or got an answer."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from advisor.domain import AuditEntry
from api.routes.common import AccessDep, Cursor, Limit, QueryId
from api.schemas.base import TEXT_PATTERN, PageOut

QueryName = Annotated[
    str | None, Query(alias="object", pattern=TEXT_PATTERN, min_length=1, max_length=255, description="an id in it")
]


def listing(
    access: AccessDep, actor: QueryId = None, named: QueryName = None, cursor: Cursor = None, limit: Limit = 100
) -> PageOut[AuditEntry]:
    """Who changed something or got an answer, newest first, in pages; all, or of one actor, or about one object."""
    page = access.audit(actor=actor, named=named, cursor=cursor, limit=limit)
    return PageOut(items=list(page.items), next_cursor=page.next_cursor)
