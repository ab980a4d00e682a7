"""Tree-based base learners: boosted trees and a random forest by LightGBM, with monotone constraints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.arrays import Floats
from models.learning.stored_trees import Trees

FEW_ROWS, MANY_ROWS = 400, 4000
MANY_CELLS = 1e6
SEEDS, SEEDS_OF_MANY = 4, 2  # boosters that are averaged: on few and noisy rows a single one depends on its seed
ROWS_PER_TREE = 1e6  # bounds the cost of a tree on large tables; every tree draws its own rows
# Each tree waits for all threads many times: of 10,000 rows two of them took 2.3 times as long as one, of 60,000 as
# long, of 150,000 0.7 times. Predicting has nothing to wait for.
PARALLEL_ROWS, PARALLEL_PREDICTIONS = 50_000, 2000


def booster_options(
    rows: int, *, seed: int, monotone: Sequence[int] | NDArray[np.int8] | None = None
) -> tuple[dict[str, Any], int]:
    """Options of `lightgbm.train` for boosting, and the number of trees, chosen by the numbers of rows and features.

    `monotone` (F,) is as in FeatureMatrix. Beyond MANY_CELLS (rows times features) each tree sees fewer features, and
    half as many trees learn at twice the rate. The objective is squared error because LightGBM refuses monotone
    constraints with quantile objectives.
    """
    many = rows >= MANY_ROWS
    wide = monotone is not None and rows * len(monotone) > MANY_CELLS
    options = _common(rows, seed, monotone) | {
        "learning_rate": 0.1 if wide else 0.05,
        "num_leaves": 7 if rows < FEW_ROWS else 63 if many else 15,
        "min_data_in_leaf": int(max(3, min(20, rows // 30))),
        "feature_fraction": 0.2 if wide else 0.5,
        "bagging_fraction": min(0.8, ROWS_PER_TREE / max(rows, 1)),
        "lambda_l2": 1.0,
    }
    return options, (200 if wide else 400) if many else 150


def forest_options(
    rows: int, *, seed: int, monotone: Sequence[int] | NDArray[np.int8] | None = None
) -> tuple[dict[str, Any], int]:
    """The same for a random forest: averaged deep trees on samples, which are less sensitive to noise than boosting."""
    options = _common(rows, seed, monotone) | {
        "boosting": "rf",
        "num_leaves": 255 if rows >= MANY_ROWS else 63,
        "min_data_in_leaf": 3,
        "feature_fraction_bynode": 0.4 if rows < MANY_ROWS else 0.2,
        "bagging_fraction": 0.63,
    }
    return options, 60


def _common(rows: int, seed: int, monotone: Sequence[int] | NDArray[np.int8] | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "objective": "regression",
        "bagging_freq": 1,
        "verbosity": -1,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1 if rows < PARALLEL_ROWS else 0,
        "max_bin": 127 if rows >= MANY_ROWS else 63,
        "min_data_in_bin": 1,
    }
    if monotone is not None and np.any(monotone):
        options["monotone_constraints"] = [int(way) for way in monotone]
    return options


def fit_boosters(
    x: Floats, target: Floats, weight: Floats | None, monotone: NDArray[np.int8], *, seed: int, count: int | None = None
) -> tuple[Trees, ...]:
    """Fit `count` boosters that differ in their seed; by default SEEDS on few rows and SEEDS_OF_MANY on many."""
    number = count or (SEEDS_OF_MANY if len(x) >= MANY_ROWS else SEEDS)
    return tuple(
        _train(x, target, weight, booster_options(len(x), seed=seed + step, monotone=monotone))
        for step in range(number)
    )


def fit_forest(x: Floats, target: Floats, weight: Floats | None, monotone: NDArray[np.int8], *, seed: int) -> Trees:
    """Fit one random forest."""
    return _train(x, target, weight, forest_options(len(x), seed=seed, monotone=monotone))


def _train(x: Floats, target: Floats, weight: Floats | None, how: tuple[dict[str, Any], int]) -> Trees:
    import lightgbm  # which takes a second of CPU time, and only trainings need

    options, rounds = how
    of_bins = {key: options[key] for key in ("verbosity", "max_bin", "min_data_in_bin")}
    data = lightgbm.Dataset(x, target, weight=weight, params=of_bins)
    fitted: Trees = lightgbm.train(options, data, num_boost_round=rounds)
    return fitted


def predict(boosters: Sequence[Trees], x: Floats) -> Floats:
    """The mean prediction of the boosters; (R,)."""
    threads = 1 if len(x) < PARALLEL_PREDICTIONS else 0
    return np.asarray(np.mean([booster.predict(x, num_threads=threads) for booster in boosters], axis=0))
