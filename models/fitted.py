"""A fitted target: residual model, calibration and the ranges it was trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.estimators import (
    HIGHEST,
    LOWEST,
    Judged,
    ResidualModel,
    at_trust,
    choose_trust,
    fit,
    judge,
    pair_folds,
    workload_folds,
)
from models.examples import Examples
from models.features import LIMITS
from models.intervals import FLOOR, Calibration, calibrate

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Progress = Callable[[str, float], None]

OUTSIDE_SHARE = 0.2  # a row with more than this share of strange features lies outside the training data
OUTSIDE_MARGIN = 0.5  # how far, in spans of the training range
SURE = {"throughput": 1.0, "latency": np.inf}  # nobody is ever sure to gain from a neighbour


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected ratio with its interval and what it rests on; all (R,)."""

    expected: Floats
    lower: Floats
    upper: Floats
    known: Bools
    outside: Bools


@dataclass(frozen=True, slots=True)
class FittedTarget:
    """Everything needed to predict one ratio.

    `low`, `high` (F,) are the range of each feature in training, nan = never seen; `limits` are the columns of the
    settings that hold an instance back.
    """

    target: str
    model: ResidualModel
    calibration: Calibration
    low: Floats
    high: Floats
    limits: tuple[int, ...]
    most_instances: int
    figures: Mapping[str, Mapping[str, float]]

    def estimate(self, x: Floats, base: Floats, correction: Floats, known: Bools, size: NDArray[np.int64]) -> Estimate:
        """Turn corrections of log ratio (R,) into ratios with intervals. `size` (R,) instances in each row's scene.

        Outside the training data nothing learned is applied: the prior answers, with a wide interval. Nor is it to who
        is alone: that is what the ratio is against.
        """
        outside, alone = self.outside(x), size <= 1
        learned = np.where(outside | alone, 0.0, correction)
        expected = np.clip(base * np.exp(learned), LOWEST[self.target], HIGHEST[self.target])
        outside |= size > self.most_instances
        half = np.where(alone, FLOOR, self.calibration.half_width(base, known, outside))
        return Estimate(
            expected=expected,
            lower=np.clip(expected * np.exp(-half), LOWEST[self.target], SURE[self.target]),
            upper=np.clip(expected * np.exp(half), None, HIGHEST[self.target]),
            known=known,
            outside=outside,
        )

    def outside(self, x: Floats) -> Bools:
        """Rows with too many features that lie far from all training rows or that training never saw; (R,).

        One limit that training never saw set is enough: how a cap, a rate or a disk limit acts is what it is asked for.
        """
        span = np.maximum(self.high - self.low, 1e-9)
        with np.errstate(invalid="ignore"):
            far = (x < self.low - OUTSIDE_MARGIN * span) | (x > self.high + OUTSIDE_MARGIN * span)
        finite = np.isfinite(x)
        strange = finite & (far | ~np.isfinite(self.low))
        untried = (finite & ~np.isfinite(self.low))[:, list(self.limits)].any(axis=1)
        return np.asarray(untried | (strange.sum(axis=1) / np.maximum(finite.sum(axis=1), 1) > OUTSIDE_SHARE))


def fit_target(examples: Examples, target: str, *, seed: int = 0, progress: Progress | None = None) -> FittedTarget:
    """Fit, judge on left-out pairs and left-out workloads, choose the trust for unknown workloads, calibrate."""
    say = progress or (lambda _what, _done: None)
    say(f"{target}: fitting", 0.1)
    model = fit(examples, seed=seed)
    say(f"{target}: judging on left-out pairs", 0.3)
    by_pair = judge(examples, pair_folds(examples, seed), seed=seed)
    say(f"{target}: judging on left-out workloads", 0.6)
    by_workload = judge(examples, workload_folds(examples), seed=seed)
    both = joined(by_pair, by_workload)
    trust_known = choose_trust(examples, both, both.known)
    trust_unknown = choose_trust(examples, both, ~both.known, untested=0.0)
    by_pair, by_workload = (at_trust(examples, one, trust_known, trust_unknown) for one in (by_pair, by_workload))
    say(f"{target}: calibrating", 0.95)
    both = joined(by_pair, by_workload)
    return FittedTarget(
        target=target,
        model=replace(model, trust_known=trust_known, trust_unknown=trust_unknown),
        calibration=calibrate(examples.base[both.row], both.error, both.known),
        low=_edge(examples.x, np.nanmin),
        high=_edge(examples.x, np.nanmax),
        limits=tuple(column for column, name in enumerate(examples.names) if name in LIMITS),
        most_instances=int(examples.size.max(initial=0)),
        figures={
            "unseen_pair": _figures(examples, by_pair),
            "unseen_workload": _figures(examples, by_workload),
        },
    )


def joined(one: Judged, other: Judged) -> Judged:
    """Both judgements as one."""
    return Judged(*(np.concatenate([getattr(one, name), getattr(other, name)]) for name in ("row", "error", "known")))


def _edge(x: Floats, pick: Callable[..., Any]) -> Floats:
    edge = np.full(x.shape[1], np.nan)
    seen = np.isfinite(x).any(axis=0)
    if seen.any():
        edge[seen] = pick(np.where(np.isfinite(x[:, seen]), x[:, seen], np.nan), axis=0)
    return edge


def _figures(examples: Examples, judged: Judged) -> dict[str, float]:
    if not len(judged.row):
        return {"rows": 0}
    measured, base = examples.ratio[judged.row], examples.base[judged.row]
    predicted = measured * np.exp(-judged.error)
    return {
        "rows": len(judged.row),
        "mae": round(float(np.abs(measured - predicted).mean()), 5),
        "mae_prior": round(float(np.abs(measured - base).mean()), 5),
        "p90_abs_error": round(float(np.quantile(np.abs(measured - predicted), 0.9)), 5),
    }
