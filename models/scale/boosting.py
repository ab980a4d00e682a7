"""Trains the final booster of each target on streamed rows. Cross-validation and effects are in `learning`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from models.arrays import Floats
from models.data.scene import ProfileTable
from models.features.feature_matrix import build_matrix
from models.features.solo_ratio import solo_ratio_for
from models.learning.boosting import booster_options
from models.learning.residual_model import LEAST_ROWS
from models.scale.feature_file import FeatureFile, MeasuredRows, RowSequence
from models.scale.first_pass import FirstPass
from models.scale.run_rows import read_rows
from models.scale.run_stream import read_run_batches
from models.scale.scenes import TOLD_BY, build_scenes, ratios

Progress = Callable[[str, float], None]
Trainer = Callable[[MeasuredRows, Mapping[str, Any], int], lightgbm.Booster]

CELLS_AT_ONCE = 2_000_000  # numbers in one chunk of features: 16 MB, a few times over while it is made
MOST_ROWS, LEAST_CHUNK = 32_768, 256


@dataclass(frozen=True, slots=True)
class FeatureChunk:
    """Measured rows of some runs: `x` (r, F) and `monotone` (F,) as in FeatureMatrix; `residual` by target (r,)
    log(ratio / base), nan = not measured."""

    x: Floats
    monotone: NDArray[np.int8]
    residual: Mapping[str, Floats]


def chunks(found: FirstPass, metrics: Sequence[str]) -> Iterator[FeatureChunk]:
    """The rows that `build_examples` makes of a dataset, in the same order, without a Python object for any of them."""
    if found.table is None:
        return
    dataset = found.dataset
    table = ProfileTable.build(dataset.profiles, dataset.platform_numbers)
    at_once = int(np.clip(CELLS_AT_ONCE // (3 * len(metrics) + 40), LEAST_CHUNK, MOST_ROWS))
    for piece in read_run_batches(found.table, at_once):
        rows = read_rows(piece, dataset.platforms)
        scene, slot = rows.run[rows.first], rows.slot
        scenes = build_scenes(rows, dataset.platforms, table)
        matrix = build_matrix(scenes, metrics)
        base = {"throughput": matrix.prior.throughput, "latency": matrix.prior.latency}
        residual = {}
        for target in TOLD_BY:
            grid = np.full(base[target].shape, np.nan)
            grid[scene, slot] = np.log(ratios(rows, target)) - np.log(base[target][scene, slot])
            grid += np.log(solo_ratio_for(scenes, target, dataset.meta))
            residual[target] = grid[matrix.scene, matrix.slot]
        measured = ~np.logical_and.reduce([np.isnan(one) for one in residual.values()])
        yield FeatureChunk(
            matrix.x[measured], matrix.monotone, {target: one[measured] for target, one in residual.items()}
        )


@contextmanager
def stored(surveys: Sequence[FirstPass], metrics: Sequence[str], say: Progress) -> Iterator[Mapping[str, MeasuredRows]]:
    """The measured rows of each target, their features in a temporary file that is gone afterwards, whatever happens.

    It lies where TMPDIR says and takes 4 bytes per row and feature; OSError when there is no room.
    """
    total = max(sum(len(survey.key) for survey in surveys), 1)
    residuals: dict[str, list[NDArray[np.float32]]] = {target: [] for target in TOLD_BY}
    file: FeatureFile | None = None
    done = 0
    try:
        for found in surveys:
            for chunk in chunks(found, metrics):
                file = file or FeatureFile(chunk.monotone)
                file.append(chunk.x)
                for target, values in chunk.residual.items():
                    residuals[target].append(values.astype(np.float32))
                done += len(chunk.x)
                say("making features", min(done / (2 * total), 1.0))
        if file is None:
            yield {}
            return
        file.seal()
        whole = {target: np.concatenate(parts) for target, parts in residuals.items()}
        yield {
            target: MeasuredRows(file, np.flatnonzero(~np.isnan(values)), values[~np.isnan(values)])
            for target, values in whole.items()
        }
    finally:
        if file is not None:
            file.close()


def train_here(rows: MeasuredRows, options: Mapping[str, Any], rounds: int) -> lightgbm.Booster:
    """Fit log(T/B / prior) in this process with only the binned features in memory, a byte per row and feature."""
    data = lightgbm.Dataset(RowSequence(rows), rows.residual, params=dict(options))
    return lightgbm.train(dict(options), data, num_boost_round=rounds)


def fit_boosters(
    surveys: Sequence[FirstPass], metrics: Sequence[str], trainer: Trainer, *, seed: int, progress: Progress
) -> tuple[Mapping[str, lightgbm.Booster], Mapping[str, int]]:
    """The booster of every target that has rows enough, and how many rows each was trained on; `metrics` as in
    `build_matrix`."""
    boosters: dict[str, lightgbm.Booster] = {}
    with stored(surveys, metrics, lambda what, done: progress(what, 0.6 * done)) as measured:
        counts = {target: len(rows) for target, rows in measured.items()}
        for number, (target, rows) in enumerate(measured.items()):
            if len(rows) < LEAST_ROWS:
                continue
            progress(f"{target}: fitting {len(rows)} rows", 0.6 + 0.2 * number)
            options, rounds = booster_options(len(rows), seed=seed, monotone=rows.file.monotone)
            boosters[target] = trainer(rows, options, rounds)
    return boosters, counts
