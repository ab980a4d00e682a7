"""Columns for the solver: hosts alike as groups, and all that could sit on one of each where that is not too much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.planning.assignment.packing_problem import Kinds, PackingProblem
from advisor.planning.assignment.pattern_evaluator import Pattern
from advisor.planning.assignment.search_state import SearchState
from models.arrays import Ints

MOST = 20_000  # columns of all groups: what one prediction of some seconds and the solver take
TRIES = 5  # times as many are tried before it is given up
FAIR = 4  # times its share of them that one group may have


@dataclass(frozen=True, slots=True)
class Choices:
    """G groups of hosts alike in class, room, filters and in who is there, and J columns that their hosts may have.

    `hosts` (G,) are the positions of each group's hosts; `group` (J,) is a column's, `movers` (J,) who of those that
    may move sits there, `columns` (J,) what that does to everybody. `supply` is how many there are of each kind, of
    which those of `optional` may be left out.
    """

    hosts: tuple[tuple[int, ...], ...]
    group: Ints
    movers: tuple[Kinds, ...]
    columns: tuple[Pattern, ...]
    arrivals: Ints
    supply: Counter[int]
    optional: Counter[int]


def every(seats: SearchState, start: Sequence[Kinds]) -> Choices | None:
    """All columns that fit and break no limit, None where these are more than MOST; `start` has a column per host that
    must be among them."""
    ground = seats.ground
    supply = Counter(ground.waiting)
    for there in ground.start:
        supply.update(there)
    groups = _groups(ground)
    wanted: list[tuple[int, Kinds]] = []
    for hosts in groups:
        fair = FAIR * MOST // len(groups)  # many groups with many columns each are given up before all are counted
        found = _possible(ground, hosts[0], supply, min(fair, MOST - len(wanted)))
        if found is None:
            return None
        wanted += [(hosts[0], movers) for movers in found]
    seats.effects.ask(wanted)
    number = {hosts[0]: at for at, hosts in enumerate(groups)}
    kept = [(host, movers) for host, movers in wanted if seats.accepted(host, movers)]
    known = set(kept)
    for hosts in groups:
        kept += [(hosts[0], there) for there in dict.fromkeys(start[host] for host in hosts)
                 if (hosts[0], there) not in known]  # fmt: skip
    return Choices(
        hosts=groups,
        group=np.array([number[host] for host, _ in kept], dtype=np.int64),
        movers=tuple(movers for _, movers in kept),
        columns=tuple(seats.effects.at(host, movers) for host, movers in kept),
        arrivals=np.array([(Counter(movers) - Counter(ground.start[host])).total() for host, movers in kept]),
        supply=supply,
        optional=Counter(ground.waiting),
    )


def _groups(ground: PackingProblem) -> tuple[tuple[int, ...], ...]:
    found: dict[tuple[object, ...], list[int]] = {}
    for host in range(ground.hosts):
        key = (
            int(ground.of_class[host]), ground.room[host].tobytes(), ground.allowed[:, host].tobytes(),
            ground.fixed[host], ground.start[host],
        )  # fmt: skip
        found.setdefault(key, []).append(host)
    return tuple(tuple(hosts) for hosts in found.values())


def _possible(ground: PackingProblem, host: int, supply: Counter[int], most: int) -> list[Kinds] | None:
    """Every multiset of movers that fits on a host, the empty one first; None where they are more than `most`.

    Where one does not fit, none fits with more besides: room only shrinks, and who came does not leave.
    """
    kinds = sorted(supply)
    found: list[Kinds] = [()]
    open_ones: list[Kinds] = [()]
    tried = 0
    while open_ones:
        there = open_ones.pop()
        for kind in kinds:
            if (there and kind < there[-1]) or there.count(kind) == supply[kind]:
                continue
            more = (*there, kind)
            tried += 1
            if tried > TRIES * most:  # many kinds and little room: most of what is tried does not fit
                return None
            if ground.fits(host, more):
                found.append(more)
                open_ones.append(more)
                if len(found) > most:
                    return None
    return found if len(found) <= most else None
