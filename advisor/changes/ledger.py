"""The ledger of changes line by line, how each change stands by it, and what a measured change teaches."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from advisor.access.audit import actor
from advisor.changes.controller import LeaseLost
from advisor.domain import (
    ChangeStanding,
    Instance,
    LedgerEvent,
    LedgerLine,
    MeasuredEffect,
    Rollout,
    RolloutStanding,
    codec,
)
from advisor.domain.changes import ChangeState, RolloutState
from advisor.errors import Conflict, NotFound
from advisor.store import rollouts
from advisor.store.transactions import Transactions
from profiler.observed import DEFAULT_WEIGHT, Colocation, Outcome

# How far a rollout came, by the lines of the ledger and nothing else.

_OF_CHANGE: dict[str, ChangeState] = {
    "applying": "applying",
    "applied": "applied",
    "failed": "failed",
    "undoing": "undoing",
    "undone": "undone",
    "left": "left",
}
_OF_ROLLOUT: dict[str, RolloutState] = {
    "planned": "planned",
    "approved": "approved",
    "applying": "applying",
    "canary": "canary",
    "continued": "applying",
    "carried_out": "carried_out",
    "undo_begun": "undoing",
    "taken_back": "taken_back",
    "stopped": "stopped",
}


def standing_of(rollout: Rollout, lines: Iterable[LedgerLine]) -> RolloutStanding:
    """Fold the lines, the oldest first."""
    standing = RolloutStanding(rollout, "planned", tuple(ChangeStanding() for _ in rollout.changes))
    for line in lines:
        standing = after(standing, line)
    return standing


def after(standing: RolloutStanding, line: LedgerLine) -> RolloutStanding:
    """The standing with one more line."""
    state, why = _OF_ROLLOUT.get(line.event, standing.state), line.detail.get("why", "")
    if standing.state == "undoing" and line.event not in ("taken_back", "stopped"):
        state = "undoing"  # what a step reports while all is taken back
    standing = replace(standing, state=state, lines=(*standing.lines, line))
    if line.event in ("undo_begun", "stopped"):
        standing = replace(standing, why=standing.why or why)
    if line.change is not None and line.event in _OF_CHANGE:
        standing = _after_step(standing, line, line.change, why)
    match line.event:
        case "approved":
            return replace(standing, approved_by=line.actor)
        case "applying":
            return replace(standing, applied_from=standing.applied_from or line.at)
        case "applied":
            return replace(standing, applied_at=line.at)
        case "continued":
            # A step that failed is tried again; what was read before the first try is what was there.
            tried = (
                replace(one, state="applying" if one.before else "planned") if one.state == "failed" else one
                for one in standing.changes
            )
            # What the canary brought is not what all brings: it is measured again.
            return replace(standing, continued=True, why="", changes=tuple(tried), effects=())
        case "undo_begun":
            return replace(standing, undo_begun=True)
        case "measured":
            effects = tuple(codec.decode(MeasuredEffect, effect) for effect in line.detail["effects"])
            return replace(standing, effects=effects)
    return standing


def _after_step(standing: RolloutStanding, line: LedgerLine, number: int, why: str) -> RolloutStanding:
    one = standing.changes[number]
    # What was read before the first try is what was there: a second try may find its own half of the work.
    before = one.before or line.detail.get("before", {})
    changed = replace(one, state=_OF_CHANGE[line.event], before=before, why=why or one.why)
    return replace(standing, changes=(*standing.changes[:number], changed, *standing.changes[number + 1 :]))


LEASE_S = 120.0  # after its last line a controller that died is followed by another one


class StoredLedger:
    """The lines of all rollouts; one for each controller. A line is durable when `add` returns."""

    def __init__(
        self,
        transactions: Transactions,
        clock: Callable[[], datetime],
        *,
        noted: Callable[[Connection, str, LedgerLine], None] | None = None,
        lease_s: float = LEASE_S,
    ) -> None:
        self._read, self._write = transactions.read, transactions.write
        self._clock = clock
        self._noted = noted
        self._lease_s = lease_s
        self._holder = uuid.uuid4().hex
        self._known: dict[str, RolloutStanding] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lease meanwhile; Conflict where another controller has it."""
        with self._write() as connection:
            self._take(connection, Conflict)
        self._known.clear()
        try:
            yield
        finally:
            with self._write() as connection:
                rollouts.drop_lease(connection, self._holder)

    def standing(self, rollout: str) -> RolloutStanding:
        """How far a rollout came; NotFound."""
        with self._read() as connection:
            standing = standing_in(connection, rollout)
        self._known[rollout] = standing
        return standing

    def add(self, rollout: str, event: LedgerEvent, change: int | None = None, /, **detail: Any) -> None:
        """Append a line after those that this controller knows; LeaseLost where another one wrote since, or may."""
        standing = self._known.get(rollout) or self.standing(rollout)
        line = LedgerLine(len(standing.lines), self._clock(), actor(), event, change, detail)
        then = after(standing, line)
        try:
            with self._write() as connection:
                self._take(connection, LeaseLost)
                rollouts.append(connection, rollout, line, then.state)
                if self._noted is not None:
                    self._noted(connection, rollout, line)
        except LeaseLost:
            raise
        except Conflict as error:  # the line is there: another controller wrote it
            raise LeaseLost(f"another controller acts on rollout {rollout}; this one stopped") from error
        self._known[rollout] = then

    def hold(self) -> None:
        """Extend the lease; LeaseLost where another controller has it."""
        with self._write() as connection:
            self._take(connection, LeaseLost)

    def frozen(self) -> str:
        """Why nothing may be applied now; empty = it may."""
        with self._read() as connection:
            row = rollouts.control(connection, "freeze")
        if row is None:
            return ""
        reason = row["detail"].get("reason", "")
        return f"{row['holder']} froze changes" + (f": {reason}" if reason else "")

    def _take(self, connection: Connection, error: type[Conflict]) -> None:
        other = rollouts.take_lease(connection, self._holder, self._clock().timestamp(), self._lease_s)
        if other:
            raise error(f"another controller carries out changes now; try again in {self._lease_s:.0f} s")


