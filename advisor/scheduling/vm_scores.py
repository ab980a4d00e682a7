"""The score of a VM: how much of what it could do alone it can do now, 0-100; arrays only.

    score = 100 * cpu * devices * memory

The product over resources, each as achieved over ideal throughput, is the idea of the VM DRS score of vSphere 7
(VMware, "Load Balancing Performance of DRS in vSphere 7.0", 2020), and so are its five buckets.

- cpu: CPU delivered, run / (run + wait), measured in the last window of five minutes, else predicted;
- devices: what the driver domain, networks, disks and caches leave of the speed beyond that: relative throughput over
  CPU delivered, both predicted, at most 1;
- memory: the part of the time in which the VM does not stall for memory (PSI memory, `some`); 1 where not measured.

With predictions alone the score is 100 * min(CPU delivered, relative throughput) * memory. A measured CPU share takes
the place of the predicted one, and what is predicted of devices stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.domain import SCORE_BUCKETS, ScoreSummary
from models.arrays import Bools, Floats

_WIDTH = 100.0 / len(SCORE_BUCKETS)


@dataclass(frozen=True, slots=True)
class ScoreFactors:
    """The factors of N VMs, (N,) each within 0-1; nan of `cpu` and `memory` = not known, which counts as 1."""

    cpu: Floats
    devices: Floats
    memory: Floats

    @property
    def scores(self) -> Floats:
        """(N,), 0-100."""
        return np.asarray(100.0 * np.nan_to_num(self.cpu, nan=1.0) * self.devices * np.nan_to_num(self.memory, nan=1.0))


def factors(throughput: Floats, delivered: Floats, measured: Floats, stalled: Floats) -> ScoreFactors:
    """The factors of N VMs by their predicted relative throughput and CPU delivered (nan = no demand is known), their
    measured CPU delivered (nan = not measured), and the part of the time stalled for memory (nan = not measured)."""
    kept = np.clip(throughput, 0.0, 1.0)
    predicted = np.clip(delivered, 0.0, 1.0)
    cpu = np.where(np.isnan(measured), predicted, np.clip(measured, 0.0, 1.0))
    # Where no demand is known, what is predicted for CPUs is in the throughput, and is not taken off twice.
    share = np.nan_to_num(np.where(np.isnan(predicted), cpu, predicted), nan=1.0)
    devices = np.minimum(np.divide(kept, share, out=np.ones_like(kept), where=share > 0), 1.0)
    return ScoreFactors(cpu, devices, 1.0 - np.clip(stalled, 0.0, 1.0))


def summary(scores: Floats, measured: Bools) -> ScoreSummary:
    """Counts by bucket, mean and lowest of N scores; `measured` (N,) = by a measured CPU share."""
    if not scores.size:
        return ScoreSummary((0,) * len(SCORE_BUCKETS), None, None, 0)
    buckets = np.minimum((scores / _WIDTH).astype(np.int64), len(SCORE_BUCKETS) - 1)
    counts = np.bincount(buckets, minlength=len(SCORE_BUCKETS))
    return ScoreSummary(tuple(counts.tolist()), float(scores.mean()), float(scores.min()), int(measured.sum()))
