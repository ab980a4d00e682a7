"""Conformal intervals: how far off left-out pairs and left-out workloads were, scaled by how hard a row is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LEVEL = 0.9
FLOOR = 0.02  # the least scale of log ratio: repeats of one run differ by about that much
CONTENTION_BINS = 8
OUTSIDE_FACTOR = 2.0  # a question outside the training data gets an interval this much wider
UNTESTED = 0.35  # the scale where nothing could be left out to judge by: at a quantile of 3 a factor of nearly three
FEW = 20  # with fewer scores than this a quantile is taken from everything together


@dataclass(frozen=True, slots=True)
class Calibration:
    """`quantile[group]` is the score that LEVEL of the left-out rows stayed under; `knots`, `scales` are the typical
    error of log ratio against the contention that the base sees, piecewise linear."""

    quantile: Mapping[str, float]
    knots: tuple[float, ...]
    scales: tuple[float, ...]

    def half_width(self, base: Floats, known: Bools, outside: Bools) -> Floats:
        """Half width of the interval on the log scale; (R,)."""
        scale = np.interp(contention(base), self.knots, self.scales)
        quantile = np.where(known, self.quantile["known"], self.quantile["unknown"])
        return np.asarray(scale * quantile * np.where(outside, OUTSIDE_FACTOR, 1.0))

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"quantile": dict(self.quantile), "knots": list(self.knots), "scales": list(self.scales)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Calibration:
        """Inverse of `to_json`; KeyError or TypeError on anything else."""
        return cls(
            {group: float(value["quantile"][group]) for group in ("known", "unknown")},
            tuple(float(knot) for knot in value["knots"]),
            tuple(float(scale) for scale in value["scales"]),
        )


def contention(base: Floats) -> Floats:
    """How much the base expects a row to change: |log ratio|."""
    return np.asarray(np.abs(np.log(base)))


def calibrate(base: Floats, error: Floats, known: Bools) -> Calibration:
    """Normalised split-conformal calibration (Lei et al., JASA 2018) on rows whose workload or pair was left out.

    `error` (J,) measured minus predicted log ratio; `known` (J,) whether all workloads of the row were in training
    (then only the pair was new). The score is |error| / scale(contention); its finite-sample quantile holds per group.
    """
    hard = contention(base)
    knots = np.unique(np.quantile(hard, np.linspace(0, 1, CONTENTION_BINS))) if len(hard) else np.array([0.0])
    scales = np.array([_local_scale(hard, error, knot) for knot in knots])
    scale = np.interp(hard, knots, scales)
    scores = np.abs(error) / scale
    everything = finite_quantile(scores)
    groups = {
        "known": finite_quantile(scores[known]) if known.sum() >= FEW else everything,
        "unknown": finite_quantile(scores[~known]) if (~known).sum() >= FEW else everything,
    }
    # What is known is never less certain than what is not.
    groups["known"] = min(groups["known"], groups["unknown"])
    return Calibration(groups, tuple(float(k) for k in knots), tuple(float(s) for s in scales))


def _local_scale(hard: Floats, error: Floats, knot: float) -> float:
    """Mean error of the rows with about this contention, at least FLOOR; UNTESTED where there are none."""
    width = max(len(hard) // CONTENTION_BINS, min(len(hard), FEW))
    nearest = np.argsort(np.abs(hard - knot), kind="stable")[:width]
    return max(float(np.abs(error[nearest]).mean()), FLOOR) if len(nearest) else UNTESTED


def finite_quantile(scores: Floats, level: float = LEVEL) -> float:
    """The ceil((n+1) level)-th smallest score; with too few scores the largest, half as much again."""
    if not len(scores):
        return 3.0
    rank = int(np.ceil((len(scores) + 1) * level))
    ordered = np.sort(scores)
    return float(ordered[rank - 1]) if rank <= len(ordered) else float(ordered[-1]) * 1.5
