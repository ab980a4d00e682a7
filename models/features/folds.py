"""Cross-validation folds by pair, by workload and by platform; by row where nothing else leaves anything known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from models.arrays import Ints
from models.features.examples import Examples

Fold = tuple[Ints, Ints]  # training rows, test rows

FOLDS = 5
MOST_FOLDS = 12  # leave-one-workload-out up to here, groups of workloads beyond


def pair_folds(examples: Examples, seed: int = 0, folds: int = FOLDS) -> list[Fold]:
    """Folds in which all rows of one set of workloads, in all repeats and settings, are on the same side."""
    pairs, which = np.unique(np.array(examples.pair, dtype=np.str_), return_inverse=True)
    fold_of = np.empty(len(pairs), dtype=np.int64)
    fold_of[np.random.default_rng(seed).permutation(len(pairs))] = np.arange(len(pairs)) % folds
    return list(_by_number(fold_of[which], folds))


def workload_folds(examples: Examples, most: int = MOST_FOLDS) -> list[Fold]:
    """Folds that leave out every run with one workload; with more than `most` workloads, with one group of them."""
    workloads = examples.workloads
    pairs, which = np.unique(np.array(examples.pair, dtype=np.str_), return_inverse=True)
    members = [frozenset(pair.split("+")) for pair in pairs]
    folds: list[Fold] = []
    for start in range(min(most, len(workloads))):
        group = frozenset(workloads[start::most])
        inside = np.array([not group.isdisjoint(names) for names in members], dtype=bool)[which]
        if inside.any() and not inside.all():
            folds.append((np.flatnonzero(~inside), np.flatnonzero(inside)))
    return folds


def platform_folds(examples: Examples, most: int = MOST_FOLDS) -> list[Fold]:
    """Folds that leave out all runs on one platform; with more than `most` platforms, on one group of them."""
    names, which = np.unique(np.array(examples.platform, dtype=np.str_), return_inverse=True)
    return list(_by_number(which % most, min(most, len(names)))) if len(names) > 1 else []


def row_folds(examples: Examples, seed: int = 0, folds: int = FOLDS) -> list[Fold]:
    """Folds of single rows: a warning of what leaks, and all there is where every pair has a workload of its own."""
    number = np.random.default_rng(seed).permutation(len(examples)) % folds
    return list(_by_number(number, folds))


def _by_number(number: Ints, folds: int) -> Iterator[Fold]:
    for fold in range(folds):
        test = np.flatnonzero(number == fold)
        train = np.flatnonzero(number != fold)
        if len(test) and len(train):
            yield train, test
