"""How much time a request has: as much as its header `X-Request-Timeout` says, up to what the service allows."""

from __future__ import annotations

import re

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from advisor import deadline
from advisor.errors import InvalidInput
from api.problems import OF_ERROR, respond

HEADER = "X-Request-Timeout"
_SECONDS = re.compile(r"\d{1,6}(\.\d{1,20})?s?\Z")  # programs write many decimals, such as those of 0.1 + 0.2


class Deadlines:
    """Gives every request its time, counted from when its head has been read."""

    def __init__(self, app: ASGIApp, most_s: float) -> None:
        self.app = app
        self.most_s = most_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        header = Headers(scope=scope).get(HEADER)
        if header is not None and not (_SECONDS.match(header) and float(header.rstrip("s")) > 0):
            detail = f"{HEADER} is not a number of seconds above 0, such as 2.5"
            answer = respond(Request(scope), OF_ERROR[InvalidInput], detail, field=HEADER.lower())
            await answer(scope, receive, send)
            return
        with deadline.within(self.most_s if header is None else min(float(header.rstrip("s")), self.most_s)):
            await self.app(scope, receive, send)
