"""Trees read from an artifact: they answer a few rows by themselves, and by LightGBM where the process has it anyway.

LightGBM brings scikit-learn and pandas along, which take over a second of CPU time to import: more than a question on
the command line.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from models.arrays import Bools, Floats, Ints

if TYPE_CHECKING:
    import lightgbm

MOST_WALKED = 1_000_000  # trees times rows: with more it is worth to import LightGBM
NOTHING = float(np.float32(1e-35))  # values up to this are zero to LightGBM: kZeroThreshold, include/LightGBM/meta.h
END = "end of trees"
FIXED = {"version": "v4", "num_class": "1", "num_tree_per_iteration": "1", "objective": "regression"}
SPLITS = ("split_feature", "threshold", "decision_type", "left_child", "right_child")
_UNKNOWN_IS_NAN, _UNKNOWN_IS_ZERO = 2, 1  # bits 2-3 of a decision; include/LightGBM/tree.h


def answer_by_lightgbm() -> None:
    """Import LightGBM, so that it answers for all stored trees of this process: faster where many questions come."""
    import lightgbm  # noqa: F401 - `predict` looks whether it is there


class Trees(Protocol):
    """An ensemble of trees: a booster of LightGBM, or stored trees."""

    def predict(self, x: Floats, *, num_threads: int = 0) -> Floats:
        """The prediction for each row of (R, F); (R,)."""
        ...

    def model_to_string(self) -> str:
        """The ensemble in LightGBM's text format."""
        ...


@dataclass(frozen=True, slots=True)
class Tree:
    """One tree with L leaves and L - 1 splits. Children are numbers of splits, or ~leaf (below 0) for leaves."""

    values: Sequence[float]
    feature: Sequence[int]
    threshold: Sequence[float]
    decision: Sequence[int]
    left: Sequence[int]
    right: Sequence[int]


@dataclass(frozen=True)  # without slots: arrays and the booster are made when they are needed
class StoredTrees:
    """Checked trees of so many `features`. `averaged` = a random forest."""

    trees: Sequence[Tree]
    features: int
    averaged: bool

    def model_to_string(self) -> str:
        """The text from which LightGBM reads the same trees."""
        return _written(self.trees, self.features, averaged=self.averaged)

    def predict(self, x: Floats, *, num_threads: int = 0) -> Floats:
        """The sum or the mean over the trees for rows (R, F), bit by bit as LightGBM has it; (R,)."""
        if "lightgbm" in sys.modules or len(x) * len(self.trees) > MOST_WALKED:
            return np.asarray(self.booster.predict(x, num_threads=num_threads))
        return self.walked(x)

    @cached_property
    def booster(self) -> lightgbm.Booster:
        """The same trees in LightGBM."""
        import lightgbm

        return lightgbm.Booster(model_str=self.model_to_string())

    def walked(self, x: Floats) -> Floats:
        """`predict` without LightGBM: all rows go down all trees together, a level at a time."""
        walk = self._walk
        unknown, near = np.isnan(x), np.where(np.abs(x) > NOTHING, x, 0.0)  # nan is not larger either
        tree, row = np.arange(len(self.trees))[:, None], np.arange(len(x))[None]
        node = np.where(walk.splits[:, None] > 0, 0, -1) + np.zeros((1, len(x)), dtype=np.int64)
        while (node >= 0).any():
            at = np.maximum(node, 0)
            column = walk.feature[tree, at]
            value = near[row, column]
            missing = np.where(walk.of_nan[tree, at], unknown[row, column], walk.of_zero[tree, at] & (value == 0))
            goes_left = np.where(missing, walk.unknown_left[tree, at], value <= walk.threshold[tree, at])
            node = np.where(node < 0, node, np.where(goes_left, walk.left[tree, at], walk.right[tree, at]))
        total = np.zeros(len(x))
        for values in walk.values[tree, ~node]:  # one after the other, as LightGBM adds them
            total += values
        return total / len(self.trees) if self.averaged else total

    @cached_property
    def _walk(self) -> _Walk:
        return _Walk.of(self.trees)


@dataclass(frozen=True, slots=True)
class _Walk:
    """T trees of up to S splits and L leaves as arrays, (T, S) and (T, L); `splits` (T,) says how many each has."""

    splits: Ints
    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    unknown_left: Bools
    of_nan: Bools
    of_zero: Bools
    values: Floats

    @classmethod
    def of(cls, trees: Sequence[Tree]) -> _Walk:
        splits = np.array([len(tree.feature) for tree in trees], dtype=np.int64)
        most = max(int(splits.max()), 1)

        def whole(rows: Sequence[Sequence[int]]) -> Ints:
            return np.array([[*row, *[0] * (most - len(row))] for row in rows], dtype=np.int64)

        decision = whole([tree.decision for tree in trees])
        threshold = [[*tree.threshold, *[0.0] * (most - len(tree.threshold))] for tree in trees]
        values = [[*tree.values, *[0.0] * (most + 1 - len(tree.values))] for tree in trees]
        return cls(
            splits,
            whole([tree.feature for tree in trees]),
            np.array(threshold),
            whole([tree.left for tree in trees]),
            whole([tree.right for tree in trees]),
            (decision & 2) > 0,
            decision >> 2 == _UNKNOWN_IS_NAN,
            decision >> 2 == _UNKNOWN_IS_ZERO,
            np.array(values),
        )


def _written(trees: Sequence[Tree], features: int, *, averaged: bool) -> str:
    names = " ".join(f"Column_{number}" for number in range(features))
    head = ["tree", *(f"{name}={value}" for name, value in FIXED.items())]
    head += ["label_index=0", f"max_feature_idx={features - 1}", *(["average_output"] if averaged else [])]
    head += [f"feature_names={names}", f"feature_infos={' '.join(['none'] * features)}"]
    whole = "".join(_text_of(tree, number) for number, tree in enumerate(trees))
    return "\n".join(head) + f"\n\n{whole}{END}\n\npandas_categorical:null\n"


def _text_of(tree: Tree, number: int) -> str:
    """The tree in LightGBM's format; 17 digits keep every float exact."""
    lines = [f"Tree={number}", f"num_leaves={len(tree.values)}", "num_cat=0"]
    if tree.feature:
        splits = zip(SPLITS, (tree.feature, tree.threshold, tree.decision, tree.left, tree.right), strict=True)
        lines += [f"{name}={' '.join(map(_digits, values))}" for name, values in splits]
    lines += [f"leaf_value={' '.join(map(_digits, tree.values))}", "is_linear=0", "shrinkage=1"]
    return "\n".join(lines) + "\n\n\n"


def _digits(value: float) -> str:
    return f"{value:.17g}"
