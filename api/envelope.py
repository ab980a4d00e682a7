"""What is around every request: its id, its size limit, safe headers, the log line, and an answer when code breaks."""

from __future__ import annotations

import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import OF_STATUS, respond, unexpected
from api.telemetry import Telemetry

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")
PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
API_POLICY = "default-src 'none'; frame-ancestors 'none'"
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Envelope:
    """Outermost: gives the request an id, times and logs it, adds the headers, and turns a crash into a 500 problem.

    Also answers HEAD as GET without the body, for every path.
    """

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self.app = app
        self.telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.match(given) else uuid.uuid4().hex
        is_head = scope["method"] == "HEAD"
        inner = {
            **scope,
            "method": "GET" if is_head else scope["method"],
            "state": {**scope.get("state", {}), "request_id": request_id},
        }
        started, status, size = time.perf_counter(), 0, 0

        async def enveloped(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                _add_headers(MutableHeaders(raw=message["headers"]), request_id)
            elif message["type"] == "http.response.body":
                message = {**message, "body": b""} if is_head else message
                size += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(inner, receive, enveloped)
        except Exception as error:  # noqa: BLE001 - the last resort; it is logged whole
            answer = unexpected(Request(inner), error)
            if status == 0:
                await answer(inner, receive, enveloped)
        finally:
            seen = {**inner, "method": scope["method"]}
            self.telemetry.request_done(seen, request_id, status, time.perf_counter() - started, size)


def _add_headers(headers: MutableHeaders, request_id: str) -> None:
    headers["X-Request-ID"] = request_id
    for name, value in _ALWAYS.items():
        headers[name] = value
    page = headers.get("content-type", "").startswith("text/html")
    headers["Content-Security-Policy"] = PAGE_POLICY if page else API_POLICY
    headers.setdefault("Cache-Control", "no-cache" if "etag" in headers else "no-store")


class BodyLimit:
    """Refuse a body over the limit: by its announced length before a byte is read, else as soon as it grows over it.

    Refuse a compressed one too: nobody can say how large it is before it is unpacked.
    Starlette has such a middleware; its answer is plain text and cannot be changed.
    """

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self.app = app
        self.most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if headers.get("content-encoding", "identity").strip().lower() != "identity":
            await respond(Request(scope), OF_STATUS[415], "compressed bodies are not read")(scope, receive, send)
            return
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > self.most_bytes:
            await respond(Request(scope), OF_STATUS[413], self._detail)(scope, receive, send)
            return
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self.most_bytes:
                raise HTTPException(413, self._detail)
            return message

        await self.app(scope, counted, send)

    @property
    def _detail(self) -> str:
        return f"the body is larger than {self.most_bytes / 2**20:g} MiB"
