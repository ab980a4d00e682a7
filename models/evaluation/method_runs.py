"""Runs methods over the folds of a protocol and collects their predictions of the test rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.arrays import Bools, Ints
from models.evaluation.methods import IntervalPrediction, Method
from models.evaluation.progress import EvaluationProgress
from models.evaluation.protocols import ProtocolFold
from models.evaluation.row_groups import limiting, repeats
from models.features.examples import Examples


@dataclass(frozen=True, slots=True)
class FoldPredictions:
    """J predictions of test rows: `row` (J,) indexes the examples, `rows` are they without features, `guesses` by
    method; `unseen_victim` (J,) where the fold left the victim's workload out; `resource` and `repeat` (J,) as in
    labels."""

    row: Ints
    rows: Examples
    guesses: Mapping[str, IntervalPrediction]
    unseen_victim: Bools
    resource: tuple[str, ...]
    repeat: Ints
    folds: int

    def __len__(self) -> int:
        return len(self.row)


def run_methods(
    examples: Examples,
    folds: Sequence[ProtocolFold],
    methods: Mapping[str, Method],
    clock: EvaluationProgress,
    where: str,
) -> FoldPredictions:
    """Fit every method on each fold's training rows and predict its test rows; all methods share the folds."""
    predictions: dict[str, list[IntervalPrediction]] = {name: [] for name in methods}
    for number, fold in enumerate(folds):
        train, test = examples.take(fold.train), examples.take(fold.test)
        for name, method in methods.items():
            with clock.doing(name, f"{where}: fold {number + 1} of {len(folds)}"):
                predictions[name].append(method(train, test))
    row = np.concatenate([fold.test for fold in folds])
    resource = limiting(examples)
    # features of all predictions would be the largest thing in memory, and are not needed any more
    rows = replace(examples, x=np.zeros((len(examples), 0))).take(row)
    unseen = [examples.victim[at] in fold.left_out for fold in folds for at in fold.test]
    return FoldPredictions(
        row=row,
        rows=rows,
        guesses={name: joined(guesses) for name, guesses in predictions.items()},
        unseen_victim=np.array(unseen, dtype=bool),
        resource=tuple(resource[at] for at in row),
        repeat=repeats(examples)[row],
        folds=len(folds),
    )


def joined(guesses: Sequence[IntervalPrediction]) -> IntervalPrediction:
    """The predictions of several folds joined into one."""
    lower = [guess.lower for guess in guesses if guess.lower is not None]
    upper = [one.upper for one in guesses if one.upper is not None]
    expected = np.concatenate([one.expected for one in guesses])
    if len(lower) < len(guesses) or len(upper) < len(guesses):
        return IntervalPrediction(expected)
    return IntervalPrediction(expected, np.concatenate(lower), np.concatenate(upper))
