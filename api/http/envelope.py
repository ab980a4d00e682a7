"""What is around every request: its id, safe headers, the log line, the time it has, how often a caller may ask."""

from __future__ import annotations

import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from advisor import deadline
from advisor.errors import InvalidInput
from api.problems import OF_ERROR, respond, unexpected
from api.telemetry import Telemetry

# How much time a request has: as much as its header `X-Request-Timeout` says, up to what the service allows.

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


# How often one caller may ask: a token bucket for each, in the memory of one worker.

MOST_CALLERS = 10_000  # buckets that are remembered; beyond them the longest unused one is forgotten, as if full


class RateLimit:
    """Allows each caller `per_s` requests per second and `burst` at once; 0 per second = no limit. Not thread-safe.

    A bucket is one number, the time at which it will be full again (the generic cell rate algorithm, ITU-T I.371).
    """

    def __init__(self, per_s: float, burst: int, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._step_s = 1 / per_s if per_s else 0.0
        self._room_s = (burst - 1) * self._step_s
        self._monotonic = monotonic
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, caller: str) -> float:
        """Seconds until this caller may ask again; 0 = now, and that is counted."""
        if not self._step_s:
            return 0.0
        now = self._monotonic()
        full_at = max(self._full_at.get(caller, now), now)
        wait = full_at - now - self._room_s
        if wait > 0:
            return wait
        self._full_at[caller] = full_at + self._step_s
        self._full_at.move_to_end(caller)
        if len(self._full_at) > MOST_CALLERS:
            self._full_at.popitem(last=False)
        return 0.0


_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")
PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
API_POLICY = "default-src 'none'; frame-ancestors 'none'"
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # nothing for other sites; no-referrer would give our own forms Origin: null
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
            with deadline.watched_by(self.telemetry):
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
