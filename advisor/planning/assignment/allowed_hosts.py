"""Which kinds of instances the placement filters allow on which hosts, found with few filter runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from advisor.domain import Constraints, Instance, PlacementRequest
from advisor.domain.rules import rule_key
from advisor.planning.assignment.goal import Goal
from advisor.scheduling import filters
from advisor.snapshot import ClusterSnapshot
from models.arrays import Bools
from models.data.scene import ProfileTable
from profiler.observed import ANTI_AFFINITY_LABEL

MONOTONE_FIELDS = ("vcpus", "memory_mb", "disk_gb", "load")  # of which no filter lets in more than less


def allowed_hosts(
    bare: ClusterSnapshot, goal: Goal, kinds: Sequence[Instance], wanted: Mapping[int, str | None], fresh_s: float
) -> Bools:
    """Which kind may go to which host of a cloud without its movable instances, (K, H).

    `wanted` maps the kinds in question to the kind of hypervisor each must stay on, None = any. Kinds that differ only
    in size are handled together: if the largest and the smallest may enter the same hosts, so may all in between.
    """
    may_enter = np.zeros((len(kinds), len(bare.hosts)), dtype=bool)
    for group in _alike(bare.scenes.table, kinds, wanted):
        host_kind = wanted[group[0]]
        subsets = [sorted(group, key=lambda number: (kinds[number].memory_mb, kinds[number].vcpus, number))]
        while subsets:
            subset = subsets.pop()
            members = [kinds[number] for number in subset]
            least, most = (
                replace(
                    members[0],
                    labels=_rules(members[0]),
                    demand=members[0].demand if _asks_driver(bare.scenes.table, members[0]) else {},
                    **{name: pick(getattr(instance, name) for instance in members) for name in MONOTONE_FIELDS},
                )
                for pick in (min, max)
            )
            hosts = filters.apply(bare, request_of(most, goal, host_kind), fresh_s=fresh_s)[0]
            if len(subset) == 1 or hosts == filters.apply(bare, request_of(least, goal, host_kind), fresh_s=fresh_s)[0]:
                may_enter[np.ix_(subset, hosts)] = True
            else:
                subsets += [subset[: len(subset) // 2], subset[len(subset) // 2 :]]
    usable = np.array(
        [(goal.targets is None or h.id in goal.targets) and h.id not in goal.emptied for h in bare.hosts], dtype=bool
    )
    return np.asarray(may_enter & usable[None, :])


def request_of(instance: Instance, goal: Goal, kind: str | None) -> PlacementRequest:
    """The placement request whose filters decide about an instance."""
    return PlacementRequest(
        replace(instance, host=None),
        constraints=Constraints(exclude=tuple(sorted(goal.emptied)), kind=kind),
        hosts=None if goal.targets is None else tuple(sorted(goal.targets)),
        objective=goal.objective,
        explain=False,
    )


def _rules(instance: Instance) -> dict[str, str]:
    """The labels by which filters tell instances apart; anti-affinity groups are checked by `PackingProblem.fits`."""
    return {name: value for name, value in rule_key(instance) if not name.startswith(ANTI_AFFINITY_LABEL)}


def _asks_driver(table: ProfileTable, instance: Instance) -> bool:
    """Whether it may ask anything of a driver domain, which its demand for CPUs scales; no other filter reads that."""
    return table.row(instance.workload) != 0


def _alike(table: ProfileTable, kinds: Sequence[Instance], wanted: Mapping[int, str | None]) -> Iterator[list[int]]:
    """Groups of kinds that the filters distinguish only by size."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, host_kind in wanted.items():
        instance = kinds[number]
        demand = instance.demand_key if _asks_driver(table, instance) else ()
        key = (
            host_kind, instance.workload, instance.settings, instance.service, instance.exclusive,
            instance.dedicated_vcpus, demand, tuple(_rules(instance).items()),
        )  # fmt: skip
        groups.setdefault(key, []).append(number)
    yield from groups.values()
