"""The audit log, who did what and when; events read back from it; and answers that a repeated request gets again."""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
import re
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import Connection

from advisor import deadline
from advisor.domain import AuditEntry, Page, ServiceEvent, codec
from advisor.errors import InvalidInput, KeyInUse, KeyReused, StorageLocked
from advisor.store import callers, counters
from advisor.store import callers as entries
from advisor.store.callers import KeyUse
from advisor.store.transactions import HASTY_S, Write
from profiler.files import MEGABYTE, unpacked

# Events: what became of alarms, plans, changes, models and the inventory, as the audit log has it, not who did it.

_CHANGES = {
    "change.plan": "change.planned",
    "change.carry_out": "change.carried_out",
    "change.undo": "change.undo_begun",
    "change.measure": "change.measured",
}


def event_of(entry: AuditEntry) -> ServiceEvent:
    """An entry of the kinds that `store.audit.events` finds, as a reader receives it."""
    name, detail = _read(entry)
    return ServiceEvent(entry.id, name, {"at": codec.encode(entry.at), **detail})


def _read(entry: AuditEntry) -> tuple[str, dict[str, Any]]:
    match entry.operation:
        case "alarm.raise":
            return "alarm.raised", _alarm(entry)
        case "alarm.end":
            return "alarm.ended", _alarm(entry)
        case "plan.answer":
            return "plan.made", {"plan": entry.objects[0], **_some(entry.detail, "kind", "instances")}
        case "change.freeze" | "change.thaw":
            return "change.frozen" if entry.operation == "change.freeze" else "change.thawed", {}
        case "change.plan" | "change.carry_out" | "change.undo" | "change.measure":
            detail = {"rollout": entry.objects[0], **_some(entry.detail, "why", "verdict")}
            return _CHANGES[entry.operation], detail
        case "model.activate":
            detail = {"version": entry.objects[0], **_some(entry.detail, "before", "cause")}
            return "model.rolled_back" if detail["cause"] == "rollback" else "model.activated", detail
    changed = {"operation": entry.operation, "objects": list(entry.objects), **_some(entry.detail, "generation")}
    return "inventory.changed", changed


def _alarm(entry: AuditEntry) -> dict[str, Any]:
    instance, host, *others = entry.objects
    times = {name: codec.encode(datetime.fromisoformat(entry.detail[name])) for name in ("since", "raised")}
    antagonist = others[0] if others else None
    score = entry.detail.get("score")  # null = of CPU delivered below the predicted range
    return {
        "instance": instance, "host": host, "antagonist": antagonist, **times, "text": entry.detail["why"],
        "score": score,
    }  # fmt: skip


def _some(detail: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """What an entry says under these names; null where it was written before that was said."""
    return {name: detail.get(name) for name in names}


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
        entries.add_entry(connection, AuditEntry(entry_id, now, actor, request_id, operation, tuple(objects), detail))
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


# Idempotency keys: a request that a caller sends again with its key gets the answer that it got before.
#
# Source: https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/

MOST_KEPT = 256 * MEGABYTE  # of one answer

SPARE = timedelta(seconds=30)  # beyond the time of a request, before a key counts as left behind by one that died


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """The body of an answer as it was sent, and the path where it can be read later ("" = nowhere)."""

    body: bytes
    path: str = ""


class Idempotency:
    """The keys of one service; thread-safe, and shared by all that use its database.

    Keys are per caller, and stored as digests: what a client puts into them is private. `most_s` is how long
    a request may take.
    """

    def __init__(self, write: Write, clock: Callable[[], datetime], most_s: float) -> None:
        self._write = write
        self._clock = clock
        self._lease = timedelta(seconds=most_s) + SPARE

    def begin_hastily(self, actor: str, key: str, request: str) -> KeyUse | KeptAnswer | None:
        """As `begin` for a request that changes nothing: None where another writer keeps the database."""
        try:
            return self.begin(actor, key, request, wait_s=HASTY_S)
        except StorageLocked:
            return None

    def begin(self, actor: str, key: str, request: str, *, wait_s: float | None = None) -> KeyUse | KeptAnswer:
        """The answer that this request got before, or its use of the key: `keep` or `let_go` must follow.

        KeyReused where the key was used for another request in the last 24 hours, KeyInUse while the same request is
        being worked on. One whose process died is taken over once it may have taken as long as any request.
        """
        now = self._clock()
        use = KeyUse(actor, _digest(key), _digest(request), now)
        with self._write(wait_s=wait_s) as connection:
            if callers.add_key(connection, use):
                return use
            former = callers.get_key(connection, actor, use.key)
            if former is None:  # let go between the two statements
                raise KeyInUse("a request with this key has just failed; send it again")
            age = abs(now - former.begun_at)  # one from the future was noted by a clock that was ahead
            if age >= (callers.KEPT if former.answer else self._lease):
                if not callers.begin_anew(connection, former, use.request, now):
                    raise KeyInUse("a request with this key is being worked on; ask again in a moment")
                return use
        if former.request != use.request:
            raise KeyReused(
                "this key was used for another question in the last 24 hours; give each question a key of its own",
                field="idempotency-key",
            )
        if former.answer is None:
            raise KeyInUse("a request with this key is being worked on; ask again in a moment")
        return KeptAnswer(unpacked(base64.b64decode(former.answer["packed"]), MOST_KEPT), former.answer["path"])

    def keep(self, use: KeyUse, answer: KeptAnswer) -> None:
        """Give this answer again from now on."""
        packed = base64.b64encode(zlib.compress(answer.body)).decode()
        kept = {"packed": packed, "path": answer.path}
        with deadline.within(math.inf), self._write() as connection:  # what was done is noted, however late it is
            callers.answer(connection, use, kept)

    def let_go(self, use: KeyUse) -> None:
        """The request failed: who sends it again is answered anew."""
        with deadline.within(math.inf), self._write() as connection:
            callers.delete(connection, use)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
