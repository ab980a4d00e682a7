"""What is around every request: its id, safe headers, the log line, and an answer when code breaks."""

from __future__ import annotations

import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from advisor import stages
from api.problems import unexpected
from api.telemetry import Telemetry

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")
PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
API_POLICY = "default-src 'none'; frame-ancestors 'none'"
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # tells other sites nothing; no-referrer would give our own forms Origin: null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Envelope:
    """The outermost layer: gives the request an id, times and logs it, adds headers, turns a crash into a 500 problem.

    It also answers HEAD on every path: as GET, without the body.
    """

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self.app = app
        self.telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        header = Headers(scope=scope).get("x-request-id", "")
        request_id = header if _REQUEST_ID.match(header) else uuid.uuid4().hex
        is_head = scope["method"] == "HEAD"
        inner = {
            **scope,
            "method": "GET" if is_head else scope["method"],
            "state": {**scope.get("state", {}), "request_id": request_id, "is_head": is_head},
        }
        started, status, size = time.perf_counter(), 0, 0
        self.telemetry.request_began()

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
            with stages.watched_by(self.telemetry):
                await self.app(inner, receive, enveloped)
        except Exception as error:  # noqa: BLE001 - the last resort; it is logged whole
            answer = unexpected(Request(inner), error)
            if status == 0:
                await answer(inner, receive, enveloped)
        finally:
            done = {**inner, "method": scope["method"]}
            self.telemetry.request_done(done, request_id, status, time.perf_counter() - started, size)


def _add_headers(headers: MutableHeaders, request_id: str) -> None:
    headers["X-Request-ID"] = request_id
    for name, value in _ALWAYS.items():
        headers[name] = value
    page = headers.get("content-type", "").startswith("text/html")
    headers["Content-Security-Policy"] = PAGE_POLICY if page else API_POLICY
    headers.setdefault("Cache-Control", "no-cache" if "etag" in headers else "no-store")
