"""The matrix factorisation baseline: log T/B as victim term, neighbour term and a low-rank product of both."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from models.arrays import Floats
from models.evaluation import low_rank
from models.evaluation.low_rank import FactorProducts
from models.features.examples import Examples
from models.features.folds import pair_folds

RANKS, PENALTIES = (2, 3, 4), (0.1, 0.3, 1.0, 3.0)  # of targets scaled to a mean square of 1
SWEEPS, FOLDS = 30, 3


@dataclass(frozen=True, slots=True)
class Entries(FactorProducts):
    """Pairs of victim and neighbour of each row, as indices of workloads."""

    @classmethod
    def of(cls, examples: Examples, names: dict[str, int]) -> Entries:
        """Entries of the rows. A neighbour that is not among `names` is ignored; such a victim gets the last index."""
        found = [
            (row, names.get(examples.victim[row], len(names)), names[one.workload])
            for row, beside in enumerate(examples.neighbours)
            for one in beside
            if one.workload in names
        ]
        row, victim, neighbour = np.array(found, dtype=np.int64).reshape(-1, 3).T
        return cls(len(examples), row, victim, neighbour, np.ones(len(found)))


def factorise(entries: FactorProducts, target: Floats, count: int, rank: int, penalty: float) -> tuple[Floats, Floats]:
    """Fit factors [1, a, u] of `count` workloads, and one more for unknown victims, and [b, 1, v] of neighbours, so
    that `target` (R,) is about the sum over neighbours of a + b + u.v; ridge-regularised."""
    random, latent = np.random.default_rng(0), range(2, rank + 2)
    left, right = np.zeros((count + 1, rank + 2)), np.zeros((count, rank + 2))
    for side in (left, right):
        side[:count, latent] = low_rank.START * random.normal(size=(count, rank))
    left[:, 0] = right[:, 1] = 1.0
    free = ((1, *latent), (0, *latent))
    return low_rank.factorise(entries, target, (left, right), penalty, sweeps=SWEEPS, free=free)


def fit_factors(train: Examples, names: dict[str, int], target: Floats) -> tuple[Floats, Floats]:
    """Factors of `target` (R,), scaled, with the rank and the penalty that tell left-out pairs of `train` best."""
    entries = Entries.of(train, names)
    scale = float(np.sqrt(np.mean(target**2))) or 1.0
    folds = pair_folds(train, folds=FOLDS)

    def loss(how: tuple[int, float]) -> float:
        off = 0.0
        for rows, left_out in folds:
            told = entries.predict(*factorise(entries.of_rows(rows), target / scale, len(names), *how))
            off += np.abs(target / scale - told)[left_out].sum()
        return off

    best = min(product(RANKS, PENALTIES), key=loss)
    left, right = factorise(entries, target / scale, len(names), *best)
    return left * scale, right
