"""Allowed: whom the filters of a placement let in to which host, with few questions about many sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from advisor.domain import Constraints, Instance, PlacementRequest
from advisor.planning.assignment.goal import Goal
from advisor.scheduling import filters
from advisor.snapshot import ClusterSnapshot
from models.arrays import Bools

SIZES = ("vcpus", "memory_mb", "disk_gb", "load")  # of which no filter lets in more than less


def allowed(
    bare: ClusterSnapshot, goal: Goal, kinds: Sequence[Instance], wanted: Mapping[int, str | None], fresh_s: float
) -> Bools:
    """Who may go where in a cloud without those who may move, (K, H); `wanted` are the numbers of the kinds that are
    asked about, each with the kind of host it must stay on, None = any.

    Where the largest and the smallest of those that differ by size alone are let in to the same hosts, so is everybody
    between them.
    """
    found = np.zeros((len(kinds), len(bare.hosts)), dtype=bool)
    for group in _alike(kinds, wanted):
        on = wanted[group[0]]
        parts = [sorted(group, key=lambda number: (kinds[number].memory_mb, kinds[number].vcpus, number))]
        while parts:
            part = parts.pop()
            there = [kinds[number] for number in part]
            least, most = (
                replace(there[0], **{name: pick(getattr(one, name) for one in there) for name in SIZES})
                for pick in (min, max)
            )
            hosts = filters.apply(bare, request_of(most, goal, on), fresh_s=fresh_s)[0]
            if len(part) == 1 or hosts == filters.apply(bare, request_of(least, goal, on), fresh_s=fresh_s)[0]:
                found[np.ix_(part, hosts)] = True
            else:
                parts += [part[: len(part) // 2], part[len(part) // 2 :]]
    usable = np.array(
        [(goal.targets is None or h.id in goal.targets) and h.id not in goal.emptied for h in bare.hosts], dtype=bool
    )
    return np.asarray(found & usable[None, :])


def request_of(one: Instance, goal: Goal, kind: str | None) -> PlacementRequest:
    """The question that a placement would put to its filters about an instance."""
    return PlacementRequest(
        replace(one, host=None),
        constraints=Constraints(exclude=tuple(sorted(goal.emptied)), kind=kind),
        hosts=None if goal.targets is None else tuple(sorted(goal.targets)),
        objective=goal.objective,
        explain=False,
    )


def _alike(kinds: Sequence[Instance], wanted: Mapping[int, str | None]) -> Iterator[list[int]]:
    """Numbers of kinds that a filter tells apart by their sizes only."""
    found: dict[tuple[object, ...], list[int]] = {}
    for number, on in wanted.items():
        one = kinds[number]
        found.setdefault((on, one.workload, one.settings, one.service, one.exclusive), []).append(number)
    yield from found.values()
