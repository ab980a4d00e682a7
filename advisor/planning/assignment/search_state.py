"""Seats: who sits where while a plan is searched for, what that costs, and where one more has room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.domain import Objective
from advisor.planning.assignment.packing_problem import DRIVER, VCPUS, Kinds, PackingProblem
from advisor.planning.assignment.pattern_evaluator import SAME, Pattern, PatternEvaluator
from advisor.rounding import with_slack
from models.arrays import Bools, Floats, Ints

Cost = tuple[float, float]  # what decides, and what decides between equals; lower is better

MOST_FAMILIES = 400  # of workloads whose pairs are all asked about: 80,000 pairs


@dataclass(slots=True)
class SearchState:
    """`movers` (H,) are those that may move, as they sit now; it starts as the cloud is.

    A host's company is accepted when nobody is below a limit who was not there, below it and as badly off, at the
    start: what is broken before a plan does not forbid it, and no plan breaks more.
    """

    effects: PatternEvaluator
    objective: Objective
    movers: list[Kinds]
    used: Floats
    family: Ints
    pressing: Floats
    here: Floats  # (H, F) how many of each family
    alone: Bools  # (H,) whether one is there that shares its host with nobody
    _tolerated: tuple[Mapping[int, tuple[float, int]], ...] = field(default=())

    @classmethod
    def of(cls, effects: PatternEvaluator, objective: Objective) -> SearchState:
        """The cloud as it is; asks about its hosts and about every pair of families of workloads."""
        ground = effects.ground
        hosts = range(ground.hosts)
        effects.ask((host, ground.start[host]) for host in hosts)
        tolerated = []
        for host in hosts:
            below = effects.at(host, ground.start[host]).below
            counts = Counter(kind for kind, _ in below)
            tolerated.append({kind: (ratio, counts[kind]) for kind, ratio in sorted(below, reverse=True)})
        names: dict[str, int] = {}
        family = np.array([names.setdefault(one.workload or "", len(names)) for one in ground.kinds], dtype=np.int64)
        here = np.zeros((ground.hosts, max(len(names), 1)))
        everybody = [(*ground.fixed[host], *ground.start[host]) for host in hosts]
        for host, there in enumerate(everybody):
            np.add.at(here[host], family[list(there)], 1)
        used = np.array([ground.used(host, there) for host, there in enumerate(everybody)]).reshape(-1, 4)
        pressing = effects.pairs(family, len(names)) if len(names) <= MOST_FAMILIES else np.ones((1, 1))
        alone = np.array([not ground.alone.isdisjoint(there) for there in everybody], dtype=bool)
        return cls(effects, objective, list(ground.start), used, family, pressing, here, alone, tuple(tolerated))

    @property
    def ground(self) -> PackingProblem:
        return self.effects.ground

    @property
    def tolerated(self) -> Counter[int]:
        """How many of each kind may be below a limit, as they were at the start."""
        found: Counter[int] = Counter()
        for there in self._tolerated:
            found.update({kind: count for kind, (_, count) in there.items()})
        return found

    def column(self, host: int) -> Pattern:
        """The host as it is now."""
        return self.effects.at(host, self.movers[host])

    def accepted(self, host: int, movers: Kinds) -> bool:
        """Whether nobody there is below a limit who was not before; its column is known."""
        below = self.effects.at(host, movers).below
        if not below:
            return True
        if movers == self.ground.start[host]:
            return True
        tolerated, counts = self._tolerated[host], Counter(kind for kind, _ in below)
        return all(
            kind in tolerated and ratio >= tolerated[kind][0] - SAME and counts[kind] <= tolerated[kind][1]
            for kind, ratio in below
        )

    def cost(self, columns: Iterable[Pattern]) -> Cost:
        """What some hosts cost together: of `worst` the greatest loss decides, of `total` and `pack` sums do."""
        columns = list(columns)
        if self.objective == "worst":
            return max((one.most for one in columns), default=0.0), sum(one.harm for one in columns)
        used = sum(bool(one.kinds) for one in columns) if self.objective == "pack" else 0
        return float(used), sum(one.lost for one in columns)

    def room(self, kind: int) -> Bools:
        """Hosts with room for one more of a kind, (H,), whatever comes of the others there."""
        ground = self.ground
        needs = ground.needs[kind][ground.of_class]
        over = self.used + needs > with_slack(ground.room)
        over[:, DRIVER] &= needs[:, DRIVER] > 0
        found = ground.allowed[kind] & ~over.any(axis=1)
        if ground.exclusive.any():
            found &= ~self.alone & ((self.here.sum(axis=1) == 0) | ~ground.exclusive[kind])
        return np.asarray(found)

    def likely(self, kind: int, hosts: Ints) -> Ints:
        """Hosts in the order in which they are worth asking about, by what pairs do to each other there; to pack, the
        used ones and of them the fullest first."""
        pressure = np.zeros(len(hosts))
        if len(self.pressing) > 1 or len(self.here[0]) == 1:
            pressure = self.here[hosts] @ self.pressing[self.family[kind]]
        if self.objective == "pack":
            share = self.used[hosts, VCPUS] / self.ground.room[hosts, VCPUS]
            return hosts[np.lexsort((pressure, -share, self.here[hosts].sum(axis=1) == 0))]
        return hosts[np.argsort(pressure, kind="stable")]

    def seat(self, host: int, movers: Kinds) -> None:
        """Let these sit there, and nobody else who may move."""
        self.movers[host] = movers
        everybody = (*self.ground.fixed[host], *movers)
        self.used[host] = self.ground.used(host, everybody)
        self.here[host] = 0
        np.add.at(self.here[host], self.family[list(everybody)], 1)
        self.alone[host] = not self.ground.alone.isdisjoint(everybody)

    def take_over(self, movers: Sequence[Kinds]) -> None:
        """Everybody sits as told, one entry per host."""
        for host, there in enumerate(movers):
            if there != self.movers[host]:
                self.seat(host, there)


def used(seats: SearchState) -> int:
    """How many hosts are in use."""
    return int(seats.here.any(axis=1).sum())


def size(seats: SearchState, kind: int) -> float:
    """The largest share of all the room of one resource that a kind takes: by this the largest come first."""
    ground = seats.ground
    room = ground.room[:, :DRIVER].sum(axis=0)
    needs = ground.needs[kind, 0, :DRIVER]
    return float(np.divide(needs, room, out=np.zeros_like(needs), where=np.isfinite(room) & (room > 0)).max())


def better(one: Cost, other: Cost) -> bool:
    """Whether the first costs less, by more than rounding."""
    if abs(one[0] - other[0]) > SAME:
        return one[0] < other[0]
    return one[1] < other[1] - SAME


def plus(kinds: Kinds, kind: int) -> Kinds:
    """One more of a kind."""
    return tuple(sorted((*kinds, kind)))


def minus(kinds: Kinds, kind: int) -> Kinds:
    """One less of a kind that is there."""
    at = kinds.index(kind)
    return kinds[:at] + kinds[at + 1 :]
