"""Packing: everybody as close together as limits allow, each beside those of its family that do about as much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from advisor.planning.assignment.consolidation import empty
from advisor.planning.assignment.demand_classes import DemandClass, families
from advisor.planning.assignment.local_search import Clock
from advisor.planning.assignment.objectives import arrivals
from advisor.planning.assignment.packing_problem import Kinds
from advisor.planning.assignment.search_state import SearchState, used

AHEAD = 16  # instances that a host is asked about at a time, one more with each question
COPIES = (1, 2, 4, 8, 16, 32, 64)  # of one of a family, to tell which families need most hosts


def anew(seats: SearchState, clock: Clock, most_moves: int | None, least: int) -> bool:
    """Pack all who may move on an empty cloud, then empty hosts until `least` are in use; what is not better than
    before is taken back. True when it ended of itself."""
    before, were = list(seats.movers), used(seats)
    seats.take_over([()] * len(before))
    seats.effects.ask((host, ()) for host in range(seats.ground.hosts))
    left = pack(seats, [kind for there in before for kind in there], clock)
    ended = empty(seats, clock, None, least) and not left
    if left or used(seats) >= were or not _few(seats, most_moves):
        seats.take_over(before)
    return ended


def pack(seats: SearchState, waiting: Sequence[int], clock: Clock) -> list[int]:
    """Seat those waiting beside who is there, family by family: those first that need most hosts, of each the heaviest
    first, on every host as many as come next and break no limit; returns those for whom there was no host then. So
    those that do about as much share a host: who does more than the others there is the first to fall below a limit.
    """
    everybody, left = Counter(waiting), list[int]()
    found = families(seats.ground, everybody)
    needs = [_need(seats, family) for family in found]
    for number in sorted(range(len(found)), key=lambda number: (-needs[number], number)):
        left += _seated(seats, [kind for kind in reversed(found[number].kinds) for _ in range(everybody[kind])], clock)
    return left


def _need(seats: SearchState, family: DemandClass) -> float:
    """About how many hosts a family takes, by copies of one in the middle of it on the most common class of hosts."""
    middle = family.kinds[int(np.searchsorted(np.cumsum(family.count), family.total / 2))]
    common = int(np.bincount(seats.ground.of_class).argmax())
    seats.effects.ask_keys((common, (middle,) * many) for many in COPIES)
    fine = [many for many in COPIES if not seats.effects.known(common, (middle,) * many).below]
    return family.total / max(fine, default=1)


def _seated(seats: SearchState, queue: Sequence[int], clock: Clock) -> Sequence[int]:
    """Seat these in their order, hosts in use first and then the largest; returns those that no host took."""
    room = seats.ground.room
    order = sorted(range(seats.ground.hosts), key=lambda host: (not seats.here[host].any(), *(-room[host]), host))
    for host in order:
        if not queue or clock.over:
            break
        taken = -1
        while queue and taken:
            more = _next(seats, host, queue)
            taken = len(more) - len(seats.movers[host])
            seats.seat(host, more)
            queue = queue[taken:]
    return queue


def _next(seats: SearchState, host: int, queue: Sequence[int]) -> Kinds:
    """Who sits on a host with as many more as come next, of AHEAD at most, and break no limit."""
    there = seats.movers[host]
    tried = []
    for many in range(1, min(AHEAD, len(queue)) + 1):
        more = tuple(sorted((*there, *queue[:many])))
        if not seats.ground.fits(host, more):
            break
        tried.append(more)
    seats.effects.ask((host, more) for more in tried)
    for more in tried:
        if not seats.accepted(host, more):
            break
        there = more
    return there


def _few(seats: SearchState, most_moves: int | None) -> bool:
    if most_moves is None:
        return True
    return sum(arrivals(seats.ground, host, there) for host, there in enumerate(seats.movers)) <= most_moves
