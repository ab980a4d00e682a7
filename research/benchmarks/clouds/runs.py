"""What arrives in a cloud, how far its instances fall, and intervals of what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.scheduling.scoring import KEPT
from research.benchmarks.clouds.streams import arrivals
from research.benchmarks.clouds.worlds import MeasuredWorld

SLO = KEPT
PER_HOST = 1.5  # instances that arrive per host where a cloud is not filled
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class ArrivalLoad:
    """What arrives in a cloud: instances per host."""

    name: str
    per_host: float

    def workloads(self, world: MeasuredWorld, hosts: int, seed: int) -> list[str]:
        """What arrives, all workloads equally likely."""
        return arrivals(world.workloads, round(self.per_host * hosts), seed)


PART, FULL = ArrivalLoad("1.5 per host", PER_HOST), ArrivalLoad("full", 2.0)


def below(ratios: np.ndarray, slo: float) -> float:
    """Percent of instances below an SLO."""
    return float(100 * (ratios < slo).mean())


def interval(values: Sequence[float], seed: int = 0) -> list[float] | None:
    """95 % bootstrap interval of the mean of independent values; None of fewer than two."""
    if len(values) < 2:
        return None
    drawn = np.random.default_rng(seed).choice(np.array(values), (RESAMPLES, len(values)))
    return [float(one) for one in np.percentile(drawn.mean(axis=1), (2.5, 97.5))]
