"""Errors of T/B and of the slowdown B/T over test rows, with bootstrap intervals, beside the measurement's noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.features.examples import Examples
from models.physics.prior import RESOURCES

# Groups rows of Examples: labels as numbers, repeats of one measurement, and the limiting resource.

PRIOR = "analytic "  # columns with the log of how far each resource alone would let an instance go
FREE = 0.01  # less than 1 % of a limit is none


def codes(labels: Iterable[Hashable]) -> Ints:
    """A number from 0 for every label, equal for equal labels, in the order of their first appearance; (R,)."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.int64)


def repeats(examples: Examples) -> Ints:
    """Rows of the same instance of the same run in the same setting have the same number; (R,).

    A run that holds a workload twice has two instances of it, distinguished by their order.
    """
    seen: Counter[tuple[str, str]] = Counter()
    keys = []
    for run, victim, setting in zip(examples.run, examples.victim, examples.setting, strict=True):
        keys.append((run.rpartition("/")[0], victim, setting, seen[run, victim]))
        seen[run, victim] += 1
    return codes(keys)


def around(examples: Examples) -> list[tuple[str, ...]]:
    """The neighbours' workloads of every row, sorted."""
    return [tuple(sorted(one.workload for one in beside)) for beside in examples.neighbours]


def limiting(examples: Examples) -> tuple[str, ...]:
    """The resource that limits a row most according to the prior, `none` where nothing does; (R,)."""
    names = [PRIOR + name for name in RESOURCES if PRIOR + name in examples.names]
    if not names:
        return ("unknown",) * len(examples)
    limits = np.nan_to_num(examples.x[:, [examples.names.index(name) for name in names]])
    worst = limits.argmin(axis=1)
    free = limits.min(axis=1) > -FREE
    return tuple("none" if one else names[at].removeprefix(PRIOR) for one, at in zip(free, worst, strict=True))


# Bootstrap intervals of means, by resampling whole pairs: rows of one pair are not independent.

RESAMPLES = 2000
LEVEL = 0.95
CHUNK = 2_000_000  # weights held at once


def resampled_means(cluster: Ints, values: Floats, *, resamples: int = RESAMPLES) -> Floats | None:
    """Means of the columns of `values` (R, K) over clusters drawn with replacement; (resamples, K).

    `cluster` (R,) numbers from 0. Every column sees the same draws, so that their differences are paired. None with
    fewer than two clusters, which tell nothing of their spread. Cluster bootstrap: Davison & Hinkley 1997, section 3.8.
    """
    number = np.unique(cluster, return_inverse=True)[1]
    count = int(number.max(initial=-1)) + 1
    if count < 2:
        return None
    sums = np.stack([np.bincount(number, column) for column in values.T] + [np.bincount(number) * 1.0], axis=1)
    random = np.random.default_rng(0)
    totals = []
    for start in range(0, resamples, step := max(1, CHUNK // count)):
        here = min(step, resamples - start)
        drawn = random.integers(0, count, (here, count)) + np.arange(here)[:, None] * count
        weights = np.bincount(drawn.ravel(), minlength=here * count).reshape(here, count)
        totals.append(weights @ sums)
    total = np.concatenate(totals)
    return np.asarray(total[:, :-1] / total[:, -1:])


def interval(means: Floats | None) -> list[float] | None:
    """The middle 95 % of resampled means (N,), None where there are none."""
    if means is None:
        return None
    return [rounded(edge) for edge in np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])]


INTERFERING = 1.10  # slowdown from which a row counts as interfering (contract, section 3)
LOWEST_COUNTED = 0.01  # T/B below this makes slowdown ratios meaningless; it is clipped there
MOST_GROUPS = 200  # platforms beyond are not listed
PREDICTED_BINS = 8


