"""QuickScorer (Lucchese et al., SIGIR 2015): evaluates all small trees of an ensemble at once, bit by bit as LightGBM.

Walking through a tree is slow because the processor mispredicts the branch at every split. Here each distinct
comparison is made once per row. Every split that a row does not pass removes the leaves on its left from a bit mask.
The leftmost remaining leaf is the row's leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.arrays import Floats, Ints
from models.learning.stored_trees import END, NOTHING, SPLITS, StoredTrees, Tree, Trees

Bits = NDArray[np.unsignedinteger[Any]]

MOST_LEAVES = 16  # per tree: the cost here grows with the number of splits, that of a walk only with the depth
CELLS = 100_000  # trees times rows per step, so that the working set stays in a core's cache

Comparison = tuple[int, float, bool]  # column, threshold, whether an unknown value passes


@dataclass(frozen=True, slots=True)
class QuickScorer:
    """T trees of a few ensembles, with up to K splits and L leaves each.

    Comparison c tests whether feature `column[c]` is at most `threshold[c]` (C, 1); an unknown value counts as zero.
    `odd` lists comparisons that treat unknown values otherwise, with their result for these. One more comparison, after
    the last, is always true. `split` (K, T) is the comparison of each split. `kept` (K, T, 1) are the leaves that
    remain when it is false, as bits from left to right. `values` (T * L,) are leaf values, those of tree t from
    `first[t]` (T, 1) on. `ends` is the number of the first tree after each ensemble.
    """

    column: Ints
    threshold: Floats
    odd: tuple[tuple[int, bool], ...]
    split: Ints
    kept: Bits
    values: Floats
    first: Ints
    ends: tuple[int, ...]

    @classmethod
    def of(cls, boosters: Sequence[Trees]) -> QuickScorer | None:
        """Prepare boosters; None where a tree has more than MOST_LEAVES or a split other than `value <= threshold`."""
        ensembles = [_trees(booster) for booster in boosters]
        whole = [tree for trees in ensembles for tree in trees]
        most = max((len(tree.values) for tree in whole), default=MOST_LEAVES + 1)
        if most > MOST_LEAVES:
            return None
        trees = [_splits(tree) for tree in whole]
        asked = {asks for splits, _ in trees for asks, _ in splits}
        comparisons = sorted(asks for asks in asked if asks is not None)
        if len(comparisons) < len(asked):
            return None
        number: dict[Comparison | None, int] = {asks: at for at, asks in enumerate(comparisons)}
        bits = 8 if most <= 8 else 16
        split = np.full((max(most - 1, 1), len(trees)), len(comparisons), dtype=np.int64)
        kept = np.zeros((*split.shape, 1), dtype=f"uint{bits}")
        values = np.zeros((len(trees), most))
        for tree, (splits, leaves) in enumerate(trees):
            values[tree, : len(leaves)] = leaves
            for at, (asks, left) in enumerate(splits):
                split[at, tree] = number[asks]
                kept[at, tree] = (1 << bits) - 1 - left
        return cls(
            column=np.array([comparison[0] for comparison in comparisons], dtype=np.int64),
            threshold=np.array([one[1] for one in comparisons]).reshape(-1, 1),
            odd=tuple((at, one[2]) for at, one in enumerate(comparisons) if one[2] != (one[1] >= 0)),
            split=split,
            kept=kept,
            values=values.ravel(),
            first=most * np.arange(len(trees))[:, None],
            ends=tuple(np.cumsum([len(trees) for trees in ensembles]).tolist()),
        )

    def __call__(self, x: Floats) -> Floats:
        """The prediction of each of E ensembles, the sum over its trees, for rows (R, F); (E, R)."""
        rows = len(x)
        size = max(CELLS // len(self.first), 2)
        sums = np.empty((len(self.ends), rows))
        for start in range(0, rows, size):
            sums[:, start : start + size] = self._few(np.ascontiguousarray(x[start : start + size].T))
        return sums

    def _few(self, x: Floats) -> Floats:
        """The same for a few rows, given by columns (F, R)."""
        if x.shape[1] == 1:  # numpy would sum a single column in another order, with other rounding
            return self._few(np.repeat(x, 2, axis=1))[:, :1]
        passed = self._passed(x)
        left = np.full((len(self.first), x.shape[1]), -1, dtype=passed.dtype).view(self.kept.dtype)
        for split, kept in zip(self.split, self.kept, strict=True):
            remain = passed.take(split, axis=0).view(self.kept.dtype)
            remain |= kept
            left &= remain
        before = np.bitwise_count(~left & (left - 1))  # the number of leaves before the leftmost that remains
        values = self.values.take(before + self.first, mode="clip")  # clip skips bounds checks; no index is outside
        sums = np.empty((len(self.ends), x.shape[1]))
        for row, (begin, end) in enumerate(pairwise((0, *self.ends))):
            np.add.reduce(values[begin:end], axis=0, out=sums[row])  # one after the other, as LightGBM adds them
        return sums

    def _passed(self, x: Floats) -> NDArray[np.signedinteger[Any]]:
        """All bits set where a row passes a comparison, else none; (C + 1, R)."""
        known = np.where(np.abs(x) > NOTHING, x, 0.0)  # nan is not larger either
        passed = np.ones((len(self.column) + 1, x.shape[1]), dtype=bool)
        np.less_equal(known.take(self.column, axis=0), self.threshold, out=passed[:-1])
        for at, passes in self.odd:
            passed[at, np.isnan(x[self.column[at]])] = passes
        return np.negative(passed.view(np.int8)).astype(f"int{8 * self.kept.itemsize}", copy=False)


def _trees(trees: Trees) -> Sequence[Tree]:
    """Every tree of an ensemble."""
    if isinstance(trees, StoredTrees):
        return trees.trees
    _, *texts = trees.model_to_string().partition(f"\n{END}")[0].split("\nTree=")
    return [_tree(text) for text in texts]


def _tree(text: str) -> Tree:
    """A tree of LightGBM's text format."""
    fields = {name: values.split() for name, _, values in (line.partition("=") for line in text.splitlines())}
    feature, threshold, decision, left, right = (fields.get(name, []) for name in SPLITS)
    return Tree(
        values=list(map(float, fields["leaf_value"])),
        feature=list(map(int, feature)),
        threshold=list(map(float, threshold)),
        decision=list(map(int, decision)),
        left=list(map(int, left)),
        right=list(map(int, right)),
    )


def _splits(tree: Tree) -> tuple[list[tuple[Comparison | None, int]], list[float]]:
    """The splits of a tree, each with the leaves on its left as bits, and the leaves' values from left to right."""
    splits: list[tuple[Comparison | None, int]] = []
    values: list[float] = []

    def walk(node: int) -> None:
        if node < 0:
            values.append(tree.values[~node])
            return
        first = len(values)
        walk(tree.left[node])
        splits.append((_comparison(tree, node), (1 << len(values)) - (1 << first)))
        walk(tree.right[node])

    walk(0 if len(tree.values) > 1 else -1)
    return splits, values


def _comparison(tree: Tree, node: int) -> Comparison | None:
    """The comparison of a split; None where it is not of the form `value <= threshold`.

    LightGBM's decision_type: bit 0 = categorical, bit 1 = missing values go left, bits 2-3 = what counts as missing
    (0 nothing, nan is zero; 1 zero; 2 nan); include/LightGBM/tree.h.
    """
    kind, threshold = tree.decision[node], tree.threshold[node]
    if kind & 1 or kind >> 2 not in {0, 2}:
        return None
    passes = bool(kind & 2) if kind >> 2 else threshold >= 0
    return tree.feature[node], threshold, passes
