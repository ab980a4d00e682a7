"""Emptying: whole hosts freed, many at a time in a large cloud, with the model judging every host that takes one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.planning.assignment.local_search import Clock, suits_best
from advisor.planning.assignment.objectives import arrivals
from advisor.planning.assignment.packing_problem import Kinds, PackingProblem
from advisor.planning.assignment.search_state import SearchState, minus, plus, size, used
from models.arrays import Bools, Floats, Ints

OFFERS = 8  # hosts that are asked about at a time for one instance
PER_EMPTIED = 32  # hosts in use for each that is emptied at the same time


@dataclass(frozen=True, slots=True)
class Refusals:
    """Who broke a limit where: `sort` (K,) numbers kinds alike but for load and memory, `load` (K,) is how much a kind
    does, and `least` (S, H) the least that a host refused of a sort, inf = nothing yet.

    A host only fills up while others are emptied, so who was refused is not asked about again, nor who does more. That
    orders questions and answers none.
    """

    sort: Ints
    load: Floats
    least: Floats

    @classmethod
    def none(cls, ground: PackingProblem) -> Refusals:
        number: dict[tuple[object, ...], int] = {}
        sort = [
            number.setdefault(
                (k.workload, k.vcpus, k.settings, k.service, k.min_throughput_ratio, k.max_latency_ratio), len(number)
            )
            for k in ground.kinds
        ]
        return cls(
            sort=np.array(sort, dtype=np.int64),
            load=np.array([k.load for k in ground.kinds]),
            least=np.full((len(number), ground.hosts), np.inf),
        )

    def open(self, kind: int) -> Bools:
        """Hosts that may still take it, (H,)."""
        return np.asarray(self.load[kind] < self.least[self.sort[kind]])

    def add(self, kind: int, host: int) -> None:
        """Remember that it was refused."""
        self.least[self.sort[kind], host] = min(self.least[self.sort[kind], host], self.load[kind])


def empty(seats: SearchState, clock: Clock, most_moves: int | None, least: int) -> bool:
    """Empty hosts that nobody must stay on, those with fewest on them first, until `least` are in use: each as a whole
    while everybody there finds another host in use and no limit breaks, or not at all. True when it ended of itself.

    In a large cloud several are emptied at a time, so that the model is asked about many hosts at once; a host takes
    from one of them only. Who finds none for that reason is tried again, with half as many at a time.
    """
    refusals = Refusals.none(seats.ground)
    queue = [host for host, there in enumerate(seats.movers) if there and not seats.ground.fixed[host]]
    in_use = used(seats)
    most = max(1, in_use // PER_EMPTIED)
    while queue and in_use > least:
        if clock.over:
            return False
        queue.sort(key=lambda host: (len(seats.movers[host]), *seats.used[host].tolist(), host))
        many = min(most, max(1, in_use // PER_EMPTIED), in_use - least)
        batch = _Batch.of(seats, refusals, queue[:many], most_moves)
        batch.empty(clock)
        queue = [*batch.again, *queue[many:]]
        in_use -= batch.emptied
        if batch.again and not batch.emptied:
            most = max(1, many // 2)
    return True


@dataclass(slots=True)
class _Leaving:
    """A host that is being emptied: who was there, and by host that takes one, who was and who was refused there."""

    were: Kinds
    taking: dict[int, tuple[Kinds, Floats]] = field(default_factory=dict)


@dataclass(slots=True)
class _Batch:
    """Hosts that are emptied at the same time, `free` (H,) those that may take from any of them. `emptied` of them are
    empty in the end, `again` those that others were in the way of. `moves` are those that may still be made."""

    seats: SearchState
    refusals: Refusals
    going: dict[int, _Leaving]
    free: Bools
    moves: float
    emptied: int = 0
    again: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, seats: SearchState, refusals: Refusals, hosts: Sequence[int], most_moves: int | None) -> _Batch:
        free = np.array(seats.here.any(axis=1))
        free[list(hosts)] = False
        left = np.inf if most_moves is None else most_moves - _came(seats, range(seats.ground.hosts))
        return cls(seats, refusals, {host: _Leaving(seats.movers[host]) for host in hosts}, free, left)

    def empty(self, clock: Clock) -> None:
        """Seat one of each host after another elsewhere, until all are empty or as they were."""
        alone = len(self.going) == 1
        while self.going:
            offers = []
            offered = np.zeros_like(self.free)
            for host, one in list(self.going.items()):
                mine = self.free.copy()
                mine[list(one.taking)] = True
                kind, fine = _hardest(self.seats, self.refusals, host, mine)
                if clock.over or not fine.any():
                    self._back(host)
                    anybody = np.asarray(self.seats.here.any(axis=1))
                    if not alone and _hardest(self.seats, self.refusals, host, anybody)[1].any():
                        self.again.append(host)
                    continue
                some = self.seats.likely(kind, np.flatnonzero(fine & ~offered))[:OFFERS].tolist()
                offered[some] = True
                offers.append((host, kind, some))
            self.seats.effects.ask(
                (target, plus(self.seats.movers[target], kind)) for _, kind, some in offers for target in some
            )
            for host, kind, some in offers:
                self._take(host, kind, some)

    def _take(self, host: int, kind: int, some: Sequence[int]) -> None:
        """Seat one of a kind on the best of the hosts that were asked about, where one breaks no limit."""
        seats = self.seats
        for target in some:
            if not seats.accepted(target, plus(seats.movers[target], kind)):
                self.refusals.add(kind, target)
        best = suits_best(seats, kind, some)
        if best is None:
            return
        self.going[host].taking.setdefault(best, (seats.movers[best], self.refusals.least[:, best].copy()))
        self.free[best] = False
        seats.seat(best, plus(seats.movers[best], kind))
        seats.seat(host, minus(seats.movers[host], kind))
        if not seats.movers[host]:
            self._emptied(host)

    def _emptied(self, host: int) -> None:
        """Keep what was found where that is not too many moves."""
        one, ground = self.going[host], self.seats.ground
        before = arrivals(ground, host, one.were)
        before += sum(arrivals(ground, target, were) for target, (were, _) in one.taking.items())
        more = _came(self.seats, one.taking) - before
        if more > self.moves:
            self._back(host)
            return
        self.moves -= more
        self.emptied += 1
        self.free[list(one.taking)] = True
        del self.going[host]

    def _back(self, host: int) -> None:
        """Everybody of a host is there again."""
        one = self.going.pop(host)
        for target, (were, refused) in one.taking.items():
            self.seats.seat(target, were)
            self.refusals.least[:, target] = refused
        self.seats.seat(host, one.were)
        self.free[list(one.taking)] = True


def _came(seats: SearchState, hosts: Iterable[int]) -> int:
    return sum(arrivals(seats.ground, host, seats.movers[host]) for host in hosts)


def _hardest(seats: SearchState, refusals: Refusals, host: int, free: Bools) -> tuple[int, Bools]:
    """Of those on a host the kind that fewest of the free ones may take, the larger of equals; and which may, (H,)."""
    found = []
    for kind in dict.fromkeys(seats.movers[host]):
        fine = free & refusals.open(kind) & seats.room(kind)
        fine[host] = False
        found.append((int(fine.sum()), -size(seats, kind), kind, fine))
    _, _, kind, fine = min(found, key=lambda one: one[:3])
    return kind, fine
