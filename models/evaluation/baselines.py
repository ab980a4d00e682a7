"""Baselines (contract, section 3): simple methods that fit training rows and predict T/B, for comparison with the
model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from models.arrays import Floats
from models.evaluation.factorisation_baseline import Entries, fit_factors
from models.features.examples import Examples

Baseline = Callable[[Examples, Examples], Floats]

LOWEST, HIGHEST = 1e-3, 1.1
# General limits that keep large data in bounds; they depend on sizes alone, and small data never meets them.
MOST_SAMPLED = 20_000  # rows that koh_linear and knn learn from
MOST_PER_TREE = 10_000  # rows that one tree of the forest sees
MANY_CELLS = 1_000_000  # rows times columns beyond which trees look at fewer of the columns, and at coarser values
PARALLEL_ROWS = 50_000  # each tree waits for all threads many times
PARALLEL_CELLS = 200_000  # below it, threads cost more than they bring
LIMITS = {
    "koh_linear": f"learns from at most {MOST_SAMPLED} rows, drawn at random",
    "knn": f"learns from at most {MOST_SAMPLED} rows, drawn at random",
    "random_forest": f"at most {MOST_PER_TREE} rows per tree; beyond {MANY_CELLS} cells (rows times columns) a split "
    "looks at the square root of the number of columns",
    "lightgbm_plain": f"beyond {MANY_CELLS} cells 200 trees that each look at a fifth of the columns",
}


def ones(train: Examples, test: Examples) -> Floats:
    """Predicts T/B = 1: no interference."""
    del train
    return np.ones(len(test))


def mean(train: Examples, test: Examples) -> Floats:
    """The mean T/B of the training rows."""
    return np.full(len(test), train.ratio.mean())


def additive(train: Examples, test: Examples) -> Floats:
    """A rule of thumb without learning: T/B = 1 / (CPU demand per CPU)."""
    del train
    crowd = np.nan_to_num(test.x[:, test.names.index("crowd")], nan=1.0)
    return np.asarray(1 / np.maximum(crowd, 1.0))


def koh_linear(train: Examples, test: Examples) -> Floats:
    """Linear regression on own and neighbours' metrics (after Koh et al., ISPASS 2007), ridge-regularised."""
    return _regress(make_pipeline(*_filled(), RidgeCV(np.logspace(-1, 4, 11))), _sampled(train), test)


def knn(train: Examples, test: Examples) -> Floats:
    """The mean T/B of the five most similar training rows."""
    train = _sampled(train)
    nearest = KNeighborsRegressor(n_neighbors=min(5, len(train)), weights="distance")
    return _regress(make_pipeline(*_filled(), nearest), train, test)


def random_forest(train: Examples, test: Examples) -> Floats:
    """A random forest on the same features."""
    forest = RandomForestRegressor(
        n_estimators=150,
        min_samples_leaf=2,
        max_samples=MOST_PER_TREE if len(train) > MOST_PER_TREE else None,
        max_features="sqrt" if train.x.size > MANY_CELLS else 1.0,
        random_state=0,
        n_jobs=-1 if train.x.size > PARALLEL_CELLS else 1,
    )
    return _regress(make_pipeline(SimpleImputer(keep_empty_features=True), forest), train, test)


def lightgbm_plain(train: Examples, test: Examples) -> Floats:
    """LightGBM on T/B itself without prior or effects; it does not see the analytic model's columns."""
    import lightgbm

    rows, many = len(train), train.x.size > MANY_CELLS
    options = {
        "objective": "regression",
        "learning_rate": 0.1 if many else 0.05,
        "num_leaves": 7 if rows < 400 else 15 if rows < 4000 else 63,
        "min_data_in_leaf": max(3, min(20, rows // 30)),
        "feature_fraction": 0.2 if many else 0.5,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "lambda_l2": 1.0,
        "verbosity": -1,
        "seed": 0,
        "deterministic": True,
        "force_col_wise": many,
        "force_row_wise": not many,
        "num_threads": 1 if rows < PARALLEL_ROWS else 0,
        "max_bin": 63 if rows < 4000 or many else 255,
        "min_data_in_bin": 1,
    }
    columns = _measured_columns(train)
    data = lightgbm.Dataset(train.x[:, columns], train.ratio, params={**options})
    booster = lightgbm.train(options, data, num_boost_round=150 if rows < 4000 else 200 if many else 400)
    return np.asarray(booster.predict(test.x[:, columns]))


def matrix_factorisation(train: Examples, test: Examples) -> Floats:
    """log T/B = mean + victim + neighbour + u.v by alternating least squares; neighbours of one row add up.

    Rank and penalty are those that tell left-out pairs of the training rows best. Pinning is ignored. A workload that
    is not in training contributes nothing.
    """
    names = {name: at for at, name in enumerate(train.workloads)}
    target = np.log(np.clip(train.ratio, LOWEST, None))
    guess = target.mean() + Entries.of(test, names).predict(*fit_factors(train, names, target - target.mean()))
    return np.asarray(np.clip(np.exp(guess), LOWEST, HIGHEST))


def _sampled(train: Examples) -> Examples:
    if len(train) <= MOST_SAMPLED:
        return train
    return train.take(np.sort(np.random.default_rng(0).permutation(len(train))[:MOST_SAMPLED]))


def _measured_columns(train: Examples) -> list[int]:
    """All columns but the analytic model's."""
    return [at for at, name in enumerate(train.names) if not name.startswith(("analytic", "crowded"))]


def _filled() -> tuple[SimpleImputer, StandardScaler]:
    return SimpleImputer(keep_empty_features=True), StandardScaler()


def _regress(pipeline: Pipeline, train: Examples, test: Examples) -> Floats:
    pipeline.fit(_finite(train), train.ratio)
    return np.asarray(np.clip(pipeline.predict(_finite(test)), LOWEST, HIGHEST))


def _finite(examples: Examples) -> Floats:
    """Features without the analytic model's columns; infinities become unknown: these methods do not accept them."""
    x = examples.x[:, _measured_columns(examples)]
    x[~np.isfinite(x)] = np.nan
    return x


BASELINES: dict[str, Baseline] = {
    "ones": ones,
    "mean": mean,
    "additive": additive,
    "koh_linear": koh_linear,
    "knn": knn,
    "matrix_factorisation": matrix_factorisation,
    "random_forest": random_forest,
    "lightgbm_plain": lightgbm_plain,
}
