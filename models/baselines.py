"""The simple methods every figure is shown beside (contract, section 3); each fits training rows and predicts T/B."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from models.estimators import fit_booster
from models.examples import Examples

Floats = NDArray[np.float64]
Baseline = Callable[[Examples, Examples], Floats]

RANK, SWEEPS, FACTOR_PENALTY = 2, 30, 1.0
LOWEST, HIGHEST = 1e-3, 1.1


def ones(train: Examples, test: Examples) -> Floats:
    """Nobody disturbs anybody."""
    del train
    return np.ones(len(test))


def mean(train: Examples, test: Examples) -> Floats:
    """The mean T/B of the training rows."""
    return np.full(len(test), train.ratio.mean())


def additive(train: Examples, test: Examples) -> Floats:
    """Each instance gets its part of its CPUs, 1 / (CPU demand per CPU): a rule of thumb without learning."""
    del train
    crowd = test.x[:, test.names.index("cpu_crowd")]
    return np.asarray(1 / np.maximum(crowd, 1.0))


def koh_linear(train: Examples, test: Examples) -> Floats:
    """Linear regression on own and neighbours' metrics (after Koh et al., ISPASS 2007), ridge-regularised."""
    return _regress(make_pipeline(*_filled(), RidgeCV(np.logspace(-1, 4, 11))), train, test)


def knn(train: Examples, test: Examples) -> Floats:
    """The mean of the five most similar training rows."""
    nearest = KNeighborsRegressor(n_neighbors=min(5, len(train)), weights="distance")
    return _regress(make_pipeline(*_filled(), nearest), train, test)


def random_forest(train: Examples, test: Examples) -> Floats:
    """A random forest on the same features."""
    forest = RandomForestRegressor(n_estimators=150, min_samples_leaf=2, random_state=0, n_jobs=1)
    return _regress(make_pipeline(SimpleImputer(keep_empty_features=True), forest), train, test)


def lightgbm_plain(train: Examples, test: Examples) -> Floats:
    """LightGBM on T/B itself without prior or effects; it does not see the prior's columns."""
    columns = [at for at, name in enumerate(train.names) if not name.startswith("prior")]
    booster = fit_booster(train.x[:, columns], train.ratio, seed=0)
    return np.asarray(booster.predict(test.x[:, columns]))


def matrix_factorisation(train: Examples, test: Examples) -> Floats:
    """log T/B = mean + victim + neighbour + u.v by alternating least squares; neighbours of one row add up.

    Pins are not seen. A workload that training lacks contributes nothing (literature notes, 2.4).
    """
    names = {name: at for at, name in enumerate(train.workloads)}
    target = np.log(np.clip(train.ratio, LOWEST, None))
    centre = float(target.mean())
    pairs = [
        (names[victim], [names[one.workload] for one in beside])
        for victim, beside in zip(train.victim, train.neighbours, strict=True)
    ]
    rows = np.array([victim for victim, _ in pairs], dtype=np.int64)
    around = np.zeros((len(pairs), len(names)))
    for row, (_, neighbours) in enumerate(pairs):
        np.add.at(around[row], neighbours, 1.0)
    left, right = _factorise(rows, around, target - centre, len(names))
    guess = np.full(len(test), centre)
    for row, (victim, beside) in enumerate(zip(test.victim, test.neighbours, strict=True)):
        pressing = sum((right[names[one.workload]] for one in beside if one.workload in names), np.zeros(RANK + 2))
        own = left[names[victim]] if victim in names else np.concatenate([[1.0, 0.0], np.zeros(RANK)])
        guess[row] += float(own @ pressing)
    return np.asarray(np.clip(np.exp(guess), LOWEST, HIGHEST))


def _factorise(rows: NDArray[np.int64], around: Floats, target: Floats, count: int) -> tuple[Floats, Floats]:
    """Left factors [1, a, u] and right factors [b, 1, v] of every workload by ridge-regularised alternation."""
    random = np.random.default_rng(0)
    left = np.concatenate([np.ones((count, 1)), np.zeros((count, 1)), 0.1 * random.normal(size=(count, RANK))], axis=1)
    right = np.concatenate([np.zeros((count, 1)), np.ones((count, 1)), 0.1 * random.normal(size=(count, RANK))], axis=1)
    penalty = FACTOR_PENALTY * np.eye(RANK + 1)
    for _ in range(SWEEPS):
        pressing = around @ right
        for one in range(count):
            mine = rows == one
            if mine.any():
                rest = target[mine] - pressing[mine, 0]
                design = pressing[mine][:, 1:]
                left[one, 1:] = np.linalg.solve(design.T @ design + penalty, design.T @ rest)
        for one in range(count):
            share = around[:, one]
            mine = share > 0
            if mine.any():
                mates = left[rows[mine]]
                others = (pressing[mine] - share[mine, None] * right[one]) * mates
                rest = target[mine] - others.sum(axis=1) - share[mine] * mates[:, 1] * right[one, 1]
                design = share[mine, None] * mates[:, [0, *range(2, RANK + 2)]]
                old = right[one].copy()
                right[one, [0, *range(2, RANK + 2)]] = np.linalg.solve(design.T @ design + penalty, design.T @ rest)
                pressing += share[:, None] * (right[one] - old)
    return left, right


def _filled() -> tuple[SimpleImputer, StandardScaler]:
    return SimpleImputer(keep_empty_features=True), StandardScaler()


def _regress(pipeline: Pipeline, train: Examples, test: Examples) -> Floats:
    columns = [at for at, name in enumerate(train.names) if not name.startswith("prior")]
    pipeline.fit(train.x[:, columns], train.ratio)
    return np.asarray(np.clip(pipeline.predict(test.x[:, columns]), LOWEST, HIGHEST))


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
