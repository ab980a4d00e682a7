"""The value of moves: the T/B gained by the affected instances compared with the same plan without the move."""

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

KindMove = tuple[int, int, int]  # kind, source host, target host
NOTICEABLE_CHANGE = 0.01  # T/B: instances that change by less count as unaffected

_Outcome = tuple[float, float, bool]  # T/B, half width of its interval, whether it is below a limit


def moves_made(state: SearchState) -> list[KindMove]:
    """All moves of the current state, by kind; of one kind the lowest hosts are paired."""
    sources_by_kind: dict[int, list[int]] = {}
    targets_by_kind: dict[int, list[int]] = {}
    for host, movers in enumerate(state.movers):
        current, before = Counter(movers), Counter(state.problem.initial[host])
        for kind in (before - current).elements():
            sources_by_kind.setdefault(kind, []).append(host)
        for kind in (current - before).elements():
            targets_by_kind.setdefault(kind, []).append(host)
    return [
        (kind, source, target)
        for kind in sorted(targets_by_kind)
        for source, target in zip(sources_by_kind.get(kind, []), targets_by_kind[kind], strict=False)
    ]


def gain(state: SearchState, move: KindMove) -> Band:
    """The gain of a move compared with its two hosts without it.

    Where the move cannot be undone alone because its place is taken, all moves linked to it are undone together.
    """
    _, source, target = move
    undone = without(state, move)
    if not state.problem.fits(*undone[0]):
        hosts = linked_hosts(state, move)
        undone = tuple((host, state.problem.initial[host]) for host in hosts)
    else:
        hosts = [source, target]
    state.evaluator.evaluate(undone)
    return gain_between([state.evaluator.at(*side) for side in undone], [state.pattern(host) for host in hosts])


def without(state: SearchState, move: KindMove) -> tuple[tuple[int, Kinds], ...]:
    """The two hosts of a move as they would be without it."""
    kind, source, target = move
    return (source, plus(state.movers[source], kind)), (target, minus(state.movers[target], kind))


def linked_hosts(state: SearchState, move: KindMove) -> list[int]:
    """The hosts of a move and of all moves that share a host with it, directly or not; these can be undone together."""
    hosts = {move[1], move[2]}
    pairs = [{source, target} for _, source, target in moves_made(state)]
    changed = True
    while changed:
        changed = False
        for pair in pairs:
            if pair & hosts and not pair <= hosts:
                hosts |= pair
                changed = True
    return sorted(hosts)


def gain_between(before: Sequence[Pattern], after: Sequence[Pattern]) -> Band:
    """The gain of some hosts with the same instances between two states, as T/B with its interval.

    It is the gain of the worst-off among all affected instances. Where fewer instances are below a limit afterwards, it
    may also be the largest gain of an instance brought back within its limit; the more certain of both is taken.
    Unaffected instances do not count. Each accepted change reduces the number below a limit or raises the worst-off
    affected instance, so no two states can alternate.
    """
    changes = [pair for pair in _pairs(before, after) if abs(pair[1][0] - pair[0][0]) > NOTICEABLE_CHANGE]
    if not changes:
        return Band(0.0, 0.0, 0.0)
    bands = [_step(min(was for was, _ in changes), min(now for _, now in changes))]
    if sum(len(item.below) for item in after) < sum(len(item.below) for item in before):
        bands += [_step(was, now) for was, now in changes if was[2] and not now[2]]
    return max(bands, key=lambda item: (item.lower, item.expected))


def is_worth_it(gain_band: Band, goal: Goal) -> bool:
    """Whether a gain exceeds the goal's `move_gain` and its own uncertainty."""
    half_width = gain_band.expected - gain_band.lower
    return gain_band.expected > goal.move_gain and not scoring.tied(gain_band.expected, half_width, 0.0)


def undo_unworthy(state: SearchState, goal: Goal) -> bool:
    """Undo moves that are not worth it beside the others; True if there was one.

    A move is undone alone where no limit breaks by that, else with all linked moves.
    """
    undone_any = False
    while True:
        unworthy = next((move for move in moves_made(state) if not is_worth_it(gain(state, move), goal)), None)
        if unworthy is None:
            return undone_any
        undone_any = True
        sides = without(state, unworthy)
        state.evaluator.evaluate(sides)
        if not state.problem.fits(*sides[0]) or not all(state.feasible(*side) for side in sides):
            sides = tuple((host, state.problem.initial[host]) for host in linked_hosts(state, unworthy))
        for side in sides:
            state.place(*side)


def _step(was: _Outcome, now: _Outcome) -> Band:
    half = math.hypot(was[1], now[1])  # as two candidates are compared in a ranking
    return Band(now[0] - was[0], now[0] - was[0] - half, now[0] - was[0] + half)


def _pairs(before: Sequence[Pattern], after: Sequence[Pattern]) -> Iterator[tuple[_Outcome, _Outcome]]:
    """Each instance before and after; instances of a kind that a host has both times count as staying."""
    left_by_kind: dict[int, list[_Outcome]] = {}
    came_by_kind: dict[int, list[_Outcome]] = {}
    for was, now in zip(before, after, strict=True):
        outcomes_before, outcomes_after = _outcomes_by_kind(was), _outcomes_by_kind(now)
        for kind in outcomes_before.keys() | outcomes_after.keys():
            before_here, after_here = outcomes_before.get(kind, []), outcomes_after.get(kind, [])
            common = min(len(before_here), len(after_here))
            yield from zip(before_here[:common], after_here[:common], strict=True)
            left_by_kind.setdefault(kind, []).extend(before_here[common:])
            came_by_kind.setdefault(kind, []).extend(after_here[common:])
    for kind, departed in left_by_kind.items():
        yield from zip(departed, came_by_kind[kind], strict=True)


def _outcomes_by_kind(pattern: Pattern) -> dict[int, list[_Outcome]]:
    """The instances of a host by kind."""
    below = set(pattern.below)
    outcomes: dict[int, list[_Outcome]] = {}
    for kind, ratio, half_width in zip(pattern.kinds, pattern.ratios, pattern.half_widths, strict=True):
        outcomes.setdefault(kind, []).append((ratio, half_width, (kind, ratio) in below))
    return outcomes