def errors(examples: Examples, guess: Floats, ranking: PairwiseRanking | None = None) -> dict[str, Any]:
    """Errors of T/B and of slowdown B/T of `guess` (R,); None where a figure has no meaning.

    `ranking` can be passed to reuse it for several methods on the same rows.
    """
    measured = examples.ratio
    off, relative = absolute(measured, guess)
    slow, slow_guess = 1 / np.clip(measured, LOWEST_COUNTED, None), 1 / np.clip(guess, LOWEST_COUNTED, None)
    slow_off = np.abs(slow - slow_guess) / slow
    interfering = slow > INTERFERING
    return {
        "mape": rounded(relative.mean()),
        "mae": rounded(off.mean()),
        "p90_abs_error": rounded(np.quantile(off, 0.9)),
        "spearman": _spearman(measured, guess),
        "pair_ranking_accuracy": (ranking or PairwiseRanking.of(examples)).accuracy(guess),
        "mape_slowdown": rounded(slow_off.mean()),
        "mape_interfering": rounded(slow_off[interfering].mean()) if interfering.any() else None,
    }


def absolute(measured: Floats, guess: Floats) -> tuple[Floats, Floats]:
    """|error| of T/B, and as a share of what was measured; both (R,)."""
    off = np.abs(measured - guess)
    return off, off / np.clip(measured, LOWEST_COUNTED, None)


def by_label(
    labels: Sequence[str], measured: Floats, guess: Floats, base: Floats, inside: Bools
) -> list[dict[str, Any]]:
    """Error of `guess` and of the prior (`base`) and coverage for each label, the most rows first."""
    column = np.array(labels)
    names, counts = np.unique(column, return_counts=True)
    found = []
    for at in np.argsort(-counts, kind="stable")[:MOST_GROUPS]:
        rows = column == names[at]
        off, relative = absolute(measured[rows], guess[rows])
        found.append(
            {
                "label": str(names[at]),
                "rows": int(counts[at]),
                "mae": rounded(off.mean()),
                "mape": rounded(relative.mean()),
                "prior_mae": rounded(np.abs(measured[rows] - base[rows]).mean()),
                "coverage": rounded(inside[rows].mean()),
            }
        )
    return found


def by_predicted(measured: Floats, guess: Floats, inside: Bools) -> list[dict[str, Any]]:
    """Means of predicted and measured T/B and the coverage in bins of about equally many rows, by predicted value."""
    order = np.argsort(guess, kind="stable")
    parts = [part for part in np.array_split(order, min(PREDICTED_BINS, len(order))) if len(part)]
    return [
        {
            "predicted": rounded(guess[part].mean()),
            "measured": rounded(measured[part].mean()),
            "rows": len(part),
            "coverage": rounded(inside[part].mean()),
        }
        for part in parts
    ]


def _spearman(measured: Floats, guess: Floats) -> float | None:
    from scipy.stats import spearmanr

    if len(measured) < 3 or np.ptp(measured) == 0 or np.ptp(guess) == 0:
        return None
    return rounded(spearmanr(measured, guess).statistic)


def rounded(value: Any) -> float:
    """A number rounded to 5 decimals for JSON."""
    return round(float(value), 5)


# The noise floor: the error that remains for a perfect predictor, because repeats of one measurement differ.


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """`repeated` (R,) marks rows that were measured more than once, over which `mae` and `mape` of T/B are taken."""

    repeated: Bools
    mae: float
    mape: float

    @classmethod
    def of(cls, examples: Examples, repeat: Ints) -> NoiseFloor:
        """The errors of a perfect predictor of the mean. `repeat` (R,) numbers rows; equal numbers are repeats.

        With k repeats r of spread s, a row against the mean of the others is off by a spread of s sqrt(k / (k - 1)),
        a row against the true mean by s. So mae = mean of |r - mean of the others| sqrt((k - 1) / k); for mape over r.
        """
        number = np.unique(repeat, return_inverse=True)[1]
        count = np.bincount(number)[number] if len(number) else np.zeros(0)
        repeated = count > 1
        k = np.maximum(count, 2)
        others = (np.bincount(number, examples.ratio)[number] - examples.ratio) / (k - 1) if len(number) else count
        off = (np.abs(examples.ratio - others) * np.sqrt((k - 1) / k))[repeated]
        measured = np.clip(examples.ratio, LOWEST_COUNTED, None)[repeated]
        return cls(
            repeated, float(off.mean()) if len(off) else 0.0, float((off / measured).mean()) if len(off) else 0.0
        )

    def to_json(self) -> dict[str, float | int] | None:
        """As plain JSON values; None where nothing was repeated."""
        if not self.repeated.any():
            return None
        return {"mae": rounded(self.mae), "mape": rounded(self.mape), "rows": int(self.repeated.sum())}

    def times(self, examples: Examples, repeated: Bools, guess: Floats) -> dict[str, float | None] | None:
        """Error of `guess` (J,) on the repeated rows of `examples` (J rows) as a multiple of the noise."""
        if not repeated.any():
            return None
        off = np.abs(examples.ratio - guess)[repeated]
        relative = off / np.clip(examples.ratio, LOWEST_COUNTED, None)[repeated]
        pairs = {"mae": (off.mean(), self.mae), "mape": (relative.mean(), self.mape)}
        return {name: rounded(error / noise) if noise > 0 else None for name, (error, noise) in pairs.items()}


