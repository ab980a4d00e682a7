"""A cross-fitted predictor: a model only predicts scenes of which no pair of workloads was in its training."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from models.data.dataset import RATIO_OUTCOMES, Dataset, load_dataset
from models.data.scene import SceneBatch
from models.learning.learned_predictor import LearnedPredictor
from models.prediction import TARGETS, BandArrays, InterferencePrediction
from models.training import fit_predictor
from profiler.observed import Colocation

FOLDS = 10

Pair = tuple[str, str]
Set = tuple[str, ...]


class CrossFitted:
    """A Predictor made of one model per fold; a scene is answered by the one whose training lacked every run in which
    any two of its workloads met, in whatever company, on whatever CPUs."""

    version = "cross-fitted"

    def __init__(self, models: Sequence[LearnedPredictor], fold: dict[Set, int], origin: str) -> None:
        self._models = models
        self._fold = fold
        self.origin = origin

    @property
    def metrics(self) -> Sequence[str]:
        """The metrics of the first model; all of them were trained on one dataset."""
        return self._models[0].metrics

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        """Each scene by the model that did not see its pairs; ValueError for a set that no model may answer about."""
        fold = np.array([self._fold_of(scenes, at) for at in range(len(scenes))], dtype=np.int64)
        shape = scenes.present.shape
        bands = [BandArrays(np.ones(shape), np.ones(shape), np.ones(shape)) for _ in range(3)]
        outside = np.zeros(shape, dtype=bool)
        for number in np.unique(fold).tolist():
            rows = np.flatnonzero(fold == number)
            prediction = self._models[number].predict(scenes.take(rows), targets)
            for band, told in zip(bands, (prediction.throughput, prediction.latency, prediction.jitter), strict=True):
                band.expected[rows], band.lower[rows], band.upper[rows] = told.expected, told.lower, told.upper
            outside[rows] = prediction.outside
        return InterferencePrediction(bands[0], bands[1], bands[2], outside)

    def _fold_of(self, scenes: SceneBatch, at: int) -> int:
        there = scenes.profile[at][scenes.present[at]]
        together = tuple(sorted(scenes.table.names[row] for row in there))
        if len(together) < 2:
            return 0
        if together not in self._fold:
            raise ValueError(f"no model may answer about {'+'.join(together)}: it was never measured")
        return self._fold[together]


def cross_fitted(path: Path, *, folds: int = FOLDS, say: Callable[[str], None] = lambda _: None) -> CrossFitted:
    """Train on a dataset as often as there are folds, and once more for the calibration.

    The calibration is one for all, so that widths do not differ between the models; it is out-of-fold by its making.
    """
    dataset = throughput_only(load_dataset(path))
    groups = folds_of({set_of(colocation) for colocation in dataset.colocations}, folds)
    jobs = [frozenset[Pair](), *(pairs for pairs, _ in groups)]
    # spawn: a forked child waits for ever for the OpenMP threads that LightGBM had in its parent
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        fitted = []
        for number, model in enumerate(pool.map(without, [path] * len(jobs), jobs)):
            say(f"{dataset.name}: model {number + 1} of {len(jobs)}")
            fitted.append(model)
    whole, *models = fitted
    fold = {together: number for number, (_, sets) in enumerate(groups) for together in sets}
    return CrossFitted(
        [
            replace(model, throughput=replace(model.throughput, calibration=whole.throughput.calibration))
            for model in models
        ],
        fold,
        dataset.origin,
    )


def without(path: Path, pairs: frozenset[Pair]) -> LearnedPredictor:
    """A predictor trained on a dataset without any run in which two of these workloads met."""
    dataset = throughput_only(load_dataset(path))
    kept = tuple(colocation for colocation in dataset.colocations if not pairs & pairs_of(set_of(colocation)))
    return fit_predictor([replace(dataset, colocations=kept)])


def folds_of(sets: Collection[Set], folds: int) -> list[tuple[frozenset[Pair], frozenset[Set]]]:
    """Divide sets into folds, each with the pairs that its training must lack: those of all its sets.

    The largest sets first, each to the fold that lacks fewest pairs with it; a pair to one that lacks it anyway.
    """
    ordered = sorted(sets)
    order = np.random.default_rng(0).permutation(len(ordered))
    lacking: list[set[Pair]] = [set() for _ in range(folds)]
    members: list[set[Set]] = [set() for _ in range(folds)]
    for together in sorted((ordered[at] for at in order), key=len, reverse=True):
        own = pairs_of(together)
        at = min(range(folds), key=lambda at: (len(together) == 2 and not own <= lacking[at], len(lacking[at] | own)))
        lacking[at] |= own
        members[at].add(together)
    return [(frozenset(one), frozenset(other)) for one, other in zip(lacking, members, strict=True)]


def pairs_of(together: Set) -> set[Pair]:
    """Every two of a set."""
    return {(one, other) for one, other in combinations(sorted(together), 2)}


def set_of(colocation: Colocation) -> Set:
    """The workloads of a run, sorted; each instance once though it may have several outcomes."""
    there = {outcome.instance.id: outcome.instance.workload or "" for outcome in colocation.outcomes}
    return tuple(sorted(there.values()))


def throughput_only(dataset: Dataset) -> Dataset:
    """The dataset without latencies, which no benchmark here asks for and which take half of the training."""
    return replace(
        dataset,
        colocations=tuple(
            replace(
                colocation,
                outcomes=tuple(outcome for outcome in colocation.outcomes if outcome.outcome in RATIO_OUTCOMES),
            )
            for colocation in dataset.colocations
        ),
    )
