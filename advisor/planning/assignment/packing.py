"""Packs instances as tightly as limits allow, by demand class and load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from advisor.planning.assignment.consolidation import empty_hosts
from advisor.planning.assignment.demand_classes import DemandClass, demand_classes
from advisor.planning.assignment.local_search import SearchClock
from advisor.planning.assignment.objectives import arrivals
from advisor.planning.assignment.packing_problem import Kinds
from advisor.planning.assignment.search_state import SearchState, hosts_in_use

AHEAD = 16  # instances tried on a host in one prediction, one more in each scene
COPIES = (1, 2, 4, 8, 16, 32, 64)  # copies of one member, to estimate how many hosts a demand class needs


def repack(state: SearchState, clock: SearchClock, most_moves: int | None, least: int) -> bool:
    """Pack all movable instances onto a cloud without them, then empty hosts until `least` are in use.

    The former state is restored unless fewer hosts are in use. Returns True if it ended before the clock did.
    """
    before, hosts_before = list(state.movers), hosts_in_use(state)
    state.place_all([()] * len(before))
    state.evaluator.evaluate((host, ()) for host in range(state.problem.hosts))
    unplaced = pack(state, [kind for movers in before for kind in movers], clock)
    ended = empty_hosts(state, clock, None, least) and not unplaced
    if unplaced or hosts_in_use(state) >= hosts_before or not _few(state, most_moves):
        state.place_all(before)
    return ended


def pack(state: SearchState, waiting: Sequence[int], clock: SearchClock) -> list[int]:
    """Place waiting instances beside those in place; returns those without a host.

    Demand classes that need most hosts come first, and of each class the heaviest instances. A host takes as many of
    the next instances as its limits allow. Instances of similar load thus share a host, because the heaviest on a host
    is the first to fall below its limit.
    """
    counts, unplaced = Counter(waiting), list[int]()
    classes = demand_classes(state.problem, counts)
    host_needs = []
    for demand_class in classes:
        if clock.over:
            return list(waiting)
        host_needs.append(_need(state, demand_class))
    for number in sorted(range(len(classes)), key=lambda number: (-host_needs[number], number)):
        unplaced += _seated(
            state, [kind for kind in reversed(classes[number].kinds) for _ in range(counts[kind])], clock
        )
    return unplaced


def _need(state: SearchState, demand_class: DemandClass) -> float:
    """Estimates how many hosts a demand class needs.

    It evaluates copies of the median member on the most common class of hosts.
    """
    middle = demand_class.kinds[int(np.searchsorted(np.cumsum(demand_class.count), demand_class.total / 2))]
    common = int(np.bincount(state.problem.class_of_host).argmax())
    state.evaluator.evaluate_keys((common, (middle,) * copies) for copies in COPIES)
    feasible_counts = [copies for copies in COPIES if not state.evaluator.known(common, (middle,) * copies).below]
    return demand_class.total / max(feasible_counts, default=1)


def _seated(state: SearchState, queue: Sequence[int], clock: SearchClock) -> Sequence[int]:
    """Place these in order, on hosts in use first and then on the largest; returns those that no host took."""
    room = state.problem.room
    order = sorted(
        range(state.problem.hosts), key=lambda host: (not state.workload_counts[host].any(), *(-room[host]), host)
    )
    for host in order:
        if not queue or clock.over:
            break
        taken = -1
        while queue and taken and not clock.over:
            movers = _next(state, host, queue)
            taken = len(movers) - len(state.movers[host])
            state.place(host, movers)
            queue = queue[taken:]
    return queue


def _next(state: SearchState, host: int, queue: Sequence[int]) -> Kinds:
    """The movers of a host with as many of the next instances, at most AHEAD, as its limits allow."""
    movers = state.movers[host]
    candidates = []
    for count in range(1, min(AHEAD, len(queue)) + 1):
        candidate = tuple(sorted((*movers, *queue[:count])))
        if not state.problem.fits(host, candidate):
            break
        candidates.append(candidate)
    state.evaluator.evaluate((host, candidate) for candidate in candidates)
    for candidate in candidates:
        if not state.feasible(host, candidate):
            break
        movers = candidate
    return movers


def _few(state: SearchState, most_moves: int | None) -> bool:
    if most_moves is None:
        return True
    return sum(arrivals(state.problem, host, there) for host, there in enumerate(state.movers)) <= most_moves
