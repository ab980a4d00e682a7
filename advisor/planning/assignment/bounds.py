"""Bounds: what no plan can surpass, told without a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from advisor.planning.assignment.configuration_lp import fewest, left_out
from advisor.planning.assignment.local_search import Clock
from advisor.planning.assignment.objectives import Level
from advisor.planning.assignment.packing_problem import DRIVER, VCPUS, Kinds
from advisor.planning.assignment.search_state import SearchState
from advisor.rounding import with_slack

MOST_PAIRS = 100_000  # of kinds and classes that are asked about for a bound: a few seconds


def relaxed(level: Level, seats: SearchState, unplaced: int, clock: Clock) -> float:
    """The least that a level can cost when everybody had a host to itself, the best of all, and only sizes and who
    cannot share a host counted.

    Nobody is taken to run faster in company than alone; where it was measured or predicted to, by as much as that a
    plan may look better than its bound. `unplaced` is how many the plan leaves out: they cost nothing here.
    """
    ground = seats.ground
    if level == "unplaced":
        apart = sum(max(0, many - ground.hosts) for many in _apart(seats, Counter(ground.waiting)))
        return float(max(_without_room(seats), apart, left_out(seats, Counter(ground.waiting), clock)))
    if level == "used":
        everybody = Counter(kind for there in (ground.waiting, *ground.start) for kind in there)
        if unplaced:
            return float(_fewest(seats))
        return float(fewest(seats, everybody, max([_fewest(seats), *_apart(seats, everybody)]), clock))
    if level in {"below", "moves"}:
        return 0.0
    kinds = sorted({*ground.waiting, *(kind for there in ground.start for kind in there)})
    classes = range(len(ground.classes))
    keys = [(number, (kind,)) for kind in kinds for number in classes]
    seats.effects.ask_keys(keys)
    least = {kind: min(seats.effects.known(number, (kind,)).lost for number in classes) for kind in kinds}
    stays = [seats.effects.at(host, ()) for host in range(ground.hosts)]
    moving = [least[kind] for there in (ground.waiting, *ground.start) for kind in there]
    if level == "greatest":
        return max([*(one.most for one in stays), *moving], default=0.0)
    best = sorted(moving)[: len(moving) - unplaced] if unplaced else moving
    return sum(one.lost for one in stays) + sum(best)


def _without_room(seats: SearchState) -> int:
    """How many of those waiting have no room even if sizes could be cut to pieces: by each resource the smallest
    first."""
    ground = seats.ground
    most = len(ground.waiting)
    lone = [kind for kind in ground.waiting if ground.allowed[kind].any()]
    fixed = np.array([ground.used(host, ground.fixed[host]) for host in range(ground.hosts)])
    left = np.maximum(with_slack(ground.room) - fixed, 0.0)
    for resource in range(DRIVER):
        free = left[:, resource].sum()
        needs = np.sort([ground.needs[kind, 0, resource] for kind in lone])
        most = min(most, int((np.cumsum(needs) <= free).sum()))
    return len(ground.waiting) - min(most, len(lone))


def _apart(seats: SearchState, count: Counter[int]) -> list[int]:
    """Numbers of instances of which no two can share a host, nobody counted twice: kinds that push each other, and
    their own, below a limit on every class of hosts. Nobody where pairs are too many to ask about; who may stay below a
    limit, as it was there from the start, does not count."""
    ground = seats.ground
    count = count - seats.tolerated
    kinds, classes = sorted(count), range(len(ground.classes))
    if len(kinds) * (len(kinds) + 1) // 2 * len(classes) > MOST_PAIRS:
        return []
    pairs = [(one, other) for at, one in enumerate(kinds) for other in kinds[at:]]
    seats.effects.ask_keys((number, pair) for pair in pairs for number in classes)
    apart = {pair for pair in pairs if all(seats.effects.known(number, pair).below for number in classes)}
    free = [kind for kind in kinds if (kind, kind) in apart]
    others = Counter(kind for pair in apart for kind in pair)
    found = []
    while free:
        together: list[int] = []
        for kind in sorted(free, key=lambda kind: (-others[kind], kind)):
            if all((min(kind, one), max(kind, one)) in apart for one in together):
                together.append(kind)
        found.append(sum(count[kind] for kind in together))
        free = [kind for kind in free if kind not in together]
    return found


def fewest_if_all_move(seats: SearchState) -> int:
    """On how few hosts everybody would fit by sizes alone if nobody had to stay."""
    return _fewest(seats, ((),) * seats.ground.hosts, seats.ground.fixed)


def _fewest(seats: SearchState, stay: Sequence[Kinds] | None = None, also: Sequence[Kinds] = ()) -> int:
    """On how few hosts everybody fits by sizes alone, the largest hosts first; those with who must `stay` are in use,
    `also` are who moves beside those who may."""
    ground = seats.ground
    stay = ground.fixed if stay is None else stay
    must = np.array([bool(there) for there in stay], dtype=bool)
    moving: Sequence[int] = [kind for there in (ground.waiting, *ground.start, *also) for kind in there]
    fixed = np.array([ground.used(host, there) for host, there in enumerate(stay)])
    least = int(must.sum()) if must.any() else int(bool(moving))
    room = with_slack(ground.room)
    for resource in range(VCPUS, DRIVER):
        needs = sum(float(ground.needs[kind, 0, resource]) for kind in moving)
        left = needs - np.maximum(room[must, resource] - fixed[must, resource], 0.0).sum()
        if left > 0:
            rooms = np.sort(room[~must, resource])[::-1]
            least = max(least, int(must.sum()) + int((np.cumsum(rooms) < left).sum()) + 1)
    return least
