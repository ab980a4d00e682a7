"""The one learner: boosted trees of log(measured / analytic), several members that each miss a part of the evidence.

A member never saw one part of the campaigns (of the hosts, of the families of programs). Where members agree, what was
learned carries over to what none of them saw; where they do not, it was a trait of one campaign. The estimator has
scikit-learn's interface (fit, predict, get_params), without the library: a service answers with arrays alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.arrays import Floats, Ints
from models.learning.trees import TreeEnsembles

LEAST_OF_MEMBER = 4  # rows that a member learns from: LightGBM refuses to bag fewer than two
MEMBERS = 5
MANY_ROWS = 20_000
# How much members may differ, in variances of the log ratio beside the square of what they say, before half of it is
# believed: 1 and 8 gave the same on left-out campaigns within noise.
DISAGREEMENT = 3.0
SMALL = 0.05  # of the log ratio: about corrections below it members need not agree
MOST_RESIDUAL = 7.0  # of the log: what is beyond a thousand-fold counts as that


@dataclass(frozen=True, slots=True)
class LearnerTask:
    """What one fit needs, (R, F) and (R,): it may run in another process."""

    x: Floats
    residual: Floats
    weight: Floats
    unit: Ints
    monotone: NDArray[np.int8]
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ResidualLearner:
    """Fitted members: E ensembles of trees on F columns; `importance` (F,) is what each column gave, 1 in all."""

    trees: TreeEnsembles
    importance: Floats

    def predict(self, x: Floats) -> tuple[Floats, Floats]:
        """The mean over members for rows (R, F), and their standard deviation; (R,) each."""
        said = self.trees(x)
        return said.mean(axis=0), said.std(axis=0)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters of the boosting, as scikit-learn names them."""
        del deep
        return boosting_params(0, 0)


def agreement(mean: Floats, deviation: Floats) -> Floats:
    """How far members agree, 0-1; (R,)."""
    said = mean**2 + SMALL**2
    return np.asarray(said / (said + DISAGREEMENT * deviation**2))


def fit_learner(task: LearnerTask) -> ResidualLearner:
    """Fit every member on all rows but a part of the units; with one unit, on random parts."""
    import lightgbm  # which takes a second of CPU time, and only trainings need

    part = _parts(task.unit, task.seed)
    boosters = []
    for member in range(MEMBERS):
        kept = np.flatnonzero(part != member)
        params = boosting_params(len(kept), task.seed + member)
        if np.any(task.monotone):
            params["monotone_constraints"] = [int(way) for way in task.monotone]
        of_bins = {key: params[key] for key in ("verbosity", "max_bin", "min_data_in_bin")}
        data = lightgbm.Dataset(task.x[kept], task.residual[kept], weight=task.weight[kept], params=of_bins)
        boosters.append(lightgbm.train(params, data, num_boost_round=params.pop("n_estimators")))
    gain = np.mean([one.feature_importance("gain") for one in boosters], axis=0)
    importance = np.sqrt(np.maximum(gain, 0.0))
    return ResidualLearner(
        TreeEnsembles.of(boosters, task.x.shape[1]), importance / max(float(importance.sum()), 1e-12)
    )


def boosting_params(rows: int, seed: int) -> dict[str, Any]:
    """The parameters of LightGBM by the number of rows: squared error, for it refuses monotone constraints with others;
    deterministic, in one thread, so that the same rows give the same trees wherever they are fitted."""
    many = rows > MANY_ROWS
    return {
        "objective": "regression",
        "n_estimators": 200 if many else 100,
        "learning_rate": 0.1 if many else 0.05,
        "num_leaves": 31 if many else 15,
        "min_data_in_leaf": int(max(3, min(20, rows // 30))),
        "feature_fraction": 0.5,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "lambda_l2": 5.0,
        "verbosity": -1,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "max_bin": 63,
        "min_data_in_bin": 1,
    }


def _parts(unit: Ints, seed: int) -> Ints:
    """The member that misses each row; units go to the parts in turn, the largest first, each to the smallest part.

    Rows go to random parts where units would leave a member fewer than LEAST_OF_MEMBER rows.
    """
    names, which, count = np.unique(unit, return_inverse=True, return_counts=True)
    if MEMBERS < 2:
        return np.full(len(unit), -1)
    if len(names) < 2:
        return np.asarray(np.random.default_rng(seed).permutation(len(unit)) % MEMBERS)
    part, size = np.zeros(len(names), dtype=np.int64), np.zeros(MEMBERS)
    for name in np.argsort(-count, kind="stable").tolist():
        part[name] = int(size.argmin())
        size[part[name]] += count[name]
    if len(unit) - size.max() < LEAST_OF_MEMBER:
        return np.asarray(np.random.default_rng(seed).permutation(len(unit)) % MEMBERS)
    return part[which]


def clipped(residual: Floats) -> Floats:
    """Residuals without what no model should follow; (R,)."""
    return np.clip(residual, -MOST_RESIDUAL, MOST_RESIDUAL)
