"""Limits of a request's body, how large and how slow it may be, and the header `Idempotency-Key`."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Header
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from advisor.errors import AdvisorError, InvalidInput, StorageLocked
from advisor.service import Idempotency, KeptAnswer, actor
from advisor.validation import load_json
from api.http.lanes import Given
from api.problems import OF_ERROR, OF_STATUS, Busy, respond

# The header `Idempotency-Key`: a question that is sent again with its key gets the same answer again.

REPLAYED = "Idempotent-Replayed"
_KEY = re.compile(r"[!-~]{1,255}")
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        description="any word of the caller's own, such as a UUID: within 24 hours the same question with it gets the "
        f"same answer, marked by `{REPLAYED}`",
        json_schema_extra={"pattern": "^[!-~]{1,255}$"},
    ),
]


@dataclass(frozen=True, slots=True)
class AnswerOnce:
    """Answers a question once under the caller's key; repeated, it gets the stored answer."""

    stored: Idempotency
    key: str | None
    target: str  # method, path and query of the request

    def __call__(self, body: BaseModel, work: Callable[[], Response], *, holds: bool) -> Response:
        """The answer of `work`, or the stored one to the same question; failures are not stored.

        One that `holds` nothing is answered without its key while another writer keeps the database. KeyReused where
        the key was used for another question, KeyInUse while this one is being worked on.
        """
        if self.key is None:
            return work()
        if not _KEY.fullmatch(self.key):
            raise InvalidInput("a key is 1-255 visible ASCII characters without blanks", field="idempotency-key")
        question = json.dumps(body.model_dump(mode="json", exclude_unset=True), sort_keys=True)
        begin = self.stored.begin if holds else self.stored.begin_hastily
        use = begin(actor(), self.key, f"{self.target}\n{question}")
        if use is None:
            return work()
        if isinstance(use, KeptAnswer):
            headers = {REPLAYED: "true"} | ({"Location": use.path} if use.path else {})
            return Response(use.body, headers=headers, media_type="application/json")
        try:
            answer = work()
        except BaseException:
            with suppress(AdvisorError):  # the first error is the one to report; the key expires anyway
                self.stored.let_go(use)
            raise
        with suppress(StorageLocked):  # it was answered: who repeats it waits until the key's lease ends
            self.stored.keep(use, KeptAnswer(bytes(answer.body), answer.headers.get("location", "")))
        return answer


def _answer_once(request: Request, idempotency_key: IdempotencyKey = None) -> AnswerOnce:
    target = f"{request.method} {request.url.path}?{request.url.query}"
    return AnswerOnce(request.app.state.advisor.access.idempotency, idempotency_key, target)


OnceDep = Annotated[AnswerOnce, Given(_answer_once)]


PAUSE_S = 10.0  # without a byte of the body
SMALL = 2**16  # bytes: shorter bodies are always read
_TOGETHER = "other large requests are being worked on, and there is no room for this one; ask again in a moment"
SLOWEST_BYTES_PER_S = 4096  # mean rate after the first pause: 16 MiB may take an hour, but 100 bytes may not


class JsonRequest(Request):
    """A request whose body is JSON in UTF-8, in which no object has a key twice."""

    async def json(self) -> Any:
        """The body as Python values; ValueError for anything else."""
        if not hasattr(self, "_json"):
            self._json = load_json(await self.body())
        return self._json


class JsonRoute(APIRoute):
    """A route whose handler gets a JsonRequest.

    `literal` are paths that other routes have without a parameter: this one has none of them, whatever the method.
    """

    literal: Collection[str] = frozenset()

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As Starlette does, without paths that are another route's own; without its pattern where there is only one
        path, for every request asks dozens of routes."""
        path = scope["path"]
        if path in self.literal or (path != self.path and "{" not in self.path):
            return Match.NONE, {}
        return super().matches(scope)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's own handler, given a JsonRequest."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(JsonRequest(request.scope, request.receive))

        return handle


class BodyLimit:
    """Refuses a body over the limit: by its announced length before a byte is read, else as soon as it is too long.

    Also refuses a compressed body, whose size is not known before it is unpacked, and one that comes too slowly. Large
    bodies may together be as long as one: what is made of a body takes up to thirteen times its bytes, and stays while
    its request waits for a thread.

    Starlette has a middleware for the size, but its answer is plain text and cannot be changed.
    """

    def __init__(self, app: ASGIApp, most_bytes: int, pause_s: float = PAUSE_S) -> None:
        self.app = app
        self.most_bytes = most_bytes
        self.pause_s = pause_s
        self._present = 0  # bytes of large bodies whose requests are under way

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
        length = int(announced[:20]) if announced.isdecimal() else 0
        if length > SMALL and self._is_too_much(length, held=0):
            await respond(Request(scope), OF_ERROR[Busy], _TOGETHER)(scope, receive, send)
            return
        size, began, complete, held = 0, time.monotonic(), False, 0

        async def counted() -> Message:
            nonlocal size, complete, held
            if complete:  # a further call waits for the client to disconnect, which may take any time
                return await receive()
            left_s = began + self.pause_s + size / SLOWEST_BYTES_PER_S - time.monotonic()
            try:
                async with asyncio.timeout(min(self.pause_s, left_s)):
                    message = await receive()
            except TimeoutError:
                detail = f"{size} bytes of the body came, and then too few"
                raise HTTPException(408, detail, {"Connection": "close"}) from None
            size += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if size > self.most_bytes:
                raise HTTPException(413, self._detail)
            if size > SMALL:
                if self._is_too_much(size, held=held):
                    raise Busy(_TOGETHER)
                self._present += size - held
                held = size
            return message

        try:
            await self.app(scope, counted, send)
        finally:
            self._present -= held

    def _is_too_much(self, size: int, *, held: int) -> bool:
        """Whether a large body is too long beside those of others; `held` of its bytes count already."""
        others = self._present - held
        return others > 0 and others + size > self.most_bytes

    @property
    def _detail(self) -> str:
        return f"the body is larger than {self.most_bytes / 2**20:g} MiB"
