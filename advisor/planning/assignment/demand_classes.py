"""Demand classes: instances with the same workload, settings and limits, which differ only in load and size.

Which kinds of vCPUs they have is none of that: dedicated ones share no CPU.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from advisor.domain import Instance
from advisor.planning.assignment.packing_problem import PackingProblem


@dataclass(frozen=True, slots=True)
class DemandClass:
    """Kinds sorted by load, and the number of instances of each."""

    kinds: tuple[int, ...]
    count: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.count)


def class_key(instance: Instance) -> tuple[object, ...]:
    """What instances of one demand class have in common."""
    return (
        instance.workload,
        instance.settings,
        instance.service,
        instance.min_throughput_ratio,
        instance.max_latency_ratio,
        instance.max_time_short,
        instance.demand_key,
        bool(instance.dedicated_vcpus),
        bool(instance.shared_vcpus),
    )


def demand_classes(problem: PackingProblem, counts: Counter[int]) -> list[DemandClass]:
    """Group the instances by demand class."""
    kinds_by_key: dict[tuple[object, ...], list[int]] = {}
    for kind in sorted(counts, key=lambda kind: (problem.kinds[kind].load, kind)):
        kinds_by_key.setdefault(class_key(problem.kinds[kind]), []).append(kind)
    return [DemandClass(tuple(kinds), tuple(counts[kind] for kind in kinds)) for kinds in kinds_by_key.values()]
