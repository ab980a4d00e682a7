"""Families: who does the same work under the same settings and limits, told apart only by how much and by size."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from advisor.planning.assignment.packing_problem import PackingProblem


@dataclass(frozen=True, slots=True)
class DemandClass:
    """Kinds by rising load, and how many there are of each."""

    kinds: tuple[int, ...]
    count: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.count)


def families(ground: PackingProblem, everybody: Counter[int]) -> list[DemandClass]:
    """Everybody, by family."""
    found: dict[tuple[object, ...], list[int]] = {}
    for kind in sorted(everybody, key=lambda kind: (ground.kinds[kind].load, kind)):
        one = ground.kinds[kind]
        key = (one.workload, one.settings, one.service, one.min_throughput_ratio, one.max_latency_ratio)
        found.setdefault(key, []).append(kind)
    return [DemandClass(tuple(kinds), tuple(everybody[kind] for kind in kinds)) for kinds in found.values()]
