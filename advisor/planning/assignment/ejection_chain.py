"""Squeezing in: room for who was refused, made by one who goes elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.planning.assignment.local_search import FEW, NARROW, Clock, candidates, suits_best
from advisor.planning.assignment.packing_problem import Kinds
from advisor.planning.assignment.search_state import SearchState, minus, plus

Way = tuple[int, int, Kinds]  # a host, who leaves it, and who is there then with the one who came


def squeeze(seats: SearchState, left: Sequence[int], random: np.random.Generator, clock: Clock) -> list[int]:
    """Seat those left out where somebody who may move has another host; returns whom that does not help."""
    refused: list[int] = []
    hopeless: set[int] = set()
    for kind in left:
        if kind in hopeless or clock.over or not _squeezed(seats, kind, random):
            hopeless.add(kind)
            refused.append(kind)
    return refused


def _squeezed(seats: SearchState, kind: int, random: np.random.Generator) -> bool:
    """Make the best of all ways to seat one more by moving one other; False where there is none."""
    ways = [way for host in _hosts(seats, kind) for way in _ways(seats, host, kind)]
    seats.effects.ask((host, there) for host, _, there in ways)
    fine = [way for way in ways if seats.accepted(way[0], way[2])]
    fine.sort(key=lambda way: (seats.cost([seats.effects.at(way[0], way[2])]), way))
    for host, other, there in fine[: 4 * NARROW]:
        before = seats.movers[host]
        seats.seat(host, there)
        some = [one for one in candidates(seats, other, random) if one != host]
        seats.effects.ask((one, plus(seats.movers[one], other)) for one in some)
        best = suits_best(seats, other, some)
        if best is not None:
            seats.seat(best, plus(seats.movers[best], other))
            return True
        seats.seat(host, before)
    return False


def _hosts(seats: SearchState, kind: int) -> list[int]:
    """Hosts that a filter lets it in to, of a large cloud those that pairs of workloads speak for."""
    allowed = np.flatnonzero(seats.ground.allowed[kind])
    if len(allowed) <= FEW:
        return [int(one) for one in allowed]
    return [int(one) for one in seats.likely(kind, allowed)[:NARROW]]


def _ways(seats: SearchState, host: int, kind: int) -> list[Way]:
    movers = seats.movers[host]
    ways = [(host, other, plus(minus(movers, other), kind)) for other in dict.fromkeys(movers) if other != kind]
    return [way for way in ways if seats.ground.fits(host, way[2])]
