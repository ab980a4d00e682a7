"""Conformal prediction intervals from errors on left-out pairs and workloads, normalised by each row's difficulty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.arrays import Bools, Floats, Ints
from models.learning.boosting import PARALLEL_PREDICTIONS, PARALLEL_ROWS
from models.learning.stored_trees import Trees

LEVEL = 0.9
TAIL = (1 + LEVEL) / 2  # each bound alone holds in 95 % of cases, so that the lower bound can be used for ranking
LEAST_ERROR = 0.003  # of the log ratio: repeats that agree better do so by chance
OUTSIDE_FACTOR = 2.0  # intervals of rows outside the training data are wider by this factor
UNTESTED = 1.05  # half width on the log scale where nothing could be left out: a factor of nearly three
FEW = 20  # a group with fewer scores than this has no quantiles of its own
SHRINK = 50  # with this many scores a platform's own quantiles and the pooled ones have equal weight; assumed
LEAST_SCALED = 60  # out-of-fold errors from which the difficulty of a row can be learned
GROUPS = ("known", "unknown")
HINTS = 4  # columns of `hints_of`


@dataclass(frozen=True, slots=True)
class Calibration:
    """Widths of prediction intervals.

    `difficulty` predicts the log of a row's typical error; with None every row has the error `typical`.
    `quantiles[group][platform]` is the distance of the lower and of the upper bound in typical errors; platform ""
    stands for platforms without quantiles of their own, new ones among them.
    """

    difficulty: Trees | None
    typical: float
    quantiles: Mapping[str, Mapping[str, tuple[float, float]]]

    def half_widths(
        self,
        x: Floats,
        hints: Floats,
        known: Bools,
        outside: Bools,
        platform: NDArray[np.str_],
        scale: Floats | None = None,
    ) -> tuple[Floats, Floats]:
        """Distance of the lower and of the upper bound on the log scale; both (R,). `hints` by `hints_of`."""
        scale = self.scale(x, hints) if scale is None else scale
        names, at = np.unique(platform, return_inverse=True)
        bounds = np.empty((len(x), 2))
        for group, mask in zip(GROUPS, (known, ~known), strict=True):
            found = self.quantiles[group]
            by_name = np.array([found.get(str(name), found[""]) for name in names]).reshape(-1, 2)
            bounds[mask] = by_name[at[mask]] if len(names) else 0.0
        wide = scale * np.where(outside, OUTSIDE_FACTOR, 1.0)
        down, up = np.maximum(bounds.T * wide, LEAST_ERROR)
        return down, up

    def scale(self, x: Floats, hints: Floats) -> Floats:
        """The typical error of each row on the log scale; (R,)."""
        if self.difficulty is None:
            return np.full(len(x), self.typical)
        return _scale(self.difficulty, x, hints)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, without `difficulty`."""
        quantiles = {
            group: {name: list(pair) for name, pair in found.items()} for group, found in self.quantiles.items()
        }
        return {"typical": self.typical, "quantiles": quantiles}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], difficulty: Trees | None) -> Calibration:
        """Inverse of `to_json`; KeyError, TypeError or ValueError on anything else."""
        quantiles: dict[str, dict[str, tuple[float, float]]] = {}
        for group in GROUPS:
            quantiles[group] = {}
            for name, (low, high) in value["quantiles"][group].items():
                quantiles[group][str(name)] = (float(low), float(high))
            if "" not in quantiles[group]:
                raise ValueError(f"no interval for {group} workloads on new platforms")
        return cls(difficulty, float(value["typical"]), quantiles)


def hints_of(base: Floats, correction: Floats, parts: Floats, known: Bools) -> Floats:
    """Inputs of the difficulty model beside the features, (R, 4): the expected log ratio, the prior's log ratio, the
    disagreement of the base learners, and whether all workloads are known."""
    spread = parts.std(axis=1) if parts.shape[1] else np.zeros(len(base))
    return np.stack([np.log(base) + correction, np.log(base), spread, known.astype(float)], axis=1)


def out_of_fold_scales(x: Floats, hints: Floats, error: Floats, row: Ints, fold: Ints) -> Floats:
    """The typical error of every left-out row, by a difficulty model that was fitted without the row's fold; (J,)."""
    size = np.abs(error)
    scale = np.full(len(error), _typical(error))
    if len(error) >= LEAST_SCALED:
        for number in np.unique(fold):
            inside = fold == number
            others = ~np.isin(row, row[inside])
            if others.sum() >= LEAST_SCALED // 2:
                fitted = _fit_difficulty(x[others], hints[others], size[others])
                scale[inside] = _scale(fitted, x[inside], hints[inside])
    return scale


def _typical(error: Floats) -> float:
    return float(max(np.abs(error).mean(), LEAST_ERROR)) if len(error) else UNTESTED