def standing_in(connection: Connection, rollout: str) -> RolloutStanding:
    """How far a rollout came; NotFound."""
    found = rollouts.get(connection, rollout)
    if found is None:
        raise NotFound(f"there is no rollout {rollout}")
    return standing_of(found, rollouts.of(connection, rollout))


# What a measured change teaches: two results for each host, as it was before and as it was after.
#
# CPU delivered stands for throughput, as in predictions. The figure after is that before plus the effect beside the
# controls, so that what happened to all instances alike is not taken for an effect.

UNIT = "CPU delivered"
_LOWEST = 0.01


def results_of(standing: RolloutStanding) -> Iterator[Colocation]:
    """Of each host on which an effect was measured; none of effects whose verdict is unknown."""
    known = {one.instance: one for one in standing.effects if one.verdict != "unknown" and one.effect is not None}
    rollout = standing.rollout
    for repeat, instances in (("before", rollout.there), ("after", rollout.then)):
        for host in sorted({one.host for one in instances if one.host is not None}):
            beside = [one for one in instances if one.host == host]
            outcomes = tuple(_outcome(one, known, after=repeat == "after") for one in beside)
            if len(beside) > 1 and any(one.colocated is not None for one in outcomes):
                yield Colocation(f"change-{rollout.id}", host, repeat, outcomes)


def _outcome(one: Instance, known: Mapping[str, MeasuredEffect], *, after: bool) -> Outcome:
    """What an instance reached; unknown where it was not measured: it is beside the others all the same."""
    # Said outright: what is as usual would be taken from the inventory, where it has changed meanwhile.
    settings = replace(one.settings, weight=one.settings.weight or DEFAULT_WEIGHT)
    alone = replace(one, host=None, settings=settings)
    effect = known.get(one.id)
    if effect is None or effect.before is None or effect.effect is None:
        return Outcome(alone, "throughput", None, None, UNIT)
    reached = effect.before + (effect.effect.expected if after else 0.0)
    return Outcome(alone, "throughput", 1.0, min(max(reached, _LOWEST), 1.0), UNIT)
