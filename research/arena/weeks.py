"""Weeks: containers with daily curves that drift from day to day, moved by whoever watches them.

Hosts are queues of work, as in `research.arena.evenings`, of which these are the containers; bursts are not looked at.
Work that a host has left over waits, up to half of what it does in a window; more is given up. A container that moves
is contended for one window, whatever its hosts have left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from models.arrays import Floats, Ints
from research.arena import evenings
from research.arena.evenings import HOST_CPUS, HOSTS, MOST, DailyContainer

WINDOW_S = 300.0
A_DAY = 288  # windows
DAYS = 7  # after the first one, in which all watch and none moves
CONTENDED = 0.95  # of the demand: a window in which less is delivered
HOT, HOT_WEIGHT = 3, 3.0  # so many hosts have so many times the others' chance to get a container
MOST_LEFT = 0.5  # of what a host does in a window
DRIFTS, DRIFT = 0.15, 0.5  # of the containers each day; standard deviation of the logarithm of their level then


@dataclass(slots=True)
class Week:
    """`demand` (T, N) of containers in CPUs, and where each is now, by number; one policy each."""

    containers: tuple[DailyContainer, ...]
    demand: Floats
    host_of: Ints
    at: int = 0
    delivered: list[Floats] = field(default_factory=list)  # (N,) of each window of the week
    moves: int = 0
    _left: Floats = field(default_factory=lambda: np.zeros(HOSTS))
    _moved: set[int] = field(default_factory=set)

    @classmethod
    def draw(cls, seed: int) -> Week:
        """Week number `seed`."""
        world = evenings.draw(seed, 0)
        containers = (*world.residents, *world.new_vms)
        rng = np.random.default_rng([41, seed])
        weights = rng.permutation(np.where(np.arange(HOSTS) < HOT, HOT_WEIGHT, 1.0))
        host_of = np.zeros(len(containers), dtype=np.int64)
        for number in range(len(containers)):
            room = np.bincount(host_of[:number], minlength=HOSTS) < MOST
            host_of[number] = rng.choice(HOSTS, p=weights * room / (weights * room).sum())
        count = (DAYS + 1) * A_DAY
        demand = np.array([one.demand(0.0, 24 / A_DAY, count) for one in containers]).T
        drifts = rng.random((DAYS + 1, len(containers))) < DRIFTS
        steps = np.where(drifts, rng.normal(-(DRIFT**2) / 2, DRIFT, drifts.shape), 0.0)
        steps[0] = 0.0
        level = np.repeat(np.exp(np.cumsum(steps, axis=0)), A_DAY, axis=0)
        return cls(containers, np.minimum(demand * level, float(evenings.VCPUS)), host_of)

    def step(self) -> tuple[Floats, Floats]:
        """One window passes; what each container ran, in CPUs, and which part of its demand was delivered, (N,)."""
        wanted = self.demand[self.at]
        there = self._left + np.bincount(self.host_of, weights=wanted, minlength=HOSTS)
        shares = np.minimum(1.0, HOST_CPUS / np.maximum(there, 1e-9))
        self._left = np.clip(there - HOST_CPUS, 0.0, MOST_LEFT * HOST_CPUS)
        delivered = shares[self.host_of]
        run = wanted * delivered
        felt = delivered.copy()
        felt[list(self._moved)] = np.minimum(felt[list(self._moved)], CONTENDED - 0.01)
        self._moved.clear()
        if self.at >= A_DAY:
            self.delivered.append(felt)
        self.at += 1
        return run, delivered

    @property
    def over(self) -> bool:
        """Whether the week is over."""
        return self.at >= len(self.demand)

    def move(self, container: int, host: int) -> None:
        """Move a container now."""
        self.host_of[container] = host
        self._moved.add(container)
        self.moves += 1

    def judged(self) -> dict[str, float]:
        """In the week after the first day: contended time of all and of the most affected container (%), containers
        that are contended for more than a twentieth of it, and moves."""
        contended = 100 * (np.array(self.delivered) < CONTENDED).mean(axis=0)
        return {
            "contended, %": float(contended.mean()), "most affected, %": float(contended.max()),
            "over 5 %": float((contended > 5).sum()), "moves": float(self.moves),
        }  # fmt: skip


def balance(week: Week, used: Sequence[Floats], spread: float = 0.1, most: int = 20) -> None:
    """Moves as a balancer of averages makes them: from the fullest host to the emptiest, the container that brings both
    nearest to each other, until they are `spread` of their CPUs apart. `used` are the windows that it looks at."""
    mean = np.mean(used, axis=0)
    for _ in range(most):
        load = np.bincount(week.host_of, weights=mean, minlength=HOSTS)
        full, empty = int(load.argmax()), int(load.argmin())
        gap = float(load[full] - load[empty])
        there = np.flatnonzero(week.host_of == full)
        if gap <= spread * HOST_CPUS or not len(there) or int((week.host_of == empty).sum()) >= MOST:
            return
        after = np.abs(gap - 2 * mean[there])
        if float(after.min()) >= gap:
            return
        week.move(int(there[after.argmin()]), empty)


def by_averages(seed: int, every: int, seen: int) -> Week:
    """A week in which averages of the last `seen` windows are balanced after each `every` windows."""
    return played(seed, lambda week, runs: balance(week, runs[-seen:]), every)


def played(seed: int, policy: Callable[[Week, Sequence[Floats]], None], every: int) -> Week:
    """A week of a policy that is asked after each `every` windows, from the second day on."""
    week, runs = Week.draw(seed), list[Floats]()
    while not week.over:
        run, _ = week.step()
        runs = [*runs[-(A_DAY - 1) :], run]
        if week.at >= A_DAY and week.at % every == 0:
            policy(week, runs)
    return week
