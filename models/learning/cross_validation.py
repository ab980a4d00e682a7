"""How the learned residual does on what it has not seen: left-out pairs and left-out workloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.features.examples import Examples
from models.features.folds import FOLDS, MOST_FOLDS, Fold, pair_folds, workload_folds
from models.features.repeats import Grouped
from models.learning.boosting import SEEDS_OF_MANY
from models.learning.effects import Strength, Terms
from models.learning.residual_model import LEAST_ROWS, MEMBERS, StackingWeights, blended, fit_members

Say = Callable[[float], None]

# (up to so many rows, folds of pairs, folds of workloads): with many rows each fold is large enough by itself
FOLDS_BY_ROWS = ((500, FOLDS, MOST_FOLDS), (2000, FOLDS, 8), (10_000, 4, 6), (10**12, 3, 4))
# As many as answer on many rows, where one alone made the forest look better than it is: judged by one, a quarter of
# the forest was kept and new workloads of Pitot (24,000 rows learned from) had a MAE of 0.0486; judged by two, an
# eighth and 0.0483, which is what boosters alone have. On few rows fewer: what is judged is not better than answers.
BOOSTERS = SEEDS_OF_MANY
MOST_TRAINED, MOST_JUDGED = 12_000, 5_000  # rows of a fold: more only sharpens what the final fit sharpens anyway


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
        return np.where(self.known, *(blended(self.parts, self.effects, blend) for blend in (known, unknown)))


def folds_for(examples: Examples, protocol: str, seed: int) -> list[Fold]:
    """Folds of grouped rows, as many as the number of rows asks for."""
    _, pairs, workloads = next(limits for limits in FOLDS_BY_ROWS if len(examples) <= limits[0])
    if protocol == "unseen_pair":
        return pair_folds(examples, seed, pairs)
    return workload_folds(examples, workloads)


def judge(rows: Grouped, protocol: str, *, seed: int, say: Say) -> OutOfFoldPredictions:
    """Fit the members on every fold's training rows and ask them about the rest."""
    examples = rows.examples
    random = np.random.default_rng(seed)
    folds = [
        (_sample(trained, MOST_TRAINED, random), _sample(judged, MOST_JUDGED, random))
        for trained, judged in folds_for(examples, protocol, seed)
        if len(trained) >= LEAST_ROWS
    ]
    parts, known = [np.zeros((0, len(MEMBERS)))], [np.zeros(0, dtype=bool)]
    for number, (trained, judged) in enumerate(folds):
        say(number / len(folds))
        members = fit_members(rows, trained, seed=seed, boosters=BOOSTERS)
        parts.append(members.predict(examples.x[judged]))
        known.append(_known(examples, trained, judged))
    row = np.concatenate([np.zeros(0, dtype=np.int64), *(judged for _, judged in folds)])
    fold = np.repeat(np.arange(len(folds)), [len(judged) for _, judged in folds])
    return OutOfFoldPredictions(
        protocol, row, np.concatenate(parts), np.zeros(len(row)), np.concatenate(known), fold, tuple(folds)
    )


def _sample(rows: Ints, most: int, random: np.random.Generator) -> Ints:
    return rows if len(rows) <= most else np.sort(random.choice(rows, most, replace=False))


def _known(examples: Examples, trained: Ints, judged: Ints) -> Bools:
    """Which judged rows have only workloads that the trained rows have; (J,)."""
    seen = {name for pair in {examples.pair[row] for row in trained} for name in pair.split("+")}
    pairs = {pair: seen.issuperset(pair.split("+")) for pair in {examples.pair[row] for row in judged}}
    return np.array([pairs[examples.pair[row]] for row in judged], dtype=bool)


def with_effects(
    judged: OutOfFoldPredictions, terms: Terms, residual: Floats, strengths: Sequence[Strength]
) -> OutOfFoldPredictions:
    """The same judgements with main effects and factors from each fold's training rows, of each fold's strength;
    `residual` (G,) as they learn from it, nan where it was not judged."""
    effects = np.zeros(len(judged.row))
    for number, ((trained, rows), strength) in enumerate(zip(judged.folds, strengths, strict=True)):
        usable = trained[np.isfinite(residual[trained])]
        if len(usable) and strength != Strength():
            effects[judged.fold == number] = terms.said(residual, strength, usable)[rows]
    return replace(judged, effects=effects)


def expanded(judged: OutOfFoldPredictions, group: Ints) -> tuple[Ints, Ints]:
    """Judgements of grouped rows as judgements of every repeat: (K,) rows of the examples, and (K,) judgements."""
    order = np.argsort(group, kind="stable")
    begin = np.searchsorted(group[order], np.arange(group.max(initial=-1) + 2))
    count = (begin[1:] - begin[:-1])[judged.row]
    start = np.repeat(begin[:-1][judged.row] - np.concatenate([[0], np.cumsum(count)[:-1]]), count)
    return order[start + np.arange(count.sum())], np.repeat(np.arange(len(judged.row)), count)
