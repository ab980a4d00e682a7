"""What moves are worth: to those whose T/B they change, beside the same plan without them, and beyond uncertainty."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from advisor.domain import Band
from advisor.planning.assignment.goal import Goal
from advisor.planning.assignment.packing_problem import Kinds
from advisor.planning.assignment.pattern_evaluator import Pattern
from advisor.planning.assignment.search_state import SearchState, minus, plus
from advisor.scheduling import scoring

Moved = tuple[int, int, int]  # a kind, from where, to where
NOTICED = 0.01  # of T/B: whom a move changes by less is not counted among those it changes

_Stand = tuple[float, float, bool]  # T/B, the half width of its interval, and whether that is below a limit


def moved(seats: SearchState) -> list[Moved]:
    """Who went where, by kinds; of one kind the lowest hosts are paired."""
    gone: dict[int, list[int]] = {}
    came: dict[int, list[int]] = {}
    for host, there in enumerate(seats.movers):
        now, before = Counter(there), Counter(seats.ground.start[host])
        for kind in (before - now).elements():
            gone.setdefault(kind, []).append(host)
        for kind in (now - before).elements():
            came.setdefault(kind, []).append(host)
    return [
        (kind, source, target)
        for kind in sorted(came)
        for source, target in zip(gone.get(kind, []), came[kind], strict=False)
    ]


def gain(seats: SearchState, move: Moved) -> Band:
    """What a move that was made gives, beside what its two hosts would have without it; where it could not be left out
    alone, as its place is taken, beside what the hosts of all moves that hang together had."""
    _, source, target = move
    back = without(seats, move)
    if not seats.ground.fits(*back[0]):
        hosts = together(seats, move)
        back = tuple((host, seats.ground.start[host]) for host in hosts)
    else:
        hosts = [source, target]
    seats.effects.ask(back)
    return gained([seats.effects.at(*side) for side in back], [seats.column(host) for host in hosts])


def without(seats: SearchState, move: Moved) -> tuple[tuple[int, Kinds], ...]:
    """The two hosts of a move as they would be had it not been made."""
    kind, source, target = move
    return (source, plus(seats.movers[source], kind)), (target, minus(seats.movers[target], kind))


def together(seats: SearchState, move: Moved) -> list[int]:
    """The hosts of a move and of all that share a host with it, directly or not: these can be undone together."""
    found = {move[1], move[2]}
    pairs = [{source, target} for _, source, target in moved(seats)]
    grown = True
    while grown:
        grown = False
        for pair in pairs:
            if pair & found and not pair <= found:
                found |= pair
                grown = True
    return sorted(found)


def gained(before: Sequence[Pattern], after: Sequence[Pattern]) -> Band:
    """What some hosts with the same instances gain from one state to another: the worst-off of all whom that changes,
    or, where fewer are below a limit then, who of those brought within one gains most; whichever is surer.

    Whom nothing changes hides no gain. Whoever gains by the second of these is one fewer below a limit, and by the
    first the worst-off of those changed is better off: so no two states are worth going to and fro between.
    """
    changes = [pair for pair in _pairs(before, after) if abs(pair[1][0] - pair[0][0]) > NOTICED]
    if not changes:
        return Band(0.0, 0.0, 0.0)
    found = [_step(min(was for was, _ in changes), min(now for _, now in changes))]
    if sum(len(one.below) for one in after) < sum(len(one.below) for one in before):
        found += [_step(was, now) for was, now in changes if was[2] and not now[2]]
    return max(found, key=lambda one: (one.lower, one.expected))


def worth(found: Band, goal: Goal) -> bool:
    """Whether a gain is more than was asked for and more than is uncertain."""
    half = found.expected - found.lower
    return found.expected > goal.move_gain and not scoring.tied(found.expected, half, 0.0)


def settle(seats: SearchState, goal: Goal) -> bool:
    """Undo moves that are not worth it beside the others, one after another, alone where nobody falls below a limit by
    that, else with all that hang together; True when there was one."""
    found = False
    while True:
        idle = next((move for move in moved(seats) if not worth(gain(seats, move), goal)), None)
        if idle is None:
            return found
        found = True
        sides = without(seats, idle)
        seats.effects.ask(sides)
        if not seats.ground.fits(*sides[0]) or not all(seats.accepted(*side) for side in sides):
            sides = tuple((host, seats.ground.start[host]) for host in together(seats, idle))
        for side in sides:
            seats.seat(*side)


def _step(was: _Stand, now: _Stand) -> Band:
    half = math.hypot(was[1], now[1])  # as two candidates are compared in a ranking
    return Band(now[0] - was[0], now[0] - was[0] - half, now[0] - was[0] + half)


def _pairs(before: Sequence[Pattern], after: Sequence[Pattern]) -> Iterator[tuple[_Stand, _Stand]]:
    """Everybody before and after; of a kind, who is on a host both times stayed there."""
    gone: dict[int, list[_Stand]] = {}
    came: dict[int, list[_Stand]] = {}
    for was, now in zip(before, after, strict=True):
        first, then = _stands(was), _stands(now)
        for kind in first.keys() | then.keys():
            here, there = first.get(kind, []), then.get(kind, [])
            stay = min(len(here), len(there))
            yield from zip(here[:stay], there[:stay], strict=True)
            gone.setdefault(kind, []).extend(here[stay:])
            came.setdefault(kind, []).extend(there[stay:])
    for kind, left in gone.items():
        yield from zip(left, came[kind], strict=True)


def _stands(column: Pattern) -> dict[int, list[_Stand]]:
    """How everybody on a host stands, by kind."""
    below = set(column.below)
    found: dict[int, list[_Stand]] = {}
    for kind, ratio, half in zip(column.kinds, column.ratios, column.halves, strict=True):
        found.setdefault(kind, []).append((ratio, half, (kind, ratio) in below))
    return found
