"""What a caller may do: read includes no other scope, write includes read, admin includes both; act stands apart."""

from __future__ import annotations

from typing import Literal

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from advisor.domain import TOKEN_SCOPES, Caller, TokenScope

# What a route needs: open = no token; agent = write, or a token for the agent of one host, which counts nowhere else.
Needs = TokenScope | Literal["open", "agent"]


def require(request: Request, needs: TokenScope | Literal["agent"]) -> None:
    """HTTPException 403 unless the caller has this scope; a request that no gate has passed has none."""
    caller: Caller | None = getattr(request.state, "caller", None)
    scope: TokenScope = "write" if needs == "agent" else needs
    if scope == "act" and (caller is None or caller.scope != "act" or not caller.host):
        raise HTTPException(403, "this needs a token of scope act, which is for the agent of one host")
    if scope == "act":
        return
    if caller is not None and caller.scope == "act":
        raise HTTPException(403, f"this token is for orders to the agent of host {caller.host}, and for nothing else")
    if caller is not None and caller.host and needs != "agent":
        raise HTTPException(
            403,
            f"this token is for the agent of host {caller.host}; it may only send samples, announcements and probes",
        )
    if caller is None or TOKEN_SCOPES.index(caller.scope) < TOKEN_SCOPES.index(scope):
        has = caller.scope if caller else "none"
        raise HTTPException(403, f"this needs a token of scope {scope}, and yours is of scope {has}")


class Guarded:
    """A route that checks the caller's scope before a byte of the body is read."""

    def __init__(self, app: ASGIApp, scope: TokenScope | Literal["agent"]) -> None:
        self.app = app
        self.scope = scope

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        require(Request(scope), self.scope)
        await self.app(scope, receive, send)
