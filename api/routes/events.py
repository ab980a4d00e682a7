"""Events as a stream: alarms, plans, changes, models and the inventory, as they happen."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Annotated, Any

from fastapi import Header, Query, Request
from pydantic_core import to_json

from advisor import deadline
from advisor.domain import EventKind, ServiceEvent
from advisor.errors import AdvisorError
from api.http import lanes as listening
from api.http.envelope import HEADER
from api.http.lanes import EventStream, Listeners, Seen
from api.problems import Stopping
from api.routes.common import CallerDep

QUIET_S = 15.0  # without an event a comment is sent so often: proxies end connections that are silent for a minute
CHECK_S = 15.0  # how often it is checked that the listener's token is still valid
_RETRY = b"retry: 2000\n\n"  # milliseconds after which a client asks again
EVENT: Mapping[str, Any] = {
    "type": "object",
    "description": "One event; docs/monitoring.md says what is in the data of each.",
    "properties": {
        "id": {"type": "string", "description": "for Last-Event-ID; ids sort by time"},
        "event": {
            "type": "string",
            "description": "what happened",
            "enum": [
                "alarm.raised",
                "alarm.ended",
                "plan.made",
                "change.planned",
                "change.carried_out",
                "change.measured",
                "change.undo_begun",
                "change.frozen",
                "change.thawed",
                "model.activated",
                "model.rolled_back",
                "inventory.changed",
            ],
        },
        "data": {"type": "string", "contentMediaType": "application/json", "description": "the event's details"},
        "retry": {"type": "integer", "description": "milliseconds after which to ask again, where the stream ended"},
    },
}
Kinds = Annotated[list[EventKind], Query(max_length=5, description="only events of this kind; may be repeated")]
LastEventId = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=100,
        description="the id of the last event that was heard: what happened since comes first",
        json_schema_extra={"pattern": "^[0-9a-f]{14}-[0-9a-f]{6}-[0-9a-f]{8}$"},
    ),
]


async def stream(
    request: Request,
    caller: CallerDep,
    last_event_id: LastEventId = None,
    kind: Kinds = [],  # noqa: B006 - FastAPI copies it
) -> EventStream:
    """What happens to alarms, plans, changes, models and the inventory, as server-sent events.

    The stream goes on until the caller or the service ends it, or for as long as `X-Request-Timeout` says. An event has
    an id, a name and its data as JSON; a client that lost the connection sends the last id that it received. Events
    come two to four seconds late. After every 15 s without an event there is a comment.
    """
    if _is_stopping(request):
        raise Stopping("the service is stopping; ask another worker, or again in a moment")
    listeners: Listeners = request.app.state.listeners
    first = await listeners.after(last_event_id)
    lasts_s = deadline.left_s() if HEADER in request.headers else math.inf
    ends = time.monotonic() + (0.0 if request.state.is_head else lasts_s)
    return EventStream(listeners, caller.actor, _messages(request, listeners, first, kind, ends))


async def _messages(
    request: Request, listeners: Listeners, first: Seen, kinds: Collection[str], ends: float
) -> AsyncIterator[bytes]:
    yield _RETRY
    events, mark = first
    sent = checked = time.monotonic()
    while (now := time.monotonic()) < ends and not _is_stopping(request):
        text = b"".join(_message(event) for event in events if not kinds or event.kind in kinds)
        if text or now - sent >= QUIET_S:
            yield text or b": nothing new\n\n"
            sent = now
        if not events:
            await asyncio.sleep(min(listening.POLL_S, ends - now))
        events = ()
        try:
            if now - checked >= CHECK_S:
                with deadline.within(listening.LOOK_S):
                    if not await request.state.is_still_known():
                        return
                checked = now
            events, mark = await listeners.after(mark)
        except AdvisorError:  # without the database for now: go on from the same mark later
            continue


def _is_stopping(request: Request) -> bool:
    return getattr(request.app.state, "draining", False)


def _message(event: ServiceEvent) -> bytes:
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (event.id.encode(), event.name.encode(), to_json(dict(event.details)))
