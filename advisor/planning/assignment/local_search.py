"""Local search for clouds of any size: seats filled one after another, then mended by moves and swaps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from advisor import deadline
from advisor.planning.assignment.packing_problem import VCPUS, Kinds
from advisor.planning.assignment.search_state import SearchState, better, minus, plus

NARROW = 24  # hosts that are asked about at a time for one instance in a large cloud, a third of them drawn at random
FEW = 64  # hosts: up to so many all are asked about, and instances are placed one at a time
TRIES = 96  # instances that are tried elsewhere in one round
SWAPS = 12  # others that each of them is tried in place of
PATIENCE = 6  # rounds without anything better after which the search has found what it can
ROUNDS_PER_HOST = 3  # bounds the search by its work, so that the wall clock rarely decides what is found


@dataclass(frozen=True, slots=True)
class Clock:
    """When the search is to end, by the wall clock, and when whatever is begun; the request's deadline counts, too."""

    until: float
    latest: float

    @classmethod
    def of(cls, seconds: float) -> Clock:
        """So many seconds from now, and a tenth more for what is begun."""
        now, seconds = time.monotonic(), min(seconds, deadline.left_s())
        return cls(now + seconds, now + 1.1 * seconds)

    @property
    def left_s(self) -> float:
        return self.until - time.monotonic()

    @property
    def over(self) -> bool:
        return self.left_s <= 0

    @property
    def too_late(self) -> bool:
        return time.monotonic() >= self.latest


