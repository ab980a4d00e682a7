"""The audit log on `/audit`, for administrators: changes and answers, newest first."""

from __future__ import annotations

import json
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import HTMLResponse

from advisor.domain import AuditEntry
from api.html.render import page
from api.routes.audit import QueryName
from api.routes.common import AccessDep, Cursor, QueryId

_ROWS = 50
_MOST_OBJECTS = 5  # ids of an entry that are shown
_LONGEST = 200  # letters of the detail


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One entry, ready to be shown."""

    it: AuditEntry
    detail: str
    objects: tuple[str, ...]
    more: int


def listing(
    request: Request, access: AccessDep, actor: QueryId = None, named: QueryName = None, cursor: Cursor = None
) -> HTMLResponse:
    """Entries of the audit log, of one actor or about one object where these are given."""
    entries = access.audit(actor=actor, named=named, cursor=cursor, limit=_ROWS)
    return page(
        request,
        "audit.html",
        rows=[_line(entry) for entry in entries.items],
        next_cursor=entries.next_cursor,
        first=cursor is None,
        actor=actor or "",
        named=named or "",
    )


def _line(entry: AuditEntry) -> AuditLine:
    detail = ", ".join(f"{key} {_text(value)}" for key, value in entry.detail.items())
    shown = entry.objects[:_MOST_OBJECTS]
    cut = f"{detail[:_LONGEST]}…" if len(detail) > _LONGEST else detail
    return AuditLine(entry, cut, shown, len(entry.objects) - len(shown))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
