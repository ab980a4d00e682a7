"""How the learned residual does on what it has not seen: left-out pairs and left-out workloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.features.examples import Examples
from models.features.folds import FOLDS, MOST_FOLDS, Fold, pair_folds, workload_folds
from models.features.repeats import GroupedExamples
from models.learning.boosting import SEEDS_OF_MANY
from models.learning.effects import EffectTerms, Regularisation
from models.learning.residual_model import BASE_LEARNERS, LEAST_ROWS, StackingWeights, fit_base_learners, stacked

Say = Callable[[float], None]

# (up to so many rows, folds of pairs, folds of workloads): with many rows each fold is large enough by itself
FOLDS_BY_ROWS = ((500, FOLDS, MOST_FOLDS), (2000, FOLDS, 8), (10_000, 4, 6), (10**12, 3, 4))
# As many as answer on many rows, where one alone made the forest look better than it is: judged by one, a quarter of
# the forest was kept and new workloads of Pitot (24,000 rows learned from) had a MAE of 0.0486; judged by two, an
# eighth and 0.0483, which is what boosters alone have. On few rows fewer: what is judged is not better than answers.
BOOSTERS = SEEDS_OF_MANY
MOST_TRAINED, MOST_TESTED = 12_000, 5_000  # rows of a fold: more only sharpens what the final fit sharpens anyway


@dataclass(frozen=True, slots=True)
class OutOfFoldPredictions:
    """J judgements under one protocol. `row` (J,) of the grouped examples; `parts` (J, 3) what each member said that
    had not seen the row's fold, `effects` (J,) what effects did; `known` (J,) whether all workloads were in training;
    `fold` (J,)."""

    protocol: str
    row: Ints
    parts: Floats
    effects: Floats
    known: Bools
    fold: Ints
    folds: tuple[Fold, ...]

    def correction(self, known: StackingWeights, unknown: StackingWeights) -> Floats:
        """What the blends add to the log of the base; (J,)."""
        return np.where(self.known, *(stacked(self.parts, self.effects, blend) for blend in (known, unknown)))


def folds_for(examples: Examples, protocol: str, seed: int) -> list[Fold]:
    """Folds of grouped rows, as many as the number of rows asks for."""
    _, pairs, workloads = next(limits for limits in FOLDS_BY_ROWS if len(examples) <= limits[0])
    if protocol == "unseen_pair":
        return pair_folds(examples, seed, pairs)
    return workload_folds(examples, workloads)


def cross_val_predict(rows: GroupedExamples, protocol: str, *, seed: int, say: Say) -> OutOfFoldPredictions:
    """Fit the members on every fold's training rows and ask them about the rest."""
    examples = rows.examples
    random = np.random.default_rng(seed)
    folds = [
        (_sample(train, MOST_TRAINED, random), _sample(test, MOST_TESTED, random))
        for train, test in folds_for(examples, protocol, seed)
        if len(train) >= LEAST_ROWS
    ]
    parts, known = [np.zeros((0, len(BASE_LEARNERS)))], [np.zeros(0, dtype=bool)]
    for number, (train, test) in enumerate(folds):
        say(number / len(folds))
        members = fit_base_learners(rows, train, seed=seed, boosters=BOOSTERS)
        parts.append(members.predict(examples.x[test]))
        known.append(_known(examples, train, test))
    row = np.concatenate([np.zeros(0, dtype=np.int64), *(test for _, test in folds)])
    fold = np.repeat(np.arange(len(folds)), [len(test) for _, test in folds])
    return OutOfFoldPredictions(
        protocol, row, np.concatenate(parts), np.zeros(len(row)), np.concatenate(known), fold, tuple(folds)
    )


def _sample(rows: Ints, most: int, random: np.random.Generator) -> Ints:
    return rows if len(rows) <= most else np.sort(random.choice(rows, most, replace=False))


def _known(examples: Examples, train: Ints, test: Ints) -> Bools:
    """Which judged rows have only workloads that the trained rows have; (J,)."""
    seen = {name for pair in {examples.pair[row] for row in train} for name in pair.split("+")}
    pairs = {pair: seen.issuperset(pair.split("+")) for pair in {examples.pair[row] for row in test}}
    return np.array([pairs[examples.pair[row]] for row in test], dtype=bool)


def with_effects(
    predictions: OutOfFoldPredictions, terms: EffectTerms, residual: Floats, strengths: Sequence[Regularisation]
) -> OutOfFoldPredictions:
    """The same judgements with main effects and factors from each fold's training rows, of each fold's strength;
    `residual` (G,) as they learn from it, nan where it was not judged."""
    effects = np.zeros(len(predictions.row))
    for number, ((train, rows), strength) in enumerate(zip(predictions.folds, strengths, strict=True)):
        usable = train[np.isfinite(residual[train])]
        if len(usable) and strength != Regularisation():
            effects[predictions.fold == number] = terms.predict_residual(residual, strength, usable)[rows]
    return replace(predictions, effects=effects)


def expanded(predictions: OutOfFoldPredictions, group: Ints) -> tuple[Ints, Ints]:
    """Judgements of grouped rows as judgements of every repeat: (K,) rows of the examples, and (K,) judgements."""
    order = np.argsort(group, kind="stable")
    begin = np.searchsorted(group[order], np.arange(group.max(initial=-1) + 2))
    count = (begin[1:] - begin[:-1])[predictions.row]
    start = np.repeat(begin[:-1][predictions.row] - np.concatenate([[0], np.cumsum(count)[:-1]]), count)
    return order[start + np.arange(count.sum())], np.repeat(np.arange(len(predictions.row)), count)
