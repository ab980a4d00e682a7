"""Regression trees as arrays: the one evaluator of trained boosters, without the library that trained them.

trees.c scores many rows at once; it is built with the wheel (pyproject.toml). Where there was no compiler, and for
trees of more than 64 leaves, numpy walks all rows down all trees, a level at a time.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from models.arrays import Bools, Floats, Ints

if TYPE_CHECKING:
    import lightgbm

log = logging.getLogger(__name__)
LEAF = -1  # instead of a split's feature
NOTHING = float(np.float32(1e-35))  # values up to this are zero to LightGBM: kZeroThreshold, include/LightGBM/meta.h
BITS, MOST_WORDS, MOST_RANKS = 16, 4, 32_000  # of trees.c: leaves of a word, words of a tree, thresholds of a feature
MOST_NODES = 5_000_000  # of an artifact: 400 trees of 63 leaves have 50,000
_DUMPED_INFINITY = 1e300  # how `dump_model` writes it: AvoidInf, include/LightGBM/utils/common.h
_FIELDS = ("feature", "threshold", "right", "unknown_left", "value")


@dataclass(frozen=True)  # without slots: the extremes are computed when they are first asked for
class TreeEnsembles:
    """T trees of E ensembles on so many `features`, in M nodes; those of a tree stand in preorder.

    Node n compares feature `feature[n]` with `threshold[n]`: up to it a row goes to node n + 1, above it to node
    `right[n]`, and where the feature is unknown to n + 1 if `unknown_left[n]`; all (M,). A leaf has the feature LEAF
    and says `value[n]`. `first` (T + 1,) is where each tree begins, `ends` (E,) the number of the first tree after each
    ensemble. ValueError where that is no tree: each node but the first has one parent, which stands before it, so that
    every way ends at a leaf.
    """

    features: int
    first: Ints
    ends: Ints
    feature: NDArray[np.int32]
    threshold: Floats
    right: NDArray[np.int32]
    unknown_left: Bools
    value: Floats

    def __post_init__(self) -> None:
        nodes = len(self.feature)
        if any(len(getattr(self, name)) != nodes for name in _FIELDS) or not 0 < nodes <= MOST_NODES:
            raise ValueError("the arrays of trees do not fit together")
        starts_well = len(self.first) > 1 and self.first[0] == 0 and self.first[-1] == nodes
        if not starts_well or (np.diff(self.first) < 1).any():
            raise ValueError("trees do not begin one after the other")
        if not len(self.ends) or self.ends[-1] != len(self.first) - 1 or (np.diff(self.ends, prepend=0) < 0).any():
            raise ValueError("ensembles do not end one after the other")
        splits = np.flatnonzero(self.feature != LEAF)
        if ((self.feature[splits] < 0) | (self.feature[splits] >= self.features)).any():
            raise ValueError("a split names a feature that is not there")
        if np.isnan(self.threshold).any() or not np.isfinite(self.value).all():
            raise ValueError("a threshold or a leaf is no number")
        tree = np.searchsorted(self.first, splits, side="right") - 1
        right = self.right[splits].astype(np.int64)
        if ((right <= splits + 1) | (right >= self.first[tree + 1])).any():
            raise ValueError("a split leads out of its tree or back")
        parents = np.bincount(np.concatenate([splits + 1, right]), minlength=nodes)
        expected = np.ones(nodes, dtype=np.int64)
        expected[self.first[:-1]] = 0
        if not np.array_equal(parents, expected):
            raise ValueError("a node has no parent, or several")

    @classmethod
    def of(cls, boosters: Sequence[lightgbm.Booster], features: int) -> TreeEnsembles:
        """The trees of trained boosters; ValueError where one has other than plain numeric splits."""
        columns: dict[str, list[Any]] = {name: [] for name in _FIELDS}
        first, ends = [0], []
        for booster in boosters:
            for one in booster.dump_model()["tree_info"]:
                _append(columns, one["tree_structure"])
                first.append(len(columns["feature"]))
            ends.append(len(first) - 1)
        return cls(features, np.array(first), np.array(ends), *_arrays(columns))

    @classmethod
    def from_json(cls, value: Mapping[str, Any], features: int) -> TreeEnsembles:
        """What `to_json` wrote; ValueError, TypeError, KeyError or OverflowError where it is damaged."""
        if int(value["features"]) != features:
            raise ValueError("trees have another number of features than the model")
        if any(len(value[name]) > MOST_NODES for name in (*_FIELDS, "first", "ends")):
            raise ValueError(f"trees have more than {MOST_NODES} nodes")
        first, ends = (_whole(value[name]) for name in ("first", "ends"))
        columns = {name: value[name] for name in _FIELDS}
        columns["threshold"] = [np.inf if one is None else one for one in columns["threshold"]]
        return cls(features, first, ends, *_arrays(columns))

    def to_json(self) -> dict[str, Any]:
        """As lists of numbers, which keep every bit in JSON; a threshold that all known values pass is None."""
        lists = {name: getattr(self, name).tolist() for name in ("first", "ends", *_FIELDS)}
        lists["threshold"] = [None if one == np.inf else one for one in lists["threshold"]]
        return {"features": self.features, **lists}

    def __call__(self, x: Floats) -> Floats:
        """The prediction of each ensemble, the sum over its trees, for rows (R, F), nan = unknown; (E, R).

        Bit by bit what LightGBM says. ValueError where rows have another number of features.
        """
        if x.ndim != 2 or x.shape[1] != self.features:
            raise ValueError(f"rows of {x.shape[1:]} features, not {self.features}")
        ranked = self._ranked
        if ranked is None:
            return self._walked(x)
        given, sums = np.ascontiguousarray(x, dtype=np.float64), np.empty((len(self.ends), len(x)))
        if ranked.score(given, sums):
            raise MemoryError
        return sums

    def bounds(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """At least and at most what each ensemble says of any row between `low` and `high` (B, F); (E, B) each.

        Where one of the edges is nan, a feature may be anything, unknown too. Every tree is bounded by itself, so that
        the sums may be wider than what any row reaches, and never narrower.
        """
        if low.shape != high.shape or low.ndim != 2 or low.shape[1] != self.features:
            raise ValueError(f"boxes of {low.shape} and {high.shape} for {self.features} features")
        low, high = (np.where(np.abs(edge) <= NOTHING, 0.0, edge) for edge in (low, high))
        least = np.repeat(self.value[:, None], len(low), axis=1)
        most = least.copy()
        for node in np.flatnonzero(self.feature != LEAF)[::-1].tolist():  # each knows what its children may say
            edges = (low[:, self.feature[node]], high[:, self.feature[node]])
            never_right = np.logical_and(*(edge <= self.threshold[node] for edge in edges))
            never_left = np.logical_and(*(edge > self.threshold[node] for edge in edges))
            for found, pick in ((least, np.minimum), (most, np.maximum)):
                left, right = found[node + 1], found[self.right[node]]
                found[node] = np.where(never_right, left, np.where(never_left, right, pick(left, right)))
        roots = self.first[:-1]
        begins = list(pairwise((0, *self.ends.tolist())))
        down, up = (np.stack([found[roots[begin:end]].sum(axis=0) for begin, end in begins]) for found in (least, most))
        return down, up

    @cached_property
    def extremes(self) -> tuple[Floats, Floats]:
        """At least and at most what each ensemble says of any row at all; (E,) each."""
        anything = np.full((1, self.features), np.nan)
        least, most = self.bounds(anything, anything)
        return least[:, 0], most[:, 0]

    @cached_property
    def _ranked(self) -> _Ranked | None:
        return _Ranked.of(self)

    def _walked(self, x: Floats) -> Floats:
        """`__call__` in Python."""
        known = np.where(np.abs(x) > NOTHING, x, np.where(np.isnan(x), np.nan, 0.0))
        row = np.arange(len(x))[None]
        node = np.repeat(self.first[:-1, None], len(x), axis=1)
        while (moving := self.feature[node] != LEAF).any():
            found = known[row, np.where(moving, self.feature[node], 0)] if self.features else node * 0.0
            left = np.where(np.isnan(found), self.unknown_left[node], found <= self.threshold[node])
            node = np.where(moving, np.where(left, node + 1, self.right[node]), node)
        sums = np.zeros((len(self.ends), len(x)))
        for ensemble, (begin, end) in enumerate(pairwise((0, *self.ends.tolist()))):
            for values in self.value[node[begin:end]]:  # one after the other, as LightGBM adds them
                sums[ensemble] += values
        return sums


@dataclass(frozen=True, slots=True)
class _Ranked:
    """Trees as trees.c takes them: for each word of up to BITS leaves the splits that change it, each with its feature,
    the rank of its threshold among those of the feature, and the leaves that remain where a row does not pass it."""

    function: Any
    sizes: tuple[int, int]
    arrays: tuple[NDArray[Any], ...]

    @classmethod
    def of(cls, trees: TreeEnsembles) -> _Ranked | None:
        """None without a library, or where a tree has more leaves, or a feature more thresholds, than it can count."""
        function, is_leaf = _library(), trees.feature == LEAF
        before = np.concatenate([[0], np.cumsum(is_leaf)])  # leaves before each node
        first_leaf, splits = before[trees.first], np.flatnonzero(~is_leaf)
        leaves, feature = np.diff(first_leaf), trees.feature[splits]
        thresholds = [np.unique(trees.threshold[splits[feature == at]]) for at in range(trees.features)]
        ranks = max(map(len, thresholds), default=0)
        if function is None or leaves.max() > BITS * MOST_WORDS or ranks > MOST_RANKS:
            return None
        rank = np.zeros(len(splits), dtype=np.int16)
        for number, of_feature in enumerate(thresholds):
            rank[feature == number] = 1 + np.searchsorted(of_feature, trees.threshold[splits[feature == number]])
        # ranks stand twice: in the second set of columns an unknown value passes every comparison
        column = feature + np.where(trees.unknown_left[splits], trees.features, 0).astype(np.int32)
        tree = np.searchsorted(trees.first, splits, side="right") - 1
        begin, end = (before[nodes] - first_leaf[tree] for nodes in (splits + 1, trees.right[splits]))
        first_word = np.concatenate([[0], np.cumsum(-(-leaves // BITS))])
        words: list[Ints] = []
        at: list[Ints] = []
        kept: list[Ints] = []
        for number in range(MOST_WORDS):  # the leaves of a left branch that are in this word of its tree
            low, high = (np.clip(edge - BITS * number, 0, BITS) for edge in (begin, end))
            some = np.flatnonzero(high > low)
            words.append(first_word[tree[some]] + number)
            at.append(some)
            kept.append(~((1 << high[some]) - (1 << low[some])))
        order = np.argsort(np.concatenate(words), kind="stable")
        split, count = np.concatenate(at)[order], np.bincount(np.concatenate(words), minlength=int(first_word[-1]))
        arrays = (
            trees.ends, first_word, np.concatenate([[0], np.cumsum(count)]), first_leaf, column[split], rank[split],
            np.concatenate(kept)[order].astype(np.int16), trees.value[is_leaf],
            np.concatenate([[0], np.cumsum(list(map(len, thresholds)))]).astype(np.int64),
            np.concatenate([np.empty(0), *thresholds]),
        )  # fmt: skip
        return cls(function, (trees.features, len(trees.ends)), tuple(np.ascontiguousarray(one) for one in arrays))

    def score(self, x: Floats, sums: Floats) -> int:
        """Write sums (E, R) for rows (R, F), without the interpreter's lock; not 0 where memory was lacking."""
        return int(self.function(len(x), *self.sizes, *(one.ctypes.data for one in (*self.arrays, x, sums))))