def fill(seats: SearchState, waiting: Sequence[int], random: np.random.Generator, clock: Clock) -> list[int]:
    """Seat those waiting, in their order, each where the host suits it best now; returns whom nobody can take.

    Up to FEW hosts this is placement in turn. In a larger cloud some are placed at a time, each on a host of its own
    among those that pairs of workloads speak for; before one is given up, every host is asked about. When the time is
    over, half as many as there are hosts are placed at a time.
    """
    hosts = seats.ground.hosts
    queue, refused, hopeless = list(waiting), [], set[int]()
    while queue and not clock.too_late:
        at_once = 1 if hosts <= FEW or seats.objective == "pack" else max(1, hosts // 16)
        at_once = max(1, hosts // 2) if clock.over else at_once
        now, queue = queue[:at_once], queue[at_once:]
        again = []
        tried = [(kind, candidates(seats, kind, random)) for kind in now if kind not in hopeless]
        refused += [kind for kind in now if kind in hopeless]
        seats.effects.ask((host, plus(seats.movers[host], kind)) for kind, some in tried for host in some)
        taken: set[int] = set()
        for kind, some in tried:
            best = suits_best(seats, kind, [host for host in some if host not in taken])
            if best is None and taken:
                again.append(kind)  # somebody of this round took its host: ask anew
                continue
            if best is None and hosts > FEW:
                every = distinct(seats, kind)
                seats.effects.ask((host, plus(seats.movers[host], kind)) for host in every)
                best = suits_best(seats, kind, every)
            if best is None:
                refused.append(kind)
                hopeless.add(kind)
            else:
                seats.seat(best, plus(seats.movers[best], kind))
                taken.add(best)
        queue = again + queue
    return refused + queue


def candidates(seats: SearchState, kind: int, random: np.random.Generator) -> list[int]:
    """Hosts to ask about for one instance."""
    hosts = distinct(seats, kind) if seats.ground.hosts <= FEW else np.flatnonzero(seats.room(kind)).tolist()
    if seats.ground.hosts <= FEW or len(hosts) <= NARROW:
        return hosts
    first = seats.likely(kind, np.array(hosts))[: NARROW - NARROW // 3].tolist()
    others = random.choice(len(hosts), NARROW // 3, replace=False)
    return list(dict.fromkeys([*first, *(hosts[one] for one in others)]))[:NARROW]


def distinct(seats: SearchState, kind: int) -> list[int]:
    """The first of the hosts with room that are alike in class and company."""
    found: dict[tuple[object, ...], int] = {}
    for host in np.flatnonzero(seats.room(kind)).tolist():
        room = (seats.ground.room[host] - seats.used[host])[VCPUS] if seats.objective == "pack" else 0.0
        found.setdefault((*seats.effects.key(host, seats.movers[host]), room), host)
    return list(found.values())


def suits_best(seats: SearchState, kind: int, hosts: Sequence[int]) -> int | None:
    """The host that suits it best and breaks no limit; of equal ones the first."""

    def key(host: int) -> tuple[float, ...]:
        before, after = seats.column(host), seats.effects.at(host, plus(seats.movers[host], kind))
        if seats.objective == "worst":
            return round(after.harm, 9), round(after.lost - before.lost, 9), host
        if seats.objective == "pack":
            share = seats.used[host, VCPUS] / seats.ground.room[host, VCPUS]
            return float(not before.kinds), -round(share, 9), round(after.lost - before.lost, 9), host
        return round(after.lost - before.lost, 9), host

    fine = [host for host in hosts if seats.accepted(host, plus(seats.movers[host], kind))]
    return min(fine, key=key, default=None)


Change = tuple[tuple[int, Kinds], tuple[int, Kinds]]  # two hosts, each with who would sit there


def improve(seats: SearchState, random: np.random.Generator, clock: Clock) -> bool:
    """Move and swap whoever may, while that makes the plan better; True when it ended of itself.

    Rounds look at the hosts that cost most and at some at random; of what is better in a round, the best comes first
    and no host changes twice.
    """
    idle = 0
    for _ in range(PATIENCE + ROUNDS_PER_HOST * seats.ground.hosts):
        if idle >= PATIENCE:
            return True
        if clock.over:
            return False
        changes = [one for one in _changes(seats, random) if _possible(seats, one)]
        seats.effects.ask(side for change in changes for side in change)
        found = []
        for number, change in enumerate(changes):
            if all(seats.accepted(*side) for side in change):
                before = seats.cost(seats.column(host) for host, _ in change)
                after = seats.cost(seats.effects.at(*side) for side in change)
                if better(after, before):
                    found.append((after[0] - before[0], after[1] - before[1], number))
        touched: set[int] = set()
        for _, _, number in sorted(found):
            if touched.isdisjoint(host for host, _ in changes[number]):
                for host, movers in changes[number]:
                    seats.seat(host, movers)
                    touched.add(host)
        idle = 0 if found else idle + 1
    return True


def _changes(seats: SearchState, random: np.random.Generator) -> Iterator[Change]:
    """Moves and swaps worth asking about."""
    sources = [host for host, there in enumerate(seats.movers) if there]
    if not sources:
        return
    costs = np.array([seats.cost([seats.column(host)]) for host in sources])
    worst = np.lexsort((-costs[:, 1], -costs[:, 0])) if seats.objective != "pack" else np.argsort(-costs[:, 1])
    half = [sources[one] for one in worst[: TRIES // 4].tolist()]
    drawn = [sources[one] for one in random.permutation(len(sources))[: TRIES // 4].tolist()]
    tried = 0
    for source in dict.fromkeys([*half, *drawn]):
        for kind in dict.fromkeys(seats.movers[source]):
            without = minus(seats.movers[source], kind)
            for target in candidates(seats, kind, random)[: NARROW // 2]:
                if target != source:
                    yield (source, without), (target, plus(seats.movers[target], kind))
            yield from _swaps(seats, source, kind, random)
            tried += 1
            if tried >= TRIES:
                return


def _swaps(seats: SearchState, source: int, kind: int, random: np.random.Generator) -> Iterator[Change]:
    others = [host for host, there in enumerate(seats.movers) if there and host != source]
    for at in random.integers(0, max(len(others), 1), SWAPS if others else 0).tolist():
        there = seats.movers[others[at]]
        other = there[int(random.integers(len(there)))]
        if other != kind:
            yield (
                (source, plus(minus(seats.movers[source], kind), other)),
                (others[at], plus(minus(there, other), kind)),
            )


def _possible(seats: SearchState, change: Change) -> bool:
    return all(seats.ground.fits(host, movers) for host, movers in change)
