"""The audit log, who did what and when: one entry per request, in the transaction that does it, for so many days."""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import Connection

from advisor.access.events import event_of
from advisor.domain import AuditEntry, Page, ServiceEvent
from advisor.errors import InvalidInput
from advisor.store import audit as entries
from advisor.store import counters

Operation = Literal[
    "host.put",
    "host.delete",
    "instance.put",
    "instance.delete",
    "workload.put",
    "workload.delete",
    "inventory.put",
    "inventory.follow",
    "inventory.announce",
    "samples.add",
    "probes.add",
    "history.take",
    "colocation.add",
    "placement.answer",
    "placement.look",
    "placement.hold",
    "placement.release",
    "moves.answer",
    "plan.answer",
    "outcome.put",
    "model.register",
    "model.judge",
    "model.refuse",
    "model.activate",
    "model.shadow",
    "alarm.raise",
    "alarm.end",
    "change.plan",
    "change.approve",
    "change.carry_out",
    "change.undo",
    "change.measure",
    "change.freeze",
    "change.thaw",
    "token.create",
    "token.revoke",
    "session.begin",
    "session.end",
    "session.refuse",
]
PURGE_EVERY = 500  # entries; twice as many expired ones then go at most, so that it keeps up and no request waits long
EVENTS_AT_ONCE = 500
HELD_BACK = timedelta(seconds=2)  # more than a commit takes, and than clocks of replicas may differ
_MARK = re.compile(r"[0-9a-f]{14}(-[0-9a-f]{6}-[0-9a-f]{8})?")
_acting: ContextVar[tuple[str, str]] = ContextVar("acting", default=("local", ""))  # a command


@contextmanager
def acting(actor: str, request_id: str) -> Iterator[None]:
    """Whatever is done inside, in this task and in threads that get its context, is done by this actor."""
    former = _acting.set((actor, request_id))
    try:
        yield
    finally:
        _acting.reset(former)


def actor() -> str:
    """Who does what is done here; `local` for a command."""
    return _acting.get()[0]


class Audit:
    """Writes and reads the log; thread-safe."""

    def __init__(self, clock: Callable[[], datetime], keep: timedelta) -> None:
        self._clock = clock
        self._keep = keep
        self._numbers = itertools.count()

    def record(
        self, connection: Connection, operation: Operation, objects: Sequence[str] = (), /, **detail: Any
    ) -> None:
        """Append an entry in the transaction of what it is about, so that either both are kept or neither."""
        actor, request_id = _acting.get()
        now = self._clock()
        number = next(self._numbers)
        entry_id = (
            f"{_sortable(now)}-{number % 2**24:06x}-{secrets.token_hex(4)}"  # in order, within one process surely
        )
        entries.add(connection, AuditEntry(entry_id, now, actor, request_id, operation, tuple(objects), detail))
        if number % PURGE_EVERY == 0:
            entries.purge(connection, _sortable(now - self._keep), most=2 * PURGE_EVERY)

    def record_change(
        self, connection: Connection, operation: Operation, objects: Sequence[str] = (), /, **detail: Any
    ) -> None:
        """Append an entry about a change of the inventory, with the generation that it made."""
        self.record(connection, operation, objects, generation=counters.read(connection).inventory, **detail)

    def page(
        self, connection: Connection, *, actor: str | None, named: str | None, cursor: str | None, limit: int
    ) -> Page[AuditEntry]:
        """Newest first; those of one actor, those that name one object."""
        return entries.list_page(connection, actor=actor, named=named, cursor=cursor, limit=limit)

    def events(self, connection: Connection, after: str | None) -> tuple[tuple[ServiceEvent, ...], str]:
        """What happened after a mark or an event's id, oldest first, and the mark to go on from; None = from now on.

        At most EVENTS_AT_ONCE: where it is so many, there may be more. An entry counts once it is HELD_BACK old: its id
        has the time at which its transaction wrote it, and another one, begun later, may be committed before it.
        InvalidInput for what is neither.
        """
        now = self._clock()
        if after is None:
            return (), _sortable(now)
        if not _MARK.fullmatch(after):
            raise InvalidInput("this is not the id of an event of this service", field="last-event-id")
        until = _sortable((now - HELD_BACK).replace(microsecond=0))  # whole: equal listeners receive equal events
        events = tuple(map(event_of, entries.events(connection, after, until, most=EVENTS_AT_ONCE)))
        return events, events[-1].id if len(events) == EVENTS_AT_ONCE else max(after, until)


def _sortable(time: datetime) -> str:
    """Microseconds since the epoch as text that sorts like them."""
    return f"{max(int(time.timestamp() * 1e6), 0):014x}"
