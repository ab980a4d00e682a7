"""uvicorn's HTTP with a time limit for every stage of a request, so that slow clients cannot hold connections."""

from __future__ import annotations

import asyncio
import re
import resource
from http import HTTPStatus
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from api.problems import MEDIA_TYPE, OF_STATUS, Kind
from api.schemas.base import Problem

HEAD_S = 10.0  # for a whole head: from its first byte, on a new connection from its start
READER_S = 30.0  # for a client to read what it was sent
REST_S = 5.0  # for the rest of a body that was refused: a client that is cut off while it sends cannot read why
LAST_S = 1.0  # for the first request on a connection that was made just before the service stops
MOST_HEAD_BYTES = 32 * 1024
_ABSOLUTE = re.compile(rb"https?://(?P<host>[^/?#@]+)(?P<rest>[/?][^#]*|)", re.IGNORECASE)
SPARE_FILES = 128  # for the database, models, logs and the listening socket


def most_connections(configured: int) -> int:
    """The configured number, or as many as this process may open files for; raises its soft limit as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = configured + SPARE_FILES if hard == resource.RLIM_INFINITY else min(configured + SPARE_FILES, hard)
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        soft = needed
    return max(min(configured, soft - SPARE_FILES), 16)


class _AmbiguousError(Exception):
    """A head of which proxies and servers disagree where the request ends."""


class _TargetError(Exception):
    """A request target that is neither a path nor an http or https URL."""


def _with_path(request: h11.Request) -> h11.Request:
    """Turn a request for a whole URL into one for its path; the URL's host replaces the header (RFC 9112, 3.2.2).

    Clients ask proxies so, and every server must understand it. _TargetError for `*` and for the target of CONNECT.
    """
    match = _ABSOLUTE.fullmatch(request.target)
    if match is None:
        raise _TargetError
    headers = [(name, value) for name, value in request.headers if name != b"host"]
    return h11.Request(
        method=request.method,
        target=match["rest"] if match["rest"].startswith(b"/") else b"/" + match["rest"],
        headers=[(b"host", match["host"]), *headers],
        http_version=request.http_version,
    )


class _Connection(h11.Connection):
    """h11's connection that refuses a Content-Length beside a Transfer-Encoding.

    h11 goes by Transfer-Encoding. A proxy that goes by the other header would pass a part of the body on as a client
    else's request (RFC 9112, section 6.1).
    """

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if not isinstance(event, h11.Request):
            return event
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
            raise _AmbiguousError
        return event if event.target.startswith(b"/") else _with_path(event)


class GuardedHTTP(H11Protocol):
    """uvicorn's HTTP/1.1 with time limits: by itself it waits for ever for heads that do not end and slow readers.

    Beyond `most` connections the one that has been idle longest is closed for the new one; where none is idle, the new
    one is closed.
    """

    most: ClassVar[int] = 10_000  # in this process; set before the server starts
    idle: ClassVar[dict[GuardedHTTP, None]] = {}  # those between two requests, longest idle first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        self.conn = _Connection(h11.SERVER, MOST_HEAD_BYTES)
        self._head: asyncio.TimerHandle | None = None
        self._reader: asyncio.TimerHandle | None = None
        self._last = False
        super().connection_made(transport)
        if len(self.connections) > self.most:
            oldest = next(iter(self.idle), self)
            self.idle.pop(oldest, None)  # connection_lost comes a turn of the loop later; many may connect in this one
            oldest.transport.abort()
        self.idle[self] = None
        self._head = self.loop.call_later(HEAD_S, self._end_head)

    def connection_lost(self, exc: Exception | None) -> None:
        """A client has gone."""
        self.idle.pop(self, None)
        self._stop_head()
        self._stop_reader()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn keeps it where the client broke off

    def data_received(self, data: bytes) -> None:
        """Some bytes of a request."""
        if self._head is None and self.conn.their_state is h11.IDLE:
            self._head = self.loop.call_later(HEAD_S, self._end_head)
        super().data_received(data)

    def handle_events(self) -> None:
        """Whole heads, and pieces of bodies, which `api.http.bodies` limits."""
        try:
            super().handle_events()
        except _AmbiguousError:
            self._refuse(OF_STATUS[400], "the request has a Content-Length and a Transfer-Encoding: send one of them")
        except _TargetError:
            self._refuse(OF_STATUS[400], "the request target is neither a path nor an http or https URL")
        if self in self.idle and self.conn.their_state is not h11.IDLE:
            del self.idle[self]
            self._stop_head()
            if self.cycle is not None:  # bytes that are not HTTP start no cycle
                self.cycle.keep_alive = self.cycle.keep_alive and not self._last

    def shutdown(self) -> None:
        """The service is to stop: requests under way are answered, and a new connection may send one request."""
        if self.cycle is None and not self.transport.is_closing():
            self._last = True
            self._stop_head()
            self._head = self.loop.call_later(LAST_S, self._end_head)
        else:
            super().shutdown()

    def on_response_complete(self) -> None:
        """The answer is written, as far as the client reads."""
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._watch_reader()
        if self.conn.their_state is h11.SEND_BODY:
            self._stop_head()
            self._head = self.loop.call_later(REST_S, self.transport.abort)
        elif self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.idle[self] = None
            if self._head is None and self.conn.trailing_data[0]:  # the beginning of the next head came with this one
                self._head = self.loop.call_later(HEAD_S, self._end_head)

    def pause_writing(self) -> None:
        """The client does not read its answer."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._stop_reader()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP, or a head that is too large, with a problem document."""
        self._refuse(OF_STATUS[431 if len(self.conn.trailing_data[0]) > MOST_HEAD_BYTES else 400], msg)

    def _watch_reader(self) -> None:
        self._reader = self._reader or self.loop.call_later(READER_S, self._end_reader)

    def _end_reader(self) -> None:
        self._reader = None
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _end_head(self) -> None:
        """Close; a client that sent a part of a head gets the reason."""
        self._head = None
        if self.conn.trailing_data[0]:
            self._refuse(OF_STATUS[408], f"the head of the request was not complete after {HEAD_S:g} s")
        else:
            self.transport.close()

    def _refuse(self, kind: Kind, detail: str) -> None:
        problem = Problem(
            type=f"/docs#{kind.code}",
            title=kind.title,
            status=kind.status,
            detail=detail,
            code=kind.code,
            request_id="",
        )
        body = problem.model_dump_json().encode()
        head = [("Content-Type", MEDIA_TYPE), ("Content-Length", str(len(body))), ("Connection", "close")]
        reason = HTTPStatus(kind.status).phrase
        events = (
            h11.Response(status_code=kind.status, headers=head, reason=reason),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self._watch_reader()
        self.transport.close()

    def _stop_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _stop_reader(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None
