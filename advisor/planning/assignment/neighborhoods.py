"""Neighborhoods of a host: moves off it, swaps with another host, and series of moves that restore its limits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.planning.assignment.local_search import SHORTLIST, SMALL_CLOUD, HostChanges, distinct_hosts
from advisor.planning.assignment.search_state import SearchState, minus, plus

SWAP_HOSTS = 6  # hosts considered for a swap


def moves_off(state: SearchState, source: int) -> Iterator[tuple[int, HostChanges]]:
    """Every move off a host, with its number of moves (1)."""
    for kind in dict.fromkeys(state.movers[source]):
        for target in target_hosts(state, kind):
            if target != source:
                yield 1, ((source, minus(state.movers[source], kind)), (target, plus(state.movers[target], kind)))


def swaps(state: SearchState, source: int) -> Iterator[tuple[int, HostChanges]]:
    """Swaps that may bring an instance on a host back within its limit, with their number of moves (2)."""
    if not state.pattern(source).below:
        return
    for kind in dict.fromkeys(state.movers[source]):
        allowed = np.flatnonzero(state.problem.allowed[kind])
        for target in state.ranked_hosts(kind, allowed)[:SWAP_HOSTS].tolist():
            for other in dict.fromkeys(state.movers[target]):
                if target == source or other == kind:
                    continue
                sides = (
                    (source, plus(minus(state.movers[source], kind), other)),
                    (target, plus(minus(state.movers[target], other), kind)),
                )
                if all(state.problem.fits(*side) for side in sides):
                    yield 2, sides


def target_hosts(state: SearchState, kind: int) -> list[int]:
    """Hosts to consider for a mover; nothing is random, so the same cloud is always judged alike."""
    if state.problem.hosts <= SMALL_CLOUD:
        return distinct_hosts(state, kind)
    return [int(host) for host in state.ranked_hosts(kind, np.flatnonzero(state.hosts_with_room(kind)))[:SHORTLIST]]


def relieve(state: SearchState, source: int, max_moves: int | None) -> None:
    """Move instances off a host until no instance there is below a limit, none can leave or `most` moves were made.

    The instance whose leaving helps most goes first, to the host where it does least harm and breaks no limit.
    """
    moves = 0
    while state.pattern(source).below and (max_moves is None or moves < max_moves):
        movers = state.movers[source]
        state.evaluator.evaluate((source, minus(movers, kind)) for kind in movers)

        def helps(kind: int) -> tuple[int, float, float, int]:
            pattern = state.evaluator.at(source, minus(state.movers[source], kind))
            return len(pattern.below), -round(pattern.worst, 9), round(pattern.total_loss, 9), kind

        for kind in sorted(dict.fromkeys(movers), key=helps):
            target = _gentlest(state, kind, source)
            if target is not None:
                state.place(source, minus(movers, kind))
                state.place(target, plus(state.movers[target], kind))
                moves += 1
                break
        else:
            return


def _gentlest(state: SearchState, kind: int, source: int) -> int | None:
    """The host where one more instance does least harm and no more instances are below a limit than before."""
    options = [host for host in target_hosts(state, kind) if host != source]
    state.evaluator.evaluate((host, plus(state.movers[host], kind)) for host in options)

    def harm(host: int) -> tuple[float, int]:
        return round(state.evaluator.at(host, plus(state.movers[host], kind)).harm, 9), host

    feasible = [
        host
        for host in options
        if state.feasible(host, plus(state.movers[host], kind))
        and len(state.evaluator.at(host, plus(state.movers[host], kind)).below) <= len(state.pattern(host).below)
    ]
    return min(feasible, key=harm, default=None)
