"""Who may ask, who asks, and who did what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

TokenScope = Literal["read", "write", "admin"]
TOKEN_SCOPES: tuple[TokenScope, ...] = get_args(TokenScope)  # each includes those before it


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
    """An entry of the audit log: `objects` are the ids it is about, `detail` what else there is to say.

    `request_id` is empty where it was a command. Bulk calls name no objects, their counts stand in `detail`.
    """

    id: str
    at: datetime
    actor: str
    request_id: str
    operation: str
    objects: tuple[str, ...]
    detail: Mapping[str, Any]


EventKind = Literal["alarm", "plan", "change", "model", "inventory"]


@dataclass(frozen=True, slots=True)
class ServiceEvent:
    """Something that happened: `name` is its kind, a dot and what happened, `told` its details, as in JSON.

    Ids sort by time.
    """

    id: str
    name: str
    told: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """An EventKind."""
        return self.name.partition(".")[0]
