"""Listeners to events: a limited number, with one look at the database a second for all listeners of a process."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from advisor import deadline
from advisor.domain import ServiceEvent
from advisor.service import AccessService
from api.http.lanes import MANY, Lane
from api.problems import Busy

MOST, EACH = 64, 16  # listeners of one process, and of one caller among them: each holds a connection
POLL_S = 1.0
LOOK_S = 10.0  # for one look at the database
Seen = tuple[tuple[ServiceEvent, ...], str]


class Listeners:
    """The listeners of one application, and the events that they got last."""

    def __init__(self, access: AccessService, lane: Lane) -> None:
        self._access = access
        self._lane = lane
        self._present: Counter[str] = Counter()
        self._lock = asyncio.Lock()
        self._last: tuple[str | None, float, Seen] | None = None

    @contextmanager
    def one_more(self, caller: str) -> Iterator[None]:
        """While a client listens; Busy where there are too many."""
        if self._present.total() >= MOST:
            raise Busy(f"{MOST} listen already; ask another worker, or again later")
        if caller not in MANY and self._present[caller] >= EACH:
            raise Busy(f"{EACH} requests of yours listen already; close some of them")
        self._present[caller] += 1
        try:
            yield
        finally:
            self._present[caller] -= 1

    async def after(self, mark: str | None) -> Seen:
        """What `AccessService.events` says after this mark; listeners at the same mark share one look for a moment."""
        async with self._lock:
            now = time.monotonic()
            if self._last is None or self._last[0] != mark or now - self._last[1] >= POLL_S / 2:
                with deadline.within(LOOK_S):  # not what is left of the request: a listener outlasts that
                    seen = await self._lane.run(partial(self._access.events, mark))
                self._last = mark, now, seen
            return self._last[2]


class EventStream(StreamingResponse):
    """Server-sent events; Busy where there is no room for one more listener."""

    media_type = "text/event-stream"

    def __init__(self, listeners: Listeners, caller: str, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, headers={"X-Accel-Buffering": "no"})  # nginx would hold events until there are more
        self._listeners = listeners
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry; Busy before anything is sent."""
        with self._listeners.one_more(self._caller):
            await super().__call__(scope, receive, send)