# Pairwise ranking accuracy: how often a method predicts which of two neighbours hurts a victim less.

NOT_REPEATED = 0.01  # the standard error that stands in where nothing was repeated: gaps under about 3 % do not count
MOST_COMPARED = 4_000_000  # beyond, every victim's neighbours are compared with a random part of the others only
TIE = 1e-9


@dataclass(frozen=True, slots=True)
class PairwiseRanking:
    """`cell` (R,) is the victim with its neighbours, platform and setting of each row; `first`, `second` (Q,) are the
    cells to compare and `gap` (Q,) the measured mean of the first minus that of the second."""

    cell: Ints
    first: Ints
    second: Ints
    gap: Floats

    @classmethod
    def of(cls, examples: Examples, row: Ints | None = None) -> PairwiseRanking:
        """Compare where means differ by more than twice their joint standard error.

        `row` (R,) identifies rows that were predicted twice; their measurement counts once.
        """
        scene = codes(zip(examples.victim, examples.platform, examples.setting, strict=True))
        cell = codes(zip(scene, around(examples), strict=True))
        once = np.ones(len(cell))
        if row is not None:
            once[:] = 0
            once[np.unique(row, return_index=True)[1]] = 1
        mean, error = _means(cell, examples.ratio, once)
        scene_of_cell = np.zeros(len(mean), dtype=np.int64)
        scene_of_cell[cell] = scene
        first, second = _within(scene_of_cell)
        gap = mean[first] - mean[second]
        significant = np.abs(gap) > 2 * np.hypot(error[first], error[second])
        return cls(cell, first[significant], second[significant], gap[significant])

    def accuracy(self, guess: Floats) -> float | None:
        """The share of comparisons that `guess` (R,) gets right, equal guesses half; None where there are none."""
        if not len(self.gap):
            return None
        count = np.bincount(self.cell)
        mean = np.bincount(self.cell, guess) / np.maximum(count, 1)
        predicted_gap = mean[self.first] - mean[self.second]
        right = np.where(np.abs(predicted_gap) < TIE, 0.5, (predicted_gap > 0) == (self.gap > 0))
        return round(float(right.mean()), 5)


def _means(cell: Ints, ratio: Floats, once: Floats) -> tuple[Floats, Floats]:
    """Mean and its standard error per cell."""
    count = np.maximum(np.bincount(cell, once), 1)
    mean = np.bincount(cell, once * ratio) / count
    spread = np.bincount(cell, once * (ratio - mean[cell]) ** 2) / np.maximum(count - 1, 1)
    return mean, np.where(count > 1, np.sqrt(spread / count), NOT_REPEATED)


def _within(scene: Ints) -> tuple[Ints, Ints]:
    """All pairs of cells of one scene; with too many, only those close to each other in a shuffled order."""
    shuffled = np.random.default_rng(0).permutation(len(scene))
    order = shuffled[np.argsort(scene[shuffled], kind="stable")]
    scene = scene[order]
    first, second, total = [], [], 0
    for apart in range(1, int(np.bincount(scene).max(initial=1))):
        same = np.flatnonzero(scene[apart:] == scene[:-apart])
        first.append(order[same])
        second.append(order[same + apart])
        total += len(same)
        if total > MOST_COMPARED:
            break
    nothing = np.zeros(0, dtype=np.int64)
    return np.concatenate([nothing, *first]), np.concatenate([nothing, *second])