def _append(columns: dict[str, list[Any]], root: Mapping[str, Any]) -> None:
    """Add the nodes of a tree of `Booster.dump_model`, in preorder."""
    waiting: list[tuple[Mapping[str, Any], int | None]] = [(root, None)]
    while waiting:
        node, parent = waiting.pop()
        if parent is not None:
            columns["right"][parent] = len(columns["feature"])
        is_leaf = "split_feature" not in node
        here = (LEAF, 0.0, 0, False, float(node["leaf_value"])) if is_leaf else _split(node)
        at = len(columns["feature"])
        for name, value in zip(_FIELDS, here, strict=True):
            columns[name].append(value)
        if not is_leaf:
            waiting += [(node["right_child"], at), (node["left_child"], None)]


def _split(node: Mapping[str, Any]) -> tuple[int, float, int, bool, float]:
    """The fields of a split; its right child is not known yet."""
    missing = node["missing_type"]
    if node["decision_type"] != "<=" or missing not in {"None", "NaN"}:
        raise ValueError("trees have other splits than `value <= threshold`")
    threshold = float(node["threshold"])
    threshold = np.inf if threshold >= _DUMPED_INFINITY else threshold
    # without a way of their own, unknown values count as zero
    unknown_left = bool(node["default_left"]) if missing == "NaN" else threshold >= 0
    return int(node["split_feature"]), threshold, 0, unknown_left, 0.0


