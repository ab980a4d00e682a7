"""A cloud in memory in which instances move between hosts with little room, and a plan of moves and settings.

It keeps its own account of what happened: how often a migration was begun, whether two ran at once, and whether a host
ever held more than it has room for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from advisor.changes.controller import HOST, ChangeFailed, Executor, Gone, Meaning
from advisor.changes.migrations import Migrations, Place, Waiting
from advisor.domain import Change, Command, Host, Rollout
from advisor.store import rollouts
from tests.advisor.changes.simulated import Bench, Steps, System

ROOM = {"h1": 2, "h2": 2, "h3": 2}
# c leaves h2, so that a has room there; then b has room on h1's other side: each prefix keeps ROOM.
PLACES = {"a": "h1", "b": "h1", "c": "h2", "d": "h2"}
TEXTS = {"a": {"weight": "100"}, "d": {"weight": "100"}}
TAKES_S = 30.0


class Cloud:
    """`places` by instance; a migration takes TAKES_S of the cloud's own time, which passes while it is waited for."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.places = dict(PLACES)
        self.now = 0.0
        self.moving: dict[str, tuple[str, float]] = {}  # by instance where to, and when it is there
        self.begun: Counter[tuple[str, str]] = Counter()
        self.broken: list[str] = []  # what must not happen
        self.refuses: set[tuple[str, str]] = set()  # instance and host
        self.states: dict[str, str] = {}
        self.answers: Callable[[str], None] = lambda what: None  # raises where a call is not answered
        self.lost: Callable[[str], None] = lambda name: None  # raises after a migration was begun
        self.called_off: list[str] = []

    def waiting(self, patience_s: float = 300.0) -> Waiting:
        return Waiting(patience_s, poll_s=10.0, clock=lambda: self.now, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.steps()
        self.now += seconds
        for name, (there, ends) in list(self.moving.items()):
            if self.now >= ends:
                del self.moving[name]
                if name in self.places:
                    self.places[name] = there
                    self._check_room(there)

    def place(self, change: Change) -> Place:
        self.answers("place")
        name = change.instance
        if name not in self.places:
            raise Gone(f"{name} is gone")
        return Place(self.places[name], name in self.moving, self.states.get(name, ""))

    def begin(self, change: Change, there: str) -> None:
        self.steps()
        self.answers("begin")
        name = change.instance
        if (name, there) in self.refuses:
            raise ChangeFailed(f"{there} does not take {name}")
        if name in self.moving or self.places[name] == there:
            self.broken.append(f"{name} was moved to {there} while it moved, or was there")
        self.begun[name, there] += 1
        self.moving[name] = (there, self.now + TAKES_S)
        self.lost(name)
        self.steps()

    def call_off(self, change: Change) -> None:
        self.called_off.append(change.instance)
        self.moving.pop(change.instance, None)

    def failure(self, change: Change) -> str:
        return ""

    def settle(self) -> None:
        """Time passes without a controller."""
        kill_at, self.steps.kill_at = self.steps.kill_at, None
        self.sleep(2 * TAKES_S)
        self.steps.kill_at = kill_at

    def _check_room(self, host: str) -> None:
        there = sum(place == host for place in self.places.values())
        if there > ROOM[host]:
            self.broken.append(f"{host} holds {there}")


class Moves:
    """The executor of that cloud."""

    def __init__(self, cloud: Cloud, patience_s: float = 300.0) -> None:
        self._migrations = Migrations(cloud, cloud.waiting(patience_s))

    def meaning(self, host: Host, command: Command) -> Meaning:
        raise AssertionError("changes are given here")

    def read(self, change: Change) -> Mapping[str, str]:
        return self._migrations.read(change)

    def write(self, change: Change, values: Mapping[str, str]) -> None:
        self._migrations.write(change, values)

    def same(self, setting: str, one: str, other: str) -> bool:
        return one == other


def _move(number: int, name: str, source: str, there: str) -> Change:
    return Change(number, source, name, "move", "moves", name, {HOST: source}, {HOST: there})


def _weigh(number: int, name: str, host: str) -> Change:
    return Change(number, host, name, "weight", "settings", name, {"weight": "100"}, {"weight": "300"})


PLAN = (
    _weigh(0, "d", "h2"), _move(1, "c", "h2", "h3"), _move(2, "a", "h1", "h2"), _weigh(3, "a", "h2"),
    _move(4, "b", "h1", "h3"),
)  # fmt: skip
THEN = {"a": "h2", "b": "h3", "c": "h3", "d": "h2"}
WEIGHED = {"a": {"weight": "300"}, "d": {"weight": "300"}}


class MovesBench(Bench):
    """The plan on that cloud; its settings are in a System beside it."""

    def __init__(self, folder: Path, *, keeps: bool = False) -> None:
        self.keeps = keeps
        self.patience_s = 300.0
        super().__init__(folder)

    def begin(self, *, canary: int = 0) -> None:
        self.number += 1
        self.rollout = f"m{self.number}"
        self.steps = Steps()
        self.system = System(TEXTS, self.steps)
        self.cloud = Cloud(self.steps)
        with self.transactions.write() as connection:
            made = Rollout(self.rollout, self.clock(), "local", "p1", PLAN, canary=canary, keeps=self.keeps)
            rollouts.add(connection, made)
        ledger = self.ledger()
        with ledger.held():
            ledger.add(self.rollout, "planned")
            ledger.add(self.rollout, "approved")
        self.steps.seen = 0

    def executor(self, name: str) -> Executor:
        return Moves(self.cloud, self.patience_s) if name == "moves" else self.system

    def state(self) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
        self.cloud.settle()
        return self.cloud.places, self.system.texts


BEFORE = (PLACES, TEXTS)
AFTER = (THEN, WEIGHED)
