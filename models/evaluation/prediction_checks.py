"""Compares predictions with observations: one row per checked prediction, figures, and interval inflation.

There is no storage here: the same rows always give the same figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

import numpy as np

TARGETS = ("throughput", "latency", "jitter")
ROLES = ("active", "shadow", "baseline")  # who answered, who was tried beside it, and the prior as the yardstick
COVERAGE = 0.9  # what every interval of this project claims
WINDOW = 200  # rows per group; a coverage of 90 % is then known to about +-4 %
LOWEST, HIGHEST = 1e-3, 1e3  # 0 has no logarithm; as in training
FLOOR = 0.01  # half width on the log scale below which a residual is not scaled up: measurements repeat no better
STRANGEST = 4.0  # half widths; one broken measurement must not pass for a drift
SHORT = 0.05  # coverage is short when a model that keeps its promise would be that low less often than this
GAMMA = 0.01  # step of the adaptive level per scene (gamma of Gibbs and Candes, NeurIPS 2021)
FEW = 20  # scenes below which nothing is said about coverage or drift
WIDEST = STRANGEST  # times; intervals this far off need a new model, not a factor


@dataclass(frozen=True, slots=True)
class CheckedPrediction:
    """One prediction beside what was measured. Rows of one `source` were measured together, in one scene.

    `expected`, `lower`, `upper` are the model's own ratio and 90 % interval, before any widening; `workload` "" =
    unknown.
    """

    source: str
    time: datetime
    version: str
    role: str
    target: str
    platform: str
    workload: str
    instance: str
    expected: float
    lower: float
    upper: float
    outside: bool
    observed: float


@dataclass(frozen=True, slots=True)
class CheckFigures:
    """Figures of a group of rows: `error` is the mean |observed - expected|, `bias` the mean observed - expected.

    `coverage` is the share inside the interval, `coverage_low` and `coverage_high` its 90 % interval, where `scenes`
    and not rows count: instances of one scene err together. `outside` is the share outside the training data.
    """

    rows: int
    scenes: int
    since: datetime
    until: datetime
    coverage: float
    coverage_low: float
    coverage_high: float
    error: float
    bias: float
    outside: float


def figures(rows: Sequence[CheckedPrediction]) -> CheckFigures:
    """Compute the figures of a group of at least one row; rows are in order of time."""
    off = np.array([row.observed - row.expected for row in rows])
    scenes = count_scenes(rows)
    coverage = float(np.mean([covered(row) for row in rows]))
    low, high = coverage_bounds(coverage, scenes)
    return CheckFigures(
        rows=len(rows),
        scenes=scenes,
        since=rows[0].time,
        until=rows[-1].time,
        coverage=coverage,
        coverage_low=low,
        coverage_high=high,
        error=float(np.abs(off).mean()),
        bias=float(off.mean()),
        outside=float(np.mean([row.outside for row in rows])),
    )


def covered(row: CheckedPrediction) -> bool:
    """Whether the measurement lies in the interval."""
    return row.lower <= row.observed <= row.upper


def residual(row: CheckedPrediction) -> float:
    """(log observed - log expected) over the half width on that side: within +-1 is inside the interval.

    Cut at STRANGEST; a half width under FLOOR counts as FLOOR.
    """
    off = log_off(row)
    expected = clip(row.expected)
    edge = math.log(clip(row.upper) / expected) if off > 0 else math.log(expected / clip(row.lower))
    return min(max(off / max(edge, FLOOR), -STRANGEST), STRANGEST)


def log_off(row: CheckedPrediction) -> float:
    """Log of observed over expected: -0.1 = about 10 % below what was predicted."""
    return math.log(clip(row.observed) / clip(row.expected))


def clip(ratio: float) -> float:
    """The ratio clipped to values that have a logarithm."""
    return min(max(ratio, LOWEST), HIGHEST)


def by_scene(rows: Sequence[CheckedPrediction]) -> tuple[tuple[CheckedPrediction, ...], ...]:
    """Split rows where the source changes; rows of one source are stored one after another."""
    return tuple(tuple(group) for _, group in groupby(rows, key=lambda row: row.source))


def count_scenes(rows: Sequence[CheckedPrediction]) -> int:
    """The number of scenes that the rows come from."""
    return len({row.source for row in rows})


def coverage_bounds(coverage: float, count: int) -> tuple[float, float]:
    """Clopper and Pearson's interval of a share that was seen `count` times; the whole of 0-1 for none."""
    from scipy.special import betaincinv

    tail, hits = (1 - COVERAGE) / 2, coverage * count
    low = 0.0 if hits <= 0 else float(betaincinv(hits, count - hits + 1, tail))
    high = 1.0 if hits >= count else float(betaincinv(hits + 1, count - hits, 1 - tail))
    return low, high


def chance_of_coverage(coverage: float, count: int) -> float:
    """The probability that a model whose intervals hold COVERAGE covers so few of `count` scenes (binomial tail)."""
    from scipy.special import bdtr

    return float(bdtr(np.floor(coverage * count + 1e-9), count, COVERAGE))


def is_short(rows: Sequence[CheckedPrediction], chance: float = SHORT) -> bool:
    """Whether coverage is implausibly low for calibrated intervals; needs at least FEW scenes."""
    scenes = count_scenes(rows)
    if scenes < FEW:
        return False
    return chance_of_coverage(float(np.mean([covered(row) for row in rows])), scenes) < chance


def widening(rows: Sequence[CheckedPrediction], window: int = WINDOW) -> float:
    """The factor, at least 1, by which half widths should grow now (adaptive conformal inference, Gibbs & Candes 2021).

    `rows` are one platform's in order of time, twice the window long if there are as many. The level follows
    alpha + GAMMA * (alpha - miss) scene by scene; the factor is the quantile of the last window's |residuals| at that
    level. The level never goes below the model's own, and the factor is 1 while coverage is plausible.
    """
    if not is_short(rows[-window:]):
        return 1.0
    alpha, factor = 1 - COVERAGE, 1.0
    scores: list[float] = []
    for scene in by_scene(rows):
        found = [abs(residual(row)) for row in scene]
        missed = sum(score > factor for score in found) / len(found)
        alpha = min(max(alpha + GAMMA * (1 - COVERAGE - missed), 0.0), 1 - COVERAGE)
        scores = [*scores, *found][-window:]
        factor = max(conformal_quantile(scores, 1 - alpha), 1.0) if len(scores) >= FEW else 1.0
    return min(factor, WIDEST)


def conformal_quantile(scores: Sequence[float], level: float = COVERAGE) -> float:
    """The conformal quantile: the ceil((n + 1) level)-th smallest, the largest where that is beyond all."""
    rank = min(math.ceil((len(scores) + 1) * level), len(scores))
    return sorted(scores)[rank - 1]


def widen(expected: float, edge: float, factor: float) -> float:
    """Move an interval's bound to `factor` times its distance from `expected` on the log scale; 0 and inf stay."""
    if factor == 1.0 or not (expected > 0 and 0 < edge < math.inf):
        return edge
    return expected * math.exp(math.log(edge / expected) * factor)
