"""log T/B as victim, neighbour and a low-rank product of both, by alternating least squares on sparse rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.examples import Examples

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RANK, SWEEPS, PENALTY = 2, 30, 1.0
FREE = (0, *range(2, RANK + 2))  # of a neighbour's factors [b, 1, v] those that are fitted


@dataclass(frozen=True, slots=True)
class Entries:
    """Who presses on whom: entry e says that `neighbour[e]` is beside the victim of `row[e]`; workloads by number."""

    victim: Ints
    row: Ints
    neighbour: Ints

    @classmethod
    def of(cls, examples: Examples, names: dict[str, int]) -> Entries:
        """Entries of the rows; what `names` does not know presses with nothing, as a victim it is numbered -1."""
        found = [
            (row, names[one.workload])
            for row, beside in enumerate(examples.neighbours)
            for one in beside
            if one.workload in names
        ]
        pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
        victim = np.array([names.get(victim, -1) for victim in examples.victim], dtype=np.int64)
        return cls(victim, pairs[:, 0], pairs[:, 1])

    def pressing(self, right: Floats) -> Floats:
        """The sum of the neighbours' factors of every row; (R, RANK + 2)."""
        columns = [np.bincount(self.row, column[self.neighbour], minlength=len(self.victim)) for column in right.T]
        return np.stack(columns, axis=1)


def factorise(entries: Entries, target: Floats, count: int) -> tuple[Floats, Floats]:
    """Factors [1, a, u] of `count` workloads as victims and [b, 1, v] as neighbours, so that `target` (R,) is about the
    sum over neighbours of a + b + u.v; ridge-regularised.

    The neighbours' step is exact for rows with one neighbour; with more, whose factors depend on one another, it goes
    the part of the way on which the loss never grows: one over the most neighbours of a row.
    """
    random = np.random.default_rng(0)
    left = np.concatenate([np.ones((count, 1)), np.zeros((count, 1)), 0.1 * random.normal(size=(count, RANK))], axis=1)
    right = np.concatenate([np.zeros((count, 1)), np.ones((count, 1)), 0.1 * random.normal(size=(count, RANK))], axis=1)
    most = max(int(np.bincount(entries.row).max(initial=1)), 1)
    for _ in range(SWEEPS):
        pressing = entries.pressing(right)
        left[:, 1:] = _solve(entries.victim, pressing[:, 1:], target - pressing[:, 0], count)
        mates = left[entries.victim]
        rest = (target - (pressing * mates).sum(axis=1))[entries.row]
        design = mates[entries.row][:, FREE]
        wanted = rest + (design * right[entries.neighbour][:, FREE]).sum(axis=1)
        best = _solve(entries.neighbour, design, wanted, count)
        right[:, FREE] += (best - right[:, FREE]) / most
    return left, right


def apply(entries: Entries, left: Floats, right: Floats) -> Floats:
    """What the factors say of each row; a victim that training lacked has the mean victim's; (R,)."""
    nobody = np.concatenate([[1.0, 0.0], np.zeros(RANK)])
    own = np.concatenate([left, nobody[None]])[entries.victim]
    return np.asarray((own * entries.pressing(right)).sum(axis=1))


def _solve(group: Ints, design: Floats, target: Floats, count: int) -> Floats:
    """Ridge regression in every group at once: (count, K) of `design` (R, K) on `target` (R,); 0 for an empty group."""
    width = design.shape[1]
    squares = np.empty((count, width, width))
    for one in range(width):
        for other in range(one + 1):
            value = np.bincount(group, design[:, one] * design[:, other], minlength=count)
            squares[:, one, other] = squares[:, other, one] = value
    right = np.stack([np.bincount(group, column * target, minlength=count) for column in design.T], axis=1)
    return np.asarray(np.linalg.solve(squares + PENALTY * np.eye(width), right[:, :, None])[:, :, 0])