def _arrays(columns: Mapping[str, Sequence[Any]]) -> tuple[Any, ...]:
    return (
        _small(columns["feature"]),
        _numbers(columns["threshold"]),
        _small(columns["right"]),
        _flags(columns["unknown_left"]),
        _numbers(columns["value"]),
    )


def _whole(values: Sequence[Any]) -> Ints:
    found = np.array(values)
    if found.ndim != 1 or found.dtype != np.int64:
        raise ValueError("positions of trees are no whole numbers")
    return found


def _small(values: Sequence[Any]) -> NDArray[np.int32]:
    found = _whole(values)
    if (found != found.astype(np.int32)).any():
        raise ValueError("positions of trees are too large")
    return found.astype(np.int32)


def _numbers(values: Sequence[Any]) -> Floats:
    found = np.array(values, dtype=np.float64)
    if found.ndim != 1:
        raise ValueError("numbers of trees are no list")
    return found


def _flags(values: Sequence[Any]) -> Bools:
    found = np.array(values)
    if found.ndim != 1 or found.dtype != np.bool_:
        raise ValueError("ways of unknown values are neither true nor false")
    return found


@cache
def _library() -> Any:
    """The compiled function, None where there is none."""
    for path in sorted(Path(__file__).parent.glob("_trees*.so")):
        try:
            found = ctypes.CDLL(str(path)).score_trees
        except (OSError, AttributeError) as error:
            log.warning("predictions are slower: %s cannot be used: %s", path.name, error)
            continue
        found.argtypes = [*[ctypes.c_int64] * 3, *[ctypes.c_void_p] * 12]
        found.restype = ctypes.c_int
        return found
    return None
