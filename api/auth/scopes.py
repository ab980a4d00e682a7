"""What a caller may do: read includes no other scope, write includes read, admin includes both."""

from __future__ import annotations

from typing import Literal

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from advisor.domain import TOKEN_SCOPES, Caller, TokenScope

Needs = TokenScope | Literal["open"]  # what a route asks for; open = no token


def require(request: Request, scope: TokenScope) -> None:
    """Answer 403 unless the caller has this scope; nobody having come through the gate has none."""
    caller: Caller | None = getattr(request.state, "caller", None)
    if caller is None or TOKEN_SCOPES.index(caller.scope) < TOKEN_SCOPES.index(scope):
        has = caller.scope if caller else "none"
        raise HTTPException(403, f"this needs a token of scope {scope}, and yours is of scope {has}")


class Guarded:
    """A route behind its scope, which is looked at before a byte of the body is read."""

    def __init__(self, app: ASGIApp, scope: TokenScope) -> None:
        self.app = app
        self.scope = scope

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        require(Request(scope), self.scope)
        await self.app(scope, receive, send)
