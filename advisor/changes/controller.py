"""Carries a rollout out, step by step, and takes it back; after a crash it goes on by what the system shows.

Each step is a line in the ledger before it is done and one after. Between the two lines only the system knows whether
it was done, so a controller that goes on reads it: what has its new text is not set again, what has its old text is
set, and a third text was set by another program, which is left alone.

After each step of a plan all limits hold, so what was done up to one may stay. What is taken back stops at a move that
cannot be: who came before it came to a host that this instance had left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Protocol, TypeVar

from advisor.changes.executors import ChangeFailed, Executor, Gone
from advisor.domain import Change, ChangeStanding, LedgerEvent, RolloutStanding
from advisor.errors import Conflict, InvalidInput

T = TypeVar("T")
Texts = Mapping[str, str]
_SLOW = frozenset({"move", "host"})  # kinds of changes for which a system may take minutes
BEAT_S = 20.0  # after which the lease is extended meanwhile
_LISTED = 3  # settings that a sentence names


class Ledger(Protocol):
    """The lines of rollouts. Only the holder of the lease writes one; LeaseLost for another."""

    def standing(self, rollout: str) -> RolloutStanding:
        """How far a rollout came; NotFound."""
        ...

    def add(self, rollout: str, event: LedgerEvent, change: int | None = None, /, **detail: Any) -> None:
        """Append a line, durable when this returns, and extend the lease."""
        ...

    def hold(self) -> None:
        """Extend the lease while a step takes its time; LeaseLost where another controller has it."""
        ...

    def frozen(self) -> str:
        """Why nothing may be applied now; empty = it may."""
        ...


class LeaseLost(Conflict):
    """Another controller acts now; this one stops at once, before it does anything more."""


class Controller:
    """Acts for one holder of the lease; `executor_of` gives an executor by name, `stop` is asked between steps."""

    def __init__(
        self, ledger: Ledger, executor_of: Callable[[str], Executor], *, stop: Callable[[], bool] = lambda: False
    ) -> None:
        self._ledger = ledger
        self._executor_of = executor_of
        self._stop = stop

    def carry_out(self, rollout: str) -> RolloutStanding:
        """Apply what is not applied yet, or go on with taking back; Conflict where it is at its end, or not approved.

        Where a step fails, all that was done is taken back in reverse order; a rollout that keeps what was done stops
        there, and tries that step again when it is carried out once more. It ends early, and can go on later, where the
        operator freezes changes, asks it to stop, or the canary is to be measured first.
        """
        standing = self._ledger.standing(rollout)
        if standing.state == "undoing":
            return self._take_back(rollout)
        if standing.state == "stopped" and standing.rollout.keeps and not standing.undo_begun:
            self._ledger.add(rollout, "continued")
            standing = self._ledger.standing(rollout)
        if standing.state not in ("approved", "applying", "canary"):
            raise Conflict(f"rollout {rollout} is {_spoken(standing.state)}: nothing of it is left to carry out")
        failed = next((number for number, one in enumerate(standing.changes) if one.state == "failed"), None)
        if failed is not None:  # killed before the line that says so
            return self._give_up(rollout, failed, standing.changes[failed].why)
        for change in standing.rollout.changes:
            if standing.changes[change.number].state == "applied":
                continue
            if self._waits(rollout, standing, change):
                return self._ledger.standing(rollout)
            try:
                self._apply(rollout, change, standing.changes[change.number])
            except (ChangeFailed, InvalidInput) as error:
                self._ledger.add(rollout, "failed", change.number, why=error.message)
                return self._give_up(rollout, change.number, error.message)
        self._ledger.add(rollout, "carried_out")
        return self._ledger.standing(rollout)

    def undo(self, rollout: str, why: str) -> RolloutStanding:
        """Take back what was applied, in reverse order, to what was read before; Conflict where nothing was."""
        standing = self._ledger.standing(rollout)
        if standing.state not in ("applying", "canary", "carried_out", "undoing", "stopped"):
            raise Conflict(f"rollout {rollout} is {_spoken(standing.state)}: nothing of it is to be taken back")
        if standing.state != "undoing":
            self._ledger.add(rollout, "undo_begun", why=why)
        return self._take_back(rollout)

    def _give_up(self, rollout: str, failed: int, why: str) -> RolloutStanding:
        if self._ledger.standing(rollout).rollout.keeps:
            self._ledger.add(rollout, "stopped", why=f"change {failed + 1} failed, and what was done stays: {why}")
            return self._ledger.standing(rollout)
        self._ledger.add(rollout, "undo_begun", why=f"change {failed + 1} failed: {why}")
        return self._take_back(rollout)

    def _waits(self, rollout: str, standing: RolloutStanding, change: Change) -> bool:
        """Whether the rest is left for later."""
        if self._stop() or self._ledger.frozen():
            return True
        canary = standing.rollout.canary
        if not canary or change.number < canary or standing.continued:
            return False
        if standing.state != "canary":
            self._ledger.add(rollout, "canary", changes=canary)
        return True

    def _apply(self, rollout: str, change: Change, standing: ChangeStanding) -> None:
        executor = self._executor_of(change.executor)
        found = self._read(executor, change)
        if standing.state == "planned":
            _check_assumed(executor, change, found)
            self._ledger.add(rollout, "applying", change.number, before=dict(found), command=list(change.command))
        else:
            _check_own(executor, change, found, standing.before)
        desired = {name: text for name, text in change.after.items() if not executor.same(name, found[name], text)}
        if desired:
            self._slowly(change, lambda: executor.write(change, desired))
            found = self._read(executor, change)
        missed = _other_than(executor, found, change.after)
        if missed:
            raise ChangeFailed(f"the system keeps {missed} on {change.host}, and not what was set")
        self._ledger.add(rollout, "applied", change.number, found=dict(found))

    def _take_back(self, rollout: str) -> RolloutStanding:
        standing = self._ledger.standing(rollout)
        stuck = ""
        for change in reversed(standing.rollout.changes):
            one = standing.changes[change.number]
            if one.state in ("planned", "undone") or not one.before:
                continue  # nothing was set: the line before a step has what was read
            try:
                self._undo(rollout, change, one)
            except Gone as error:
                self._ledger.add(rollout, "undone", change.number, why=f"nothing is left to take back: {error.message}")
            except (ChangeFailed, InvalidInput) as error:
                stuck = stuck or error.message
                self._ledger.add(rollout, "left", change.number, why=error.message)
                if change.kind == "move":
                    break
        if stuck:
            self._ledger.add(rollout, "stopped", why=f"not all could be taken back: {stuck}")
        else:
            self._ledger.add(rollout, "taken_back")
        return self._ledger.standing(rollout)

    def _undo(self, rollout: str, change: Change, standing: ChangeStanding) -> None:
        executor = self._executor_of(change.executor)
        found = self._read(executor, change)
        _check_own(executor, change, found, standing.before)
        if standing.state != "undoing":
            self._ledger.add(rollout, "undoing", change.number, to=dict(standing.before))
        # Byte by byte, whatever means the same: the system is to be as it was.
        desired = {name: text for name, text in reversed(list(standing.before.items())) if found[name] != text}
        if desired:
            self._slowly(change, lambda: executor.write(change, desired))
            found = self._read(executor, change)
        missed = _other_than(executor, found, standing.before)
        if missed:
            raise ChangeFailed(f"the system keeps {missed} on {change.host}, and not what was there before")
        self._ledger.add(rollout, "undone", change.number, found=dict(found))

    def _read(self, executor: Executor, change: Change) -> Texts:
        found = self._slowly(change, lambda: executor.read(change))
        absent = [name for name in change.after if name not in found]
        if absent:
            raise ChangeFailed(f"{absent[0]} of {change.subject} cannot be read on {change.host}")
        return {name: found[name] for name in change.after}

    def _slowly(self, change: Change, act: Callable[[], T]) -> T:
        """Act, and keep the lease however long that takes."""
        if change.kind not in _SLOW:
            return act()
        with ThreadPoolExecutor(1, thread_name_prefix="change") as pool:
            acting = pool.submit(act)
            while not wait([acting], timeout=BEAT_S).done:
                self._ledger.hold()
            return acting.result()


def _check_assumed(executor: Executor, change: Change, found: Texts) -> None:
    """Refuse a change of what is neither as the plan assumes nor as it is to be already."""
    expected = {name: text for name, text in change.before.items() if name in found}
    other = _other_than(executor, {name: found[name] for name in expected}, expected)
    if other and _other_than(executor, found, change.after):
        raise ChangeFailed(f"{change.subject} on {change.host} has {other}, and not what was planned for: plan again")


def _check_own(executor: Executor, change: Change, found: Texts, before: Texts) -> None:
    """Refuse to touch what another program has set since."""
    foreign = {
        name: text
        for name, text in found.items()
        if not executor.same(name, text, change.after[name]) and not executor.same(name, text, before[name])
    }
    if foreign:
        raise ChangeFailed(f"another program set {_said(foreign)} of {change.subject} on {change.host}: left as it is")


def _other_than(executor: Executor, found: Texts, desired: Texts) -> str:
    """What is not as wanted, in words; empty = all is."""
    return _said({name: found[name] for name, text in desired.items() if not executor.same(name, found[name], text)})


def _said(texts: Texts) -> str:
    return ", ".join(f"{name} = {text[:60] or 'nothing'}" for name, text in list(texts.items())[:_LISTED])


def _spoken(state: str) -> str:
    return state.replace("_", " ")
