"""Live migrations as settings: where an instance is can be read, set, and set back, as a weight can.

A migration takes minutes, and the answer to the call that begins it may be lost. So the system is asked where the
instance is until nothing moves any more, and that is what counts: it is begun once, and never begun while one is under
way, whoever began that one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from advisor.changes.controller import HOST, NO, OPEN, YES, ChangeFailed, Gone, Meaning
from advisor.domain import Change, Command, Host
from advisor.errors import InvalidInput

POLL_S = 2.0
AWAY_S = 120.0  # for which a system that does not answer is asked again
CALLED_OFF_S = 60.0  # for which a migration that was called off may go on


@dataclass(frozen=True, slots=True)
class Place:
    """The id of the host on which an instance is, whether a migration of it is under way, and why it may not be moved
    now; empty = it may."""

    host: str
    moves: bool = False
    why_not: str = ""


class MigratingSystem(Protocol):
    """One system in which instances move. All raise ChangeFailed where it does not answer or refuses."""

    def place(self, change: Change) -> Place:
        """Where the instance is; Gone."""
        ...

    def begin(self, change: Change, there: str) -> None:
        """Begin the migration to a host; it may wait until it is over."""
        ...

    def call_off(self, change: Change) -> None:
        """Let it stay where it is, where the system can do that."""
        ...

    def failure(self, change: Change) -> str:
        """Why the last migration did not succeed, in the system's words; empty = it does not say."""
        ...


class Waiting:
    """Asks until an instance rests; times are of the clock that no one sets."""

    def __init__(
        self,
        patience_s: float,
        *,
        poll_s: float = POLL_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.patience_s = patience_s
        self._poll_s = poll_s
        self._clock = clock
        self._sleep = sleep

    def until_at_rest(self, ask: Callable[[], Place], patience_s: float | None = None) -> Place:
        """The last answer: one that moves no more, or that still moves when the patience is over. ChangeFailed where
        the system did not answer for AWAY_S, Gone at once."""
        ends = self._clock() + (self.patience_s if patience_s is None else patience_s)
        silent_since: float | None = None
        while True:
            try:
                place = ask()
            except Gone:
                raise
            except ChangeFailed:
                now = self._clock()
                silent_since = now if silent_since is None else silent_since
                if now - silent_since >= AWAY_S:
                    raise
            else:
                silent_since = None
                if not place.moves or self._clock() >= ends:
                    return place
            self._sleep(self._poll_s)


class Migrations:
    """Reads and sets HOST in one system, for all its executors."""

    def __init__(self, system: MigratingSystem, waiting: Waiting) -> None:
        self._system = system
        self._waiting = waiting

    def read(self, change: Change) -> Mapping[str, str]:
        """Where the instance is, once no migration of it is under way; Gone, ChangeFailed."""
        place = self._at_rest(change)
        if place.moves:
            raise ChangeFailed(f"{change.subject} still moves after {self._waiting.patience_s:.0f} s: look at it")
        return {HOST: place.host}

    def write(self, change: Change, values: Mapping[str, str]) -> None:
        """Move it to the host in `values`, and wait until it is there; Gone, ChangeFailed."""
        there = values.get(HOST, "")
        if values.keys() != {HOST} or there not in (change.before.get(HOST), change.after.get(HOST)):
            raise InvalidInput(f"{change.subject} is moved between the hosts of its change alone", field="command")
        place = self._at_rest(change)
        if place.host == there and not place.moves:
            return
        if place.moves or place.why_not:
            raise ChangeFailed(f"{change.subject} is not moved: {place.why_not or 'it moves already'}")
        refused = ""
        try:
            self._system.begin(change, there)
        except Gone:
            raise
        except ChangeFailed as error:  # it may have begun all the same: the answer may be lost
            refused = error.message
        place = self._at_rest(change)
        if place.moves:
            place = self._called_off(change)
        if place.host != there or place.moves:
            raise ChangeFailed(f"{change.subject} is on {place.host}: {self._why(change, refused)}")

    def _at_rest(self, change: Change) -> Place:
        return self._waiting.until_at_rest(lambda: self._system.place(change))

    def _called_off(self, change: Change) -> Place:
        try:
            self._system.call_off(change)
        except Gone:
            raise
        except ChangeFailed:
            pass  # where it is in the end counts
        return self._waiting.until_at_rest(lambda: self._system.place(change), CALLED_OFF_S)

    def _why(self, change: Change, refused: str) -> str:
        try:
            said = self._system.failure(change)
        except ChangeFailed:
            said = ""
        return refused or said or f"the migration was not done within {self._waiting.patience_s:.0f} s, or failed"


class CloudExecutor:
    """What the executors of clouds have in common: instances move, and hosts are closed. A cloud says how."""

    def __init__(self, waiting: Waiting) -> None:
        self._migrations = Migrations(self, waiting)

    def meaning(self, host: Host, command: Command) -> Meaning:
        """Nothing but moves: what else a cloud keeps may be of more than this instance."""
        raise InvalidInput(f"on {host.id} {' '.join(command.argv)[:200]!r} is run by hand", field="command")

    def read(self, change: Change) -> Mapping[str, str]:
        if change.kind == "move":
            return self._migrations.read(change)
        return {OPEN: YES if self.is_open(change) else NO}

    def write(self, change: Change, values: Mapping[str, str]) -> None:
        if change.kind == "move":
            self._migrations.write(change, values)
        elif values.get(OPEN) in (YES, NO):
            self.set_open(change, values[OPEN] == YES)
        else:
            raise InvalidInput(f"host {change.host} can be open or not, and nothing else", field="command")

    def same(self, setting: str, one: str, other: str) -> bool:
        del setting
        return one == other

    def place(self, change: Change) -> Place:
        raise NotImplementedError

    def begin(self, change: Change, there: str) -> None:
        raise NotImplementedError

    def call_off(self, change: Change) -> None:
        """Nothing, where the system cannot."""

    def failure(self, change: Change) -> str:
        del change
        return ""

    def is_open(self, change: Change) -> bool:
        """Whether the scheduler places new instances on the host; ChangeFailed."""
        raise InvalidInput(f"the scheduler of {change.host} is not asked", field="host")

    def set_open(self, change: Change, is_open: bool) -> None:
        """Let it place instances there, or none; ChangeFailed."""
        del is_open
        raise InvalidInput(f"the scheduler of {change.host} is not asked", field="host")
