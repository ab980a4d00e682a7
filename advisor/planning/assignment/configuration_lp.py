"""Lower bounds from the configuration LP of Gilmore and Gomory (1961), over patterns of one demand class."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np

from advisor.domain import Instance
from advisor.planning.assignment.demand_classes import DemandClass, demand_classes
from advisor.planning.assignment.local_search import SearchClock
from advisor.planning.assignment.packing_problem import SIZES, VCPUS, Kinds, PackingProblem
from advisor.planning.assignment.pattern_evaluator import PatternEvaluator
from advisor.planning.assignment.search_state import SearchState
from advisor.rounding import with_slack
from advisor.snapshot import promised_vcpus
from models.arrays import Floats, Ints

LEVEL_COUNTS = (8, 5, 3, 2, 1)  # levels of load per demand class; fewer where these make too many patterns
MAX_PATTERNS = 4_000  # patterns of a demand class that are predicted: about a second
LP_TOLERANCE = 1e-6  # hosts or instances: numerical error of a linear program


def min_hosts(state: SearchState, everybody: Counter[int], least: int, clock: SearchClock) -> int:
    """The fewest hosts that hold all instances, by the demand class that needs most; `least` is a bound known already.

    Each demand class is split into levels of load; each member counts as the lightest of its level. A pattern is a
    multiset of levels that keeps its limits on some class of hosts. Covering all members with the fewest patterns is a
    linear program, whose dual weights, scaled so that no pattern weighs more than one host, give the bound. The bound
    assumes that interference is monotone in load and never negative.
    """
    from scipy.optimize import linprog  # slow to import, so it is imported only where a bound is needed

    for demand_class in demand_classes(state.problem, everybody - state.tolerated):
        for patterns, count in _patterns(state, demand_class, math.ceil(demand_class.total / max(least, 1)), clock):
            covered = patterns.any(axis=0)  # levels without a feasible pattern give no bound
            solution = linprog(np.ones(len(patterns)), -patterns[:, covered].T, -count[covered])
            if solution.status == 0:
                weights = np.maximum(-solution.ineqlin.marginals, 0.0)
                heaviest = float((patterns[:, covered] @ weights).max())
                least = max(least, math.ceil(float(count[covered] @ weights) / heaviest - LP_TOLERANCE))
    return least


def min_unplaced(state: SearchState, waiting: Counter[int], clock: SearchClock) -> int:
    """How many waiting instances find no host in any plan, from the same patterns on all hosts."""
    from scipy.optimize import linprog

    hosts, unplaced = state.problem.hosts, 0
    for demand_class in demand_classes(state.problem, waiting):
        for patterns, count in _patterns(state, demand_class, math.ceil(demand_class.total / hosts), clock):
            levels, pattern_count = len(count), len(patterns)
            objective = np.concatenate([-np.ones(levels), np.zeros(pattern_count)])
            constraints = np.block(
                [[np.eye(levels), -patterns.T], [np.zeros((1, levels)), np.ones((1, pattern_count))]]
            )
            limits = np.concatenate([np.zeros(levels), [hosts]])
            bounds = [*((0, each) for each in count.tolist()), *((0, None) for _ in range(pattern_count))]
            solution = linprog(objective, constraints, limits, bounds=bounds)
            if solution.status == 0:
                unplaced += max(0, demand_class.total - math.floor(LP_TOLERANCE - solution.fun))
    return unplaced


def _patterns(
    state: SearchState, demand_class: DemandClass, many: int, clock: SearchClock
) -> Iterator[tuple[Floats, Ints]]:
    """Feasible patterns by level, (P, L), and the number of instances of each level, (L,).

    There are as many levels as affordable. Yields nothing where `many` of the heaviest members can share any host,
    because the class then never limits the plan.
    """
    if _any_host_holds(state, demand_class, many):
        return
    for levels in LEVEL_COUNTS:
        if clock.past_latest:
            return
        if levels > len(demand_class.kinds) and levels != 1:
            continue
        groups = _split_by_load(demand_class, levels)
        patterns = _feasible_patterns(state, demand_class, [_lower_envelope(state, kinds) for kinds, _ in groups])
        if patterns:
            counted = [[pattern.count(level) for level in range(len(groups))] for pattern in patterns]
            yield np.array(counted, dtype=np.float64), np.array([count for _, count in groups])
            return


def _any_host_holds(state: SearchState, demand_class: DemandClass, many: int) -> bool:
    """Whether copies of the heaviest member keep their limits on every class of hosts.

    There are `many` copies, or as many as have vCPUs of each kind there.
    """
    problem = state.problem
    instances = [problem.kinds[kind] for kind in demand_class.kinds]
    (needs,), rooms = _sizes(problem, [_lower_envelope(state, demand_class.kinds)]), _rooms(problem)
    times = np.divide(rooms, needs, out=np.full(needs.shape, np.inf), where=needs > 0)[:, [VCPUS, -1]].min(axis=1)
    most = np.minimum(times, many).astype(np.int64)  # of each class of hosts
    shared, own = (max(map(attrgetter(kind), instances)) for kind in ("shared_vcpus", "dedicated_vcpus"))
    heaviest = replace(instances[-1], vcpus=shared + own, dedicated_vcpus=own)
    evaluator = _evaluator(state, demand_class, [heaviest])
    keys = [(number, (0,) * count) for number, count in enumerate(most.tolist())]
    evaluator.evaluate_keys(keys)
    return not any(evaluator.known(*key).below for key in keys)


def _split_by_load(demand_class: DemandClass, levels: int) -> list[tuple[Sequence[int], int]]:
    """Levels with about equally many instances: the kinds of each level and their count."""
    kinds, count = np.array(demand_class.kinds), np.array(demand_class.count)
    level = (np.cumsum(count) - 1) * levels // demand_class.total
    return [(kinds[level == at].tolist(), int(count[level == at].sum())) for at in np.unique(level)]


def _lower_envelope(state: SearchState, kinds: Sequence[int]) -> Instance:
    """An instance that asks for no more of anything than any of these kinds, which are sorted by load."""
    instances = [state.problem.kinds[kind] for kind in kinds]
    shared, own = (min(map(attrgetter(kind), instances)) for kind in ("shared_vcpus", "dedicated_vcpus"))
    return replace(
        instances[0],
        vcpus=shared + own,
        dedicated_vcpus=own,
        memory_mb=min(instance.memory_mb for instance in instances),
        disk_gb=min(instance.disk_gb for instance in instances),
    )


def _sizes(problem: PackingProblem, kinds: Sequence[Instance]) -> Floats:
    """What these stand-in instances need on each class of hosts, (L, C, 4) in the order of SIZES."""
    needs = [
        [(promised_vcpus(host, kind), kind.memory_mb, kind.disk_gb, kind.dedicated_vcpus) for host in problem.classes]
        for kind in kinds
    ]
    return np.array(needs, dtype=np.float64)


def _rooms(problem: PackingProblem) -> Floats:
    """The most of each of SIZES that a host of each class has, (C, 4), with slack for rounding."""
    room = with_slack(problem.room[:, SIZES])
    return np.array([room[problem.class_of_host == number].max(axis=0) for number in range(len(problem.classes))])


def _evaluator(state: SearchState, demand_class: DemandClass, kinds: Sequence[Instance]) -> PatternEvaluator:
    """Predicts patterns of these stand-in instances under the lowest limits of the demand class."""
    problem, many = state.problem, len(kinds)
    least = problem.min_ratio[:, demand_class.kinds].min(
        axis=1, keepdims=True
    )  # under a cap, a lighter load keeps a higher ratio
    min_ratio, first = np.repeat(least, many, axis=1), demand_class.kinds[0]
    max_latency, max_short = np.full(many, problem.max_latency[first]), np.full(many, problem.max_short[first])
    limited = replace(problem, kinds=tuple(kinds), min_ratio=min_ratio, max_latency=max_latency, max_short=max_short)
    return PatternEvaluator.of(limited, state.evaluator.predictor)


def _feasible_patterns(state: SearchState, demand_class: DemandClass, kinds: Sequence[Instance]) -> list[Kinds]:
    """All patterns that fit some class of hosts and keep their limits there.

    Empty where there are more than MAX_PATTERNS over all classes.
    """
    problem, evaluator = state.problem, _evaluator(state, demand_class, kinds)
    needs, rooms = _sizes(problem, kinds), _rooms(problem)
    feasible: list[Kinds] = []
    frontier: list[Kinds] = [()]
    for _ in range(demand_class.total):
        candidates = [
            (*pattern, kind) for pattern in frontier for kind in range(pattern[-1] if pattern else 0, len(kinds))
        ]
        if (len(feasible) + len(candidates)) * len(rooms) > MAX_PATTERNS:
            return []
        keys = [
            (number, pattern)
            for pattern in candidates
            for number, room in enumerate(rooms)
            if (needs[list(pattern), number].sum(axis=0) <= room).all()
        ]
        evaluator.evaluate_keys(keys)
        kept = {pattern for number, pattern in keys if not evaluator.known(number, pattern).below}
        frontier = [pattern for pattern in candidates if pattern in kept]
        if not frontier:
            break
        feasible += frontier
    return feasible
