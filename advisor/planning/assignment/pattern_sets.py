"""Patterns for the solver: groups of identical hosts, and all patterns of each group where these are few enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.planning.assignment.packing_problem import Kinds, PackingProblem
from advisor.planning.assignment.pattern_evaluator import Pattern
from advisor.planning.assignment.search_state import SearchState
from models.arrays import Ints

MAX_PATTERNS = 20_000  # patterns of all groups: some seconds of prediction, and what the solver can handle
TRIES_PER_PATTERN = 5  # multisets tried per allowed pattern before the enumeration gives up
MAX_SHARE_FACTOR = 4  # times its fair share that one group may have


@dataclass(frozen=True, slots=True)
class PatternSet:
    """G groups of hosts alike in class, room, filters and residents, and J patterns that their hosts may have.

    `hosts` (G,) are the host positions of each group; `group` (J,) is a pattern's group, `movers` (J,) its movable
    instances, `patterns` (J,) its evaluation, `arrivals` (J,) how many of its movers are new. `supply` counts the
    instances of each kind, of which those in `optional` may stay unplaced.
    """

    hosts: tuple[tuple[int, ...], ...]
    group: Ints
    movers: tuple[Kinds, ...]
    patterns: tuple[Pattern, ...]
    arrivals: Ints
    supply: Counter[int]
    optional: Counter[int]


def enumerate_patterns(state: SearchState, start: Sequence[Kinds]) -> PatternSet | None:
    """All feasible patterns that fit, those of `start` included; None where there are more than MAX_PATTERNS."""
    problem = state.problem
    supply = Counter(problem.waiting)
    for movers_here in problem.initial:
        supply.update(movers_here)
    groups = alike_hosts(problem)
    wanted: list[tuple[int, Kinds]] = []
    for hosts in groups:
        fair = MAX_SHARE_FACTOR * MAX_PATTERNS // len(groups)  # gives up early where many groups have many patterns
        movers_of_group = _possible(problem, hosts[0], supply, min(fair, MAX_PATTERNS - len(wanted)))
        if movers_of_group is None:
            return None
        wanted += [(hosts[0], movers) for movers in movers_of_group]
    state.evaluator.evaluate(wanted)
    number = {hosts[0]: at for at, hosts in enumerate(groups)}
    kept = [(host, movers) for host, movers in wanted if state.feasible(host, movers)]
    known = set(kept)
    for hosts in groups:
        kept += [(hosts[0], movers_here) for movers_here in dict.fromkeys(start[host] for host in hosts)
                 if (hosts[0], movers_here) not in known]  # fmt: skip
    return PatternSet(
        hosts=groups,
        group=np.array([number[host] for host, _ in kept], dtype=np.int64),
        movers=tuple(movers for _, movers in kept),
        patterns=tuple(state.evaluator.at(host, movers) for host, movers in kept),
        arrivals=np.array([(Counter(movers) - Counter(problem.initial[host])).total() for host, movers in kept]),
        supply=supply,
        optional=Counter(problem.waiting),
    )


def alike_hosts(problem: PackingProblem) -> tuple[tuple[int, ...], ...]:
    """Positions of hosts that are alike in class, room, filters and residents, group by group."""
    hosts_by_key: dict[tuple[object, ...], list[int]] = {}
    for host in range(problem.hosts):
        key = (
            int(problem.class_of_host[host]), problem.room[host].tobytes(), problem.allowed[:, host].tobytes(),
            problem.fixed[host], problem.initial[host],
            tuple(sorted(problem.counted_room[host].items())) if problem.counted_needs else (),
        )  # fmt: skip
        hosts_by_key.setdefault(key, []).append(host)
    return tuple(tuple(hosts) for hosts in hosts_by_key.values())


def _possible(problem: PackingProblem, host: int, supply: Counter[int], most: int) -> list[Kinds] | None:
    """Every multiset of movers that fits on a host, the empty one first; None where there are more than `most`.

    If a multiset does not fit, none that contains it fits, because room only shrinks.
    """
    kinds = sorted(supply)
    fitting: list[Kinds] = [()]
    open_sets: list[Kinds] = [()]
    tried = 0
    while open_sets:
        movers = open_sets.pop()
        for kind in kinds:
            if (movers and kind < movers[-1]) or movers.count(kind) == supply[kind]:
                continue
            extended = (*movers, kind)
            tried += 1
            if tried > TRIES_PER_PATTERN * most:  # with many kinds and little room most multisets do not fit
                return None
            if problem.fits(host, extended):
                fitting.append(extended)
                open_sets.append(extended)
                if len(fitting) > most:
                    return None
    return fitting if len(fitting) <= most else None
