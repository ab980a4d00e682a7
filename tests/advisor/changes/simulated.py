"""A system in memory with settings as texts, faults, and a controller that is killed at any step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from advisor.changes.controller import ChangeFailed, Controller, Executor, Gone, Meaning
from advisor.changes.ledger import StoredLedger
from advisor.domain import Change, Command, Host, LedgerEvent, Rollout, RolloutStanding
from advisor.store import rollouts
from advisor.store.engine import Database
from advisor.store.transactions import Transactions

BEGIN = datetime(2026, 1, 31, 12, tzinfo=UTC)
LEASE_S = 120.0


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


class Clock:
    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class Steps:
    """Counts the moments at which a process may be killed, and kills it at one of them."""

    def __init__(self) -> None:
        self.seen = 0
        self.kill_at: int | None = None

    def __call__(self) -> None:
        self.seen += 1
        if self.seen == self.kill_at:
            raise Killed


class System:
    """Texts by target and setting; `writes` counts what was really set, by target, setting and text."""

    def __init__(self, texts: Mapping[str, Mapping[str, str]], steps: Steps) -> None:
        self.texts = {target: dict(values) for target, values in texts.items()}
        self.steps = steps
        self.writes: Counter[tuple[str, str, str]] = Counter()
        self.refuses: set[tuple[str, str]] = set()  # target and text
        self.on_write: Callable[[str], object] = lambda target: None

    def meaning(self, host: Host, command: Command) -> Meaning:
        raise AssertionError("changes are given here")

    def read(self, change: Change) -> Mapping[str, str]:
        self.steps()
        if change.target not in self.texts:
            raise Gone(f"{change.instance} is gone")
        return {name: self.texts[change.target][name] for name in change.after}

    def write(self, change: Change, values: Mapping[str, str]) -> None:
        for name, text in values.items():
            self.steps()
            if (change.target, text) in self.refuses:
                raise ChangeFailed(f"{name} of {change.instance}: invalid argument")
            if change.target not in self.texts:
                raise Gone(f"{change.instance} is gone")
            self.texts[change.target][name] = text
            self.writes[change.target, name, text] += 1
            self.on_write(change.target)
            self.steps()

    def same(self, setting: str, one: str, other: str) -> bool:
        return one == other


class KillableLedger(StoredLedger):
    """Killed before a line is durable, or after it is."""

    steps: Steps

    def add(self, rollout: str, event: LedgerEvent, change: int | None = None, /, **detail: Any) -> None:
        self.steps()
        super().add(rollout, event, change, **detail)
        self.steps()


BEFORE = {f"g{number}": {"quota": "-1", "period": "100000"} for number in range(5)}
AFTER = {f"g{number}": {"quota": "50000", "period": "50000"} for number in range(5)}


class Bench:
    """One database, one system, and as many controllers as are started."""

    def __init__(self, folder: Path) -> None:
        self.transactions = Transactions(Database(f"sqlite:///{folder}/changes.sqlite3"))
        # A process that dies loses nothing by it; power cuts have tests of their own.
        setattr(self.transactions, "write", partial(self.transactions.write, synced=False))  # noqa: B010 - mypy
        self.clock = Clock()
        self.number = 0
        self.begin()

    def begin(self, *, canary: int = 0) -> None:
        """Another rollout on a system as it was."""
        self.number += 1
        self.rollout = f"r{self.number}"
        self.steps = Steps()
        self.system = System(BEFORE, self.steps)
        changes = tuple(
            Change(number, "h1", f"vm{number}", "cap", "simulated", target, BEFORE[target], AFTER[target])
            for number, target in enumerate(BEFORE)
        )
        with self.transactions.write() as connection:
            made = Rollout(self.rollout, self.clock(), "local", "p1", changes, canary=canary)
            rollouts.add(connection, made)
        ledger = self.ledger()
        with ledger.held():
            ledger.add(self.rollout, "planned")
            ledger.add(self.rollout, "approved")
        self.steps.seen = 0

    def executor(self, name: str) -> Executor:
        return self.system

    def ledger(self) -> KillableLedger:
        ledger = KillableLedger(self.transactions, self.clock, lease_s=LEASE_S)
        ledger.steps = self.steps
        return ledger

    def act(self, what: str) -> RolloutStanding:
        """A controller of its own, as another process would have."""
        ledger = self.ledger()
        controller = Controller(ledger, self.executor)
        ledger.steps = self.steps
        with ledger.held():
            return self.run(controller, what)

    def run(self, controller: Controller, what: str) -> RolloutStanding:
        if what == "carry_out":
            return controller.carry_out(self.rollout)
        return controller.undo(self.rollout, "by hand")

    def killed(self, what: str, at: int) -> bool:
        """Whether a controller was killed at this moment; its lease stays behind until it runs out."""
        self.steps.seen, self.steps.kill_at = 0, at
        ledger = self.ledger()
        entered = ledger.held()
        entered.__enter__()
        try:
            self.run(Controller(ledger, self.executor), what)
        except Killed:
            ledger._holder = ""  # so that what is closed here leaves its lease, as a process does that dies
            return True
        else:
            return False
        finally:
            self.steps.kill_at = None
            entered.__exit__(None, None, None)
            self.clock.forward(LEASE_S + 1)

    def standing(self) -> RolloutStanding:
        return self.ledger().standing(self.rollout)
