"""The matrix factorisation baseline: log T/B as victim term, neighbour term and a low-rank product of both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.arrays import Floats
from models.features.examples import Examples
from models.learning import low_rank
from models.learning.low_rank import FactorProducts

RANK, SWEEPS, PENALTY = 2, 30, 1.0
LATENT = range(2, RANK + 2)
FREE = ((1, *LATENT), (0, *LATENT))  # of a victim's factors [1, a, u] and of a neighbour's [b, 1, v] what is fitted


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


def factorise(entries: Entries, target: Floats, count: int) -> tuple[Floats, Floats]:
    """Fit factors [1, a, u] of `count` workloads, and one more for unknown victims, and [b, 1, v] of neighbours, so
    that `target` (R,) is about the sum over neighbours of a + b + u.v; ridge-regularised."""
    random = np.random.default_rng(0)
    left, right = np.zeros((count + 1, RANK + 2)), np.zeros((count, RANK + 2))
    for side in (left, right):
        side[:count, LATENT] = low_rank.START * random.normal(size=(count, RANK))
    left[:, 0] = right[:, 1] = 1.0
    return low_rank.factorise(entries, target, (left, right), PENALTY, sweeps=SWEEPS, free=FREE)


def apply(entries: Entries, left: Floats, right: Floats) -> Floats:
    """The predicted log T/B of each row; a victim that is not in training gets the mean victim's factors; (R,)."""
    return entries.predict(left, right)
