"""Who may ask, who asks, and who did what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

# act is that of an agent which changes settings of its host: it gets orders, and opens nothing else.
TokenScope = Literal["act", "read", "write", "admin"]
TOKEN_SCOPES: tuple[TokenScope, ...] = get_args(TokenScope)  # each but act includes those before it


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is listed: its secret is known only to who got it. `expires_at` None = never.

    One with a `host` is an agent's: it may send what belongs to that host, and nothing else.
    """

    id: str
    name: str
    scope: TokenScope
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    host: str = ""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and what they may: `actor` is `local`, `token:ID` or `keystone:USER`; `name` is for people.

    With a `host` it is the agent of that one.
    """

    actor: str
    scope: TokenScope
    name: str = field(default="", compare=False)
    host: str = ""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who changed something or got an answer."""

    id: Annotated[str, Field(description="the entry's id")]
    at: Annotated[datetime, Field(description="when")]
    actor: Annotated[str, Field(description="`local`, `token:ID` or `keystone:USER`")]
    request_id: Annotated[str, Field(description="as in the log and in X-Request-ID; empty for a command")]
    operation: Annotated[str, Field(description="what was done, see docs/access.md")]
    objects: Annotated[
        tuple[str, ...], Field(description="ids that it is about; empty for bulk calls, whose counts are in `detail`")
    ]
    detail: Annotated[Mapping[str, Any], Field(description="counts and names")]


EventKind = Literal["alarm", "plan", "change", "model", "inventory"]


@dataclass(frozen=True, slots=True)
class ServiceEvent:
    """Something that happened: `name` is its kind, a dot and what happened, `details` its details, as in JSON.

    Ids sort by time.
    """

    id: str
    name: str
    details: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """An EventKind."""
        return self.name.partition(".")[0]
