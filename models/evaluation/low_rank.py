"""Low-rank factorisation of pair effects by alternating least squares: a victim factor times a neighbour factor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.arrays import Floats, Ints

FactorPair = tuple[Floats, Floats]

START = 0.1  # standard deviation of initial factors; with all zeros the gradient would be zero


@dataclass(frozen=True, slots=True)
class FactorProducts:
    """Which factor products each of `rows` R rows is a sum of.

    Entry e adds `share[e]` times the product of left factor `left[e]` and right factor `right[e]` to row `row[e]`; all
    four are (E,).
    """

    rows: int
    row: Ints
    left: Ints
    right: Ints
    share: Floats

    def of_rows(self, rows: Ints) -> FactorProducts:
        """The entries of these rows only; row numbers stay the same."""
        wanted = np.zeros(self.rows, dtype=bool)
        wanted[rows] = True
        kept = wanted[self.row]
        return replace(self, row=self.row[kept], left=self.left[kept], right=self.right[kept], share=self.share[kept])

    def predict(self, left: Floats, right: Floats) -> Floats:
        """The sum of each row's products of left (L, K) and right (M, K) factors; (R,)."""
        value = self.share * np.einsum("ek,ek->e", left[self.left], right[self.right])
        return np.asarray(np.bincount(self.row, value, minlength=self.rows), dtype=float)


@dataclass(frozen=True, slots=True)
class _FactorSide:
    """One side (left or right) of the factorisation: entries of the same row and factor form a cell.

    `own` and `row` (C,) are the factor and the row of each cell, `cell` (E,) the cell of each entry, and `most` is the
    highest number of cells in a row.
    """

    own: Ints
    row: Ints
    cell: Ints
    most: int

    @classmethod
    def of(cls, row: Ints, own: Ints, count: int) -> _FactorSide:
        cells, cell = np.unique(row * count + own, return_inverse=True)
        return cls(cells % count, cells // count, cell, int(np.bincount(cells // count).max(initial=1)))


def factorise(
    products: FactorProducts,
    target: Floats,
    start: FactorPair,
    penalty: float,
    *,
    sweeps: int,
    free: tuple[Sequence[int], Sequence[int]] | None = None,
) -> FactorPair:
    """Fit factors (L, K) and (M, K) so that the rows' sums of products approximate `target` (R,); ridge-regularised.

    `start` holds the initial factors. `free` are the columns of each side that are fitted, None = all. A factor without
    entries is 0 in these columns. Where each row has one cell per side, a step is the exact least-squares solution.
    Otherwise a step is shortened to 1 / (most cells of a row), for which the loss never increases.
    """
    names = (products.left, products.right)
    factors = (start[0].copy(), start[1].copy())
    columns = [list(one) for one in free or [range(one.shape[1]) for one in start]]
    sides = [_FactorSide.of(products.row, name, len(factor)) for name, factor in zip(names, factors, strict=True)]
    for side, own, fitted in zip(sides, factors, columns, strict=True):
        own[np.ix_(np.bincount(side.own, minlength=len(own)) == 0, fitted)] = 0.0
    for _ in range(sweeps):
        for this, other in ((0, 1), (1, 0)):
            others = factors[other][names[other]] * products.share[:, None]
            _step(sides[this], factors[this], others, target, columns[this], penalty)
    return factors


def _step(side: _FactorSide, own: Floats, others: Floats, target: Floats, free: list[int], penalty: float) -> None:
    """Update one side's factors in place towards the optimum for fixed factors of the other side, `others` (E, K)."""
    columns = [np.bincount(side.cell, column, minlength=len(side.own)) for column in others.T]
    design = np.stack(columns, axis=1).astype(float)
    parts = design * own[side.own]
    rest: Floats = target - np.bincount(side.row, parts.sum(axis=1), minlength=len(target))
    wanted: Floats = rest[side.row] + parts[:, free].sum(axis=1)
    own[:, free] += (_solve(side.own, design[:, free], wanted, len(own), penalty) - own[:, free]) / side.most


def _solve(group: Ints, design: Floats, target: Floats, count: int, penalty: float) -> Floats:
    """Ridge regression of `target` (C,) on `design` (C, K) in every group at once; (count, K), 0 for empty groups."""
    width = design.shape[1]
    squares = np.empty((count, width, width))
    for one in range(width):
        for other in range(one + 1):
            value = np.bincount(group, design[:, one] * design[:, other], minlength=count)
            squares[:, one, other] = squares[:, other, one] = value
    right = np.stack([np.bincount(group, column * target, minlength=count) for column in design.T], axis=1)
    return np.asarray(np.linalg.solve(squares + penalty * np.eye(width), right[:, :, None])[:, :, 0])
