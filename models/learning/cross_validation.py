"""Out-of-fold predictions of the residual model, by leaving out pairs, workloads, platforms or rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.features.examples import Examples
from models.features.folds import FOLDS, MOST_FOLDS, Fold, pair_folds, platform_folds, row_folds, workload_folds
from models.features.repeats import GroupedExamples
from models.learning.boosting import SEEDS_OF_MANY
from models.learning.effects import EffectTerms, Regularisation
from models.learning.residual_model import BASE_LEARNERS, LEAST_ROWS, StackingWeights, fit_base_learners, stacked

Say = Callable[[float], None]

# (up to so many rows, folds of pairs, folds of workloads and platforms): with many rows each fold is large enough
FOLDS_BY_ROWS = ((500, FOLDS, MOST_FOLDS), (2000, FOLDS, 8), (10_000, 4, 6), (10**12, 3, 4))
# As many boosters as the final model has on many rows. With one booster per fold the forest looked better than it is:
# on new workloads of Pitot (24,000 training rows) the forest got weight 1/4 and the MAE was 0.0486; with two it got 1/8
# and the MAE was 0.0483, the same as with boosters alone. On few rows the final model has more, so estimates are
# cautious.
BOOSTERS = SEEDS_OF_MANY
MOST_TRAINED, MOST_TESTED = 12_000, 5_000  # rows per fold; more rows cost time and hardly change the weights


@dataclass(frozen=True, slots=True)
class OutOfFoldPredictions:
    """J out-of-fold predictions under one protocol.

    `row` (J,) indexes the grouped examples. `parts` (J, 4) and `effects` (J,) are predictions by base learners and
    effects that were fitted without the row's fold. `known` (J,) says whether the platform and all workloads of the row
    were among the training rows. `fold` (J,) indexes `folds`.
    """

    protocol: str
    row: Ints
    parts: Floats
    effects: Floats
    known: Bools
    fold: Ints
    folds: tuple[Fold, ...]

    def correction(self, known: StackingWeights, unknown: StackingWeights) -> Floats:
        """The corrections to the log of the base ratio with these stacking weights; (J,)."""
        return np.where(self.known, *(stacked(self.parts, self.effects, blend) for blend in (known, unknown)))


def folds_for(examples: Examples, protocol: str, seed: int) -> list[Fold]:
    """Folds of grouped rows; their number depends on the number of rows (FOLDS_BY_ROWS)."""
    _, pairs, workloads = next(limits for limits in FOLDS_BY_ROWS if len(examples) <= limits[0])
    if protocol == "unseen_pair":
        return pair_folds(examples, seed, pairs)
    if protocol == "unseen_platform":
        return platform_folds(examples, workloads)
    if protocol == "random_row":
        return row_folds(examples, seed, pairs)
    return workload_folds(examples, workloads)


def cross_val_predict(
    rows: GroupedExamples,
    protocol: str,
    *,
    seed: int,
    say: Say,
    folds: Sequence[Fold] | None = None,
    direct: bool = True,
) -> OutOfFoldPredictions:
    """Fit the base learners on each fold's training rows and predict its test rows (as scikit-learn's function).

    `folds` are those of the protocol unless they are given; `direct` is as in `fit_base_learners`.
    """
    examples = rows.examples
    random = np.random.default_rng(seed)
    given = folds_for(examples, protocol, seed) if folds is None else folds
    folds = [
        (_sample(train, MOST_TRAINED, random), _sample(test, MOST_TESTED, random))
        for train, test in given
        if len(train) >= LEAST_ROWS
    ]
    parts, known = [np.zeros((0, len(BASE_LEARNERS)))], [np.zeros(0, dtype=bool)]
    for number, (train, test) in enumerate(folds):
        say(number / len(folds))
        members = fit_base_learners(rows, train, seed=seed, boosters=BOOSTERS, direct=direct)
        parts.append(members.predict(examples.x[test], examples.base[test]))
        known.append(_known(examples, train, test))
    row = np.concatenate([np.zeros(0, dtype=np.int64), *(test for _, test in folds)])
    fold = np.repeat(np.arange(len(folds)), [len(test) for _, test in folds])
    return OutOfFoldPredictions(
        protocol, row, np.concatenate(parts), np.zeros(len(row)), np.concatenate(known), fold, tuple(folds)
    )


def _sample(rows: Ints, most: int, random: np.random.Generator) -> Ints:
    return rows if len(rows) <= most else np.sort(random.choice(rows, most, replace=False))


def _known(examples: Examples, train: Ints, test: Ints) -> Bools:
    """Whether the platform and all workloads of a test row occur among the training rows; (J,)."""
    seen = {name for pair in {examples.pair[row] for row in train} for name in pair.split("+")}
    pairs = {pair: seen.issuperset(pair.split("+")) for pair in {examples.pair[row] for row in test}}
    platforms = {examples.platform[row] for row in train}
    return np.array([pairs[examples.pair[row]] and examples.platform[row] in platforms for row in test], dtype=bool)


def with_effects(
    predictions: OutOfFoldPredictions, terms: EffectTerms, residual: Floats, strengths: Sequence[Regularisation]
) -> OutOfFoldPredictions:
    """Add main effects and factors that were fitted on each fold's training rows with that fold's regularisation.

    `residual` (G,) is what the effects are fitted to; nan where there is no out-of-fold prediction.
    """
    effects = np.zeros(len(predictions.row))
    for number, ((train, rows), strength) in enumerate(zip(predictions.folds, strengths, strict=True)):
        usable = train[np.isfinite(residual[train])]
        if len(usable) and strength != Regularisation():
            effects[predictions.fold == number] = terms.predict_residual(residual, strength, usable)[rows]
    return replace(predictions, effects=effects)


def expanded(predictions: OutOfFoldPredictions, group: Ints) -> tuple[Ints, Ints]:
    """Spread predictions of grouped rows over their repeats: (K,) rows of the examples, (K,) indices of predictions."""
    order = np.argsort(group, kind="stable")
    begin = np.searchsorted(group[order], np.arange(group.max(initial=-1) + 2))
    count = (begin[1:] - begin[:-1])[predictions.row]
    start = np.repeat(begin[:-1][predictions.row] - np.concatenate([[0], np.cumsum(count)[:-1]]), count)
    return order[start + np.arange(count.sum())], np.repeat(np.arange(len(predictions.row)), count)
