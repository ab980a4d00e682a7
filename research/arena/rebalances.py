"""Moves that balancers want in a cluster: Cotenant's plans, what each balancer's placement comes to, and tables."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from advisor.domain import PlanKind, PlanRequest
from advisor.planning import planner
from advisor.prediction.active import ActivePredictor
from models.physics.prior import PriorPredictor
from research import markdown
from research.arena.clusters import SimulatedCluster
from research.arena.contest import NOW, Figures, Found, interval

STAY = "no moves"
Stage = tuple[tuple[str, str], ...]
"""Moves that run together: an instance and the host that it goes to."""


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """A cluster after the moves of a balancer, and wall and CPU seconds that it took to name them.

    `stages` has the moves in the order in which they are made, each stage when the one before is done.
    """

    cluster: SimulatedCluster
    moves: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    stages: tuple[Stage, ...] = ()

    def judged(self) -> Figures:
        """What it comes to, by the judges of the cluster, and what it took."""
        hosts = len(set(self.cluster.places.values()))
        return {
            "moves": self.moves, "hosts": hosts, **self.cluster.judged(), "seconds": self.seconds,
            "CPU seconds": self.cpu_seconds,
        }  # fmt: skip


def by_cotenant(
    cluster: SimulatedCluster,
    max_moves: int | None,
    kind: PlanKind = "rebalance",
    keep_ratio: float = 0.8,
    time_limit_s: float = 30.0,
) -> Rebalanced:
    """A plan by the analytic model, as `cotenant plan --kind KIND` makes it; a detour is two moves, None = no limit."""
    if max_moves == 0:
        return Rebalanced(cluster)
    cloud, chosen = cluster.snapshot(), ActivePredictor(PriorPredictor())
    request = PlanRequest(kind, max_moves=max_moves, keep_ratio=keep_ratio, time_limit_s=time_limit_s)
    first, first_cpu = time.perf_counter(), time.process_time()
    plan = planner.plan(cloud, chosen, request, now=NOW, fresh_s=math.inf, models=lambda _: chosen)
    seconds, cpu_seconds = time.perf_counter() - first, time.process_time() - first_cpu
    moved = [step for step in plan.steps if step.action == "move" and step.host is not None]
    stages = tuple(
        tuple((step.instance, str(step.host)) for step in together)
        for _, together in groupby(moved, key=lambda step: step.stage)
    )
    after = {step.instance: str(step.host) for step in moved}
    return Rebalanced(cluster.after({**cluster.places, **after}), len(moved), seconds, cpu_seconds, stages)


def table(found: Found) -> str:
    """Means over clusters with 95 % bootstrap intervals."""
    columns = list(found[STAY][0])
    rows = [[name, *(cell([one[column] for one in each]) for column in columns)] for name, each in found.items()]
    return markdown.table(["policy", *columns], rows)


def cell(values: Sequence[float]) -> str:
    """The mean and its interval, where there is one."""
    ends, mean = interval(values), f"{sum(values) / len(values):.2f}"
    return mean if ends is None or ends[0] == ends[1] else f"{mean} [{ends[0]:.2f}, {ends[1]:.2f}]"