def calibrate(
    x: Floats,
    hints: Floats,
    error: Floats,
    known: Bools,
    platform: Sequence[str],
    row: Ints,
    fold: Ints,
    scale: Floats | None = None,
) -> Calibration:
    """Normalised split-conformal calibration (Lei et al., JASA 2018), Mondrian by platform and by known or not.

    `error` (J,) measured minus predicted log ratio of rows whose workload or pair was left out; `row` (J,) which
    measurement it is, `fold` (J,) with what it was left out. `platform` (J,) is "" where the platform was left out:
    such rows tell how far new platforms are off, which are never told more surely than the others. The score is error
    over `scale`, the `out_of_fold_scales`: how noisy a new workload is, is as unknown as its ratio.
    """
    scale = out_of_fold_scales(x, hints, error, row, fold) if scale is None else scale
    typical = _typical(error)
    difficulty = _fit_difficulty(x, hints, np.abs(error)) if len(error) >= LEAST_SCALED else None
    scores = error / scale
    labels = np.array(platform, dtype=np.str_)
    everything = _bounds(scores)
    quantiles: dict[str, dict[str, tuple[float, float]]] = {}
    for group, mask in zip(GROUPS, (known, ~known), strict=True):
        there, new = scores[mask & (labels != "")], scores[mask & (labels == "")]
        pooled = _bounds(there) if len(there) >= FEW else everything
        if group == "unknown" and len(there) < FEW:  # errors on known workloads say nothing about unknown ones
            far = _of_few(there, np.append(scale, typical))
            pooled = (max(pooled[0], far), max(pooled[1], far))
        elsewhere = _bounds(new) if len(new) >= FEW else pooled
        quantiles[group] = {"": (max(pooled[0], elsewhere[0]), max(pooled[1], elsewhere[1]))}
        for name in sorted(set(labels[mask]) - {""}):
            own = scores[mask & (labels == name)]
            if len(own) >= FEW:
                share = len(own) / (len(own) + SHRINK)
                low, high = (share * one + (1 - share) * other for one, other in zip(_bounds(own), pooled, strict=True))
                quantiles[group][str(name)] = (low, high)
    _order(quantiles["known"], quantiles["unknown"])
    return Calibration(difficulty, typical, quantiles)


def _order(known: dict[str, tuple[float, float]], unknown: dict[str, tuple[float, float]]) -> None:
    """Make sure that intervals of known workloads are never wider than those of unknown ones, on every platform."""
    for name in sorted(known.keys() | unknown.keys()):  # "" comes first: the others fall back on it
        unknown.setdefault(name, max(known.get(name, unknown[""]), unknown[""], key=sum))
        known[name] = min(known.get(name, known[""]), unknown[name], key=sum)


def _of_few(scores: Floats, scale: Floats) -> float:
    """The distance of both bounds, in scores, where few or no rows could be left out."""
    return finite_quantile(np.abs(scores)) if len(scores) else UNTESTED / float(np.median(scale))


def _fit_difficulty(x: Floats, hints: Floats, size: Floats) -> Trees:
    import lightgbm

    rows = len(size)
    options = {
        "objective": "regression",
        "learning_rate": 0.08,
        "num_leaves": 7,
        "min_data_in_leaf": int(max(10, rows // 40)),
        "feature_fraction": 0.5,
        "lambda_l2": 5.0,
        "max_bin": 63,
        "seed": 0,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1 if rows < PARALLEL_ROWS else 0,
        "verbosity": -1,
    }
    data = lightgbm.Dataset(
        np.concatenate([hints, x], axis=1), np.log(size + LEAST_ERROR), params={"verbosity": -1, "max_bin": 63}
    )
    fitted: Trees = lightgbm.train(options, data, num_boost_round=40)
    return fitted


def _scale(difficulty: Trees, x: Floats, hints: Floats) -> Floats:
    threads = 1 if len(x) < PARALLEL_PREDICTIONS else 0
    return np.asarray(np.exp(difficulty.predict(np.concatenate([hints, x], axis=1), num_threads=threads)))


def _bounds(scores: Floats) -> tuple[float, float]:
    """The distances of the lower and of the upper bound, in scores; symmetric where there are few scores."""
    if len(scores) < 2 * FEW:
        both = max(finite_quantile(np.abs(scores)), 0.0)
        return both, both
    return max(finite_quantile(-scores, TAIL), 0.0), max(finite_quantile(scores, TAIL), 0.0)


def finite_quantile(scores: Floats, level: float = LEVEL) -> float:
    """The ceil((n+1) level)-th smallest score; with too few scores, 1.5 times the largest."""
    if not len(scores):
        return 1.0
    rank = int(np.ceil((len(scores) + 1) * level))
    ordered = np.sort(scores)
    return float(ordered[rank - 1]) if rank <= len(ordered) else float(ordered[-1]) * 1.5
