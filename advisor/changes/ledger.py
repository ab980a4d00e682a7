"""The ledger in the database, written by whoever holds the one lease."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from advisor.access.audit import actor
from advisor.changes.controller import LeaseLost
from advisor.changes.standing import after, standing_of
from advisor.domain import LedgerEvent, LedgerLine, RolloutStanding
from advisor.errors import Conflict, NotFound
from advisor.store import rollouts
from advisor.store.transactions import Transactions

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
