"""Ways to relieve a host: a move off it, an exchange with another, or as many moves as bring it within its limits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.planning.assignment.local_search import FEW, NARROW, distinct
from advisor.planning.assignment.packing_problem import Kinds
from advisor.planning.assignment.search_state import SearchState, minus, plus

PARTNERS = 6  # hosts on which an exchange is looked for
Sides = tuple[tuple[int, Kinds], tuple[int, Kinds]]  # two hosts, each with who would sit there


def away(seats: SearchState, source: int) -> Iterator[tuple[int, Sides]]:
    """Every move off a host, as one move."""
    for kind in dict.fromkeys(seats.movers[source]):
        for target in targets(seats, kind):
            if target != source:
                yield (
                    1,
                    (
                        (source, minus(seats.movers[source], kind)),
                        (target, plus(seats.movers[target], kind)),
                    ),
                )


def exchanges(seats: SearchState, source: int) -> Iterator[tuple[int, Sides]]:
    """Exchanges that may bring somebody on a host within a limit, as two moves."""
    if not seats.column(source).below:
        return
    for kind in dict.fromkeys(seats.movers[source]):
        allowed = np.flatnonzero(seats.ground.allowed[kind])
        for target in seats.likely(kind, allowed)[:PARTNERS].tolist():
            for other in dict.fromkeys(seats.movers[target]):
                if target == source or other == kind:
                    continue
                sides = (
                    (source, plus(minus(seats.movers[source], kind), other)),
                    (target, plus(minus(seats.movers[target], other), kind)),
                )
                if all(seats.ground.fits(*side) for side in sides):
                    yield 2, sides


def targets(seats: SearchState, kind: int) -> list[int]:
    """Hosts to ask about for a mover; nothing is drawn, so that the same cloud is always judged the same."""
    if seats.ground.hosts <= FEW:
        return distinct(seats, kind)
    return [int(one) for one in seats.likely(kind, np.flatnonzero(seats.room(kind)))[:NARROW]]


def relieve(seats: SearchState, source: int, most: int | None) -> None:
    """Move off a host, one after another, those whose leaving helps most there, each to where it does least harm and
    brings nobody below a limit, until nobody there is below one, nobody can leave or `most` did."""
    made = 0
    while seats.column(source).below and (most is None or made < most):
        there = seats.movers[source]
        seats.effects.ask((source, minus(there, kind)) for kind in there)

        def helps(kind: int) -> tuple[int, float, float, int]:
            column = seats.effects.at(source, minus(seats.movers[source], kind))
            return len(column.below), -round(column.worst[0], 9), round(column.lost, 9), kind

        for kind in sorted(dict.fromkeys(there), key=helps):
            target = _gentlest(seats, kind, source)
            if target is not None:
                seats.seat(source, minus(there, kind))
                seats.seat(target, plus(seats.movers[target], kind))
                made += 1
                break
        else:
            return


def _gentlest(seats: SearchState, kind: int, source: int) -> int | None:
    """The host where one more does least harm and no more are below a limit than were."""
    some = [host for host in targets(seats, kind) if host != source]
    seats.effects.ask((host, plus(seats.movers[host], kind)) for host in some)

    def harm(host: int) -> tuple[float, int]:
        return round(seats.effects.at(host, plus(seats.movers[host], kind)).harm, 9), host

    fine = [
        host
        for host in some
        if seats.accepted(host, plus(seats.movers[host], kind))
        and len(seats.effects.at(host, plus(seats.movers[host], kind)).below) <= len(seats.column(host).below)
    ]
    return min(fine, key=harm, default=None)
