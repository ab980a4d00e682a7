"""Ejection chains of length one: makes room for an unplaced instance by moving one other instance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.planning.assignment.local_search import SHORTLIST, SMALL_CLOUD, SearchClock, best_host, candidate_hosts
from advisor.planning.assignment.packing_problem import Kinds
from advisor.planning.assignment.search_state import SearchState, minus, plus

Ejection = tuple[int, int, Kinds]  # host, ejected kind, movers of the host afterwards


def insert_by_ejection(
    state: SearchState, waiting: Sequence[int], random: np.random.Generator, clock: SearchClock
) -> list[int]:
    """Place instances by moving one other instance each; returns those that remain unplaced."""
    refused: list[int] = []
    hopeless: set[int] = set()
    for kind in waiting:
        if kind in hopeless or clock.over or not _inserted(state, kind, random):
            hopeless.add(kind)
            refused.append(kind)
    return refused


def _inserted(state: SearchState, kind: int, random: np.random.Generator) -> bool:
    """Carry out the cheapest ejection that makes room for a kind; False where there is none."""
    ejections = [ejection for host in _hosts(state, kind) for ejection in _ejections(state, host, kind)]
    state.evaluator.evaluate((host, movers) for host, _, movers in ejections)
    feasible = [ejection for ejection in ejections if state.feasible(ejection[0], ejection[2])]
    feasible.sort(key=lambda ejection: (state.cost([state.evaluator.at(ejection[0], ejection[2])]), ejection))
    for host, ejected, movers in feasible[: 4 * SHORTLIST]:
        before = state.movers[host]
        state.place(host, movers)
        targets = [target for target in candidate_hosts(state, ejected, random) if target != host]
        state.evaluator.evaluate((target, plus(state.movers[target], ejected)) for target in targets)
        best = best_host(state, ejected, targets)
        if best is not None:
            state.place(best, plus(state.movers[best], ejected))
            return True
        state.place(host, before)
    return False


def _hosts(state: SearchState, kind: int) -> list[int]:
    """Hosts that the filters allow; in a large cloud the SHORTLIST that workload pairs favour."""
    allowed = np.flatnonzero(state.problem.allowed[kind])
    if len(allowed) <= SMALL_CLOUD:
        return [int(host) for host in allowed]
    return [int(host) for host in state.ranked_hosts(kind, allowed)[:SHORTLIST]]


def _ejections(state: SearchState, host: int, kind: int) -> list[Ejection]:
    movers = state.movers[host]
    ejections = [
        (host, ejected, plus(minus(movers, ejected), kind)) for ejected in dict.fromkeys(movers) if ejected != kind
    ]
    return [ejection for ejection in ejections if state.problem.fits(host, ejection[2])]
