"""A server that answers as the test says, one reply after the other, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from cotenant_client import AsyncClient, Client
from tests.servers.local_http import QuietHandler, on_loopback


@dataclass(frozen=True, slots=True)
class Reply:
    """What to answer; `how`: half of it and then hang up, nothing but hanging up, headers without end, or silence."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    how: Literal["whole", "half", "nothing", "drip", "silence"] = "whole"


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class StandIn:
    """Gives `replies` in turn, the last one again and again."""

    url: str
    replies: list[Reply] = field(default_factory=lambda: [Reply()])
    seen: list[Seen] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)


@contextmanager
def standing_in() -> Iterator[StandIn]:
    """The server on a free port of loopback, until the end of the block."""

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            stand_in.seen.append(Seen(self.command, self.path, dict(self.headers), self.request_body()))
            reply = stand_in.replies.pop(0) if len(stand_in.replies) > 1 else stand_in.replies[0]
            stand_in.asked.set()
            with suppress(OSError):
                self._reply(reply)

        do_GET = do_POST = do_PUT = _answer  # noqa: N815 - as http.server names them

        def _reply(self, reply: Reply) -> None:
            self.close_connection = reply.how != "whole"
            if reply.how == "silence":
                stand_in.over.wait(60)
            if reply.how in {"nothing", "silence"}:
                return
            self.send_response(reply.status)
            for number in range(600 if reply.how == "drip" else 0):
                self.send_header(f"X-{number}", "")
                self.flush_headers()
                time.sleep(0.05)
            for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body[: len(reply.body) // 2] if reply.how == "half" else reply.body)

    with on_loopback(Handler) as server:
        stand_in = StandIn(f"http://127.0.0.1:{server.server_address[1]}")
        try:
            yield stand_in
        finally:
            stand_in.over.set()


def by(kind: str, url: str, call: Callable[[Any], Any], **options: Any) -> Any:
    """What `call(client)` gives with the one client or the other; a listing as a list."""
    if kind == "sync":
        with Client(url, **options) as client:
            given = call(client)
            return list(given) if isinstance(given, Iterator) else given

    async def asked() -> Any:
        async with AsyncClient(url, **options) as client:
            given = call(client)
            return [one async for one in given] if isinstance(given, AsyncIterator) else await given

    return asyncio.run(asked())
