"""Crowding: how few hosts can hold those of one workload, by every company of theirs that keeps its limits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from advisor.domain import Instance
from advisor.planning.assignment.demand_classes import DemandClass, families
from advisor.planning.assignment.local_search import Clock
from advisor.planning.assignment.packing_problem import DRIVER, VCPUS, Kinds
from advisor.planning.assignment.pattern_evaluator import PatternEvaluator
from advisor.planning.assignment.search_state import SearchState
from advisor.rounding import with_slack
from models.arrays import Floats, Ints

LEVELS = (8, 5, 3, 2, 1)  # of load, into which a family is cut; fewer where these make too many companies
MOST = 4_000  # companies of a family that are asked about: about a second
ROUNDING = 1e-6  # of a host or an instance, in what a linear program says


def fewest(seats: SearchState, everybody: Counter[int], least: int, clock: Clock) -> int:
    """On how few hosts everybody fits, by the family that needs most; `least` is what is known already.

    The members of a family are cut into levels of load, and each is taken for one that asks for no more than any of its
    level; every company of these that keeps its limits on some class of hosts is a pattern, and to cover everybody by
    as few as can be is a linear program (Gilmore and Gomory 1961). Its weights, scaled so that no pattern weighs more
    than one host, are the bound. It takes for granted that who asks for more presses no less, and that company relieves
    nobody.
    """
    from scipy.optimize import linprog  # takes a while to load: only who needs a bound waits for it

    for family in families(seats.ground, everybody - seats.tolerated):
        for patterns, count in _patterns(seats, family, math.ceil(family.total / max(least, 1)), clock):
            seen = patterns.any(axis=0)  # who keeps its limits in no company says nothing of hosts
            solved = linprog(np.ones(len(patterns)), -patterns[:, seen].T, -count[seen])
            if solved.status == 0:
                weights = np.maximum(-solved.ineqlin.marginals, 0.0)
                heaviest = float((patterns[:, seen] @ weights).max())
                least = max(least, math.ceil(float(count[seen] @ weights) / heaviest - ROUNDING))
    return least


def left_out(seats: SearchState, waiting: Counter[int], clock: Clock) -> int:
    """How many of those waiting find no host whatever is done, by the same patterns on all hosts."""
    from scipy.optimize import linprog

    hosts, out = seats.ground.hosts, 0
    for family in families(seats.ground, waiting):
        for patterns, count in _patterns(seats, family, math.ceil(family.total / hosts), clock):
            levels, many = len(count), len(patterns)
            placed = np.concatenate([-np.ones(levels), np.zeros(many)])
            held = np.block([[np.eye(levels), -patterns.T], [np.zeros((1, levels)), np.ones((1, many))]])
            room = np.concatenate([np.zeros(levels), [hosts]])
            bounds = [*((0, each) for each in count.tolist()), *((0, None) for _ in range(many))]
            solved = linprog(placed, held, room, bounds=bounds)
            if solved.status == 0:
                out += max(0, family.total - math.floor(ROUNDING - solved.fun))
    return out


def _patterns(seats: SearchState, family: DemandClass, many: int, clock: Clock) -> Iterator[tuple[Floats, Ints]]:
    """Companies by level, (P, L), and how many there are of each level, (L,), with as many levels as can be asked
    about; nothing where `many` of those that ask for most can share any host, so that none are ever in the way."""
    if _share(seats, family, many):
        return
    for levels in LEVELS:
        if clock.too_late:
            return
        if levels > len(family.kinds) and levels != 1:
            continue
        cut = _cut(family, levels)
        found = _companies(seats, family, [_lightest(seats, kinds) for kinds, _ in cut])
        if found:
            counted = [[one.count(level) for level in range(len(cut))] for one in found]
            yield np.array(counted, dtype=np.float64), np.array([count for _, count in cut])
            return


def _share(seats: SearchState, family: DemandClass, many: int) -> bool:
    """Whether so many that ask for most of all, or as many as have vCPUs, keep their limits on every class of hosts."""
    there = [seats.ground.kinds[kind] for kind in family.kinds]
    many = min(many, int(with_slack(float(seats.ground.room[:, VCPUS].max())) / min(one.vcpus for one in there)))
    effects = _effects(seats, family, [replace(there[-1], vcpus=max(one.vcpus for one in there))])
    keys = [(number, (0,) * many) for number in range(len(seats.ground.classes))]
    effects.ask_keys(keys)
    return not any(effects.known(*key).below for key in keys)


def _cut(family: DemandClass, levels: int) -> list[tuple[Sequence[int], int]]:
    """Levels of about as many instances each: kinds, and how many there are."""
    kinds, count = np.array(family.kinds), np.array(family.count)
    level = (np.cumsum(count) - 1) * levels // family.total
    return [(kinds[level == at].tolist(), int(count[level == at].sum())) for at in np.unique(level)]


def _lightest(seats: SearchState, kinds: Sequence[int]) -> Instance:
    """Who asks for no more of anything than any of these; they are by rising load."""
    there = [seats.ground.kinds[kind] for kind in kinds]
    return replace(
        there[0],
        vcpus=min(one.vcpus for one in there),
        memory_mb=min(one.memory_mb for one in there),
        disk_gb=min(one.disk_gb for one in there),
    )


def _effects(seats: SearchState, family: DemandClass, kinds: Sequence[Instance]) -> PatternEvaluator:
    """What the model says of these, who are not in the cloud, under the lowest limits of the family."""
    ground, many = seats.ground, len(kinds)
    least = ground.limit[:, family.kinds].min(axis=1, keepdims=True)  # a cap allows more alone to who asks for less
    limit, latency = np.repeat(least, many, axis=1), np.full(many, ground.latency[family.kinds[0]])
    return PatternEvaluator.of(
        replace(ground, kinds=tuple(kinds), limit=limit, latency=latency), seats.effects.predictor
    )


def _companies(seats: SearchState, family: DemandClass, kinds: Sequence[Instance]) -> list[Kinds]:
    """Every company of these that some class of hosts has room for and that keeps its limits there; none where they
    are more than MOST on all classes together."""
    ground, effects = seats.ground, _effects(seats, family, kinds)
    needs = np.array([[one.vcpus, one.memory_mb, one.disk_gb] for one in kinds])
    room = with_slack(ground.room[:, :DRIVER])
    rooms = [room[ground.of_class == number].max(axis=0) for number in range(len(ground.classes))]
    found: list[Kinds] = []
    last: list[Kinds] = [()]
    for _ in range(family.total):
        more = [(*one, kind) for one in last for kind in range(one[-1] if one else 0, len(kinds))]
        if (len(found) + len(more)) * len(rooms) > MOST:
            return []
        keys = [
            (number, one)
            for one in more
            for number, room in enumerate(rooms)
            if (needs[list(one)].sum(axis=0) <= room).all()
        ]
        effects.ask_keys(keys)
        fine = {one for number, one in keys if not effects.known(number, one).below}
        last = [one for one in more if one in fine]
        if not last:
            break
        found += last
    return found
