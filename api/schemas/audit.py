"""The schema of an entry of the audit log."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from api.schemas.base import AnswerBody, Time


class AuditOut(AnswerBody):
    """Who changed something or got an answer: `objects` are the ids that it is about, `detail` is what else to know."""

    id: str = Field(description="the entry's id")
    at: Time = Field(description="when")
    actor: str = Field(description="`local`, `token:ID` or `keystone:USER`")
    request_id: str = Field(description="as in the log and in X-Request-ID; empty for a command")
    operation: str = Field(description="what was done, see docs/access.md")
    objects: list[str] = Field(description="ids that it is about")
    detail: dict[str, Any] = Field(description="counts and names")
