"""FittedTarget: all that answers for one ratio - the learner, its support, what is remembered, and ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.arrays import Bools, Floats, Ints
from models.features.examples import (
    Examples,
)
from models.learning.held_out import HeldOutPredictions
from models.learning.memory import Memory, Recalled
from models.learning.support import (
    Ranges,
    Support,
    hints_of,
)
from models.learning.trees import TreeEnsembles
from models.physics.prior import JITTER_TIMES, LATENCY_TIMES, PRIOR_HALF_WIDTH, prior_spread

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


HIGHEST = {"throughput": 1.0, "latency": 1000.0, "jitter": 1000.0, "share": 1.0}
LOWEST = {"throughput": 1e-3, "latency": 0.5, "jitter": 1e-3, "share": 1e-3}
# lower bounds never claim a gain from neighbours
SURE = {"throughput": 1.0, "latency": np.inf, "jitter": np.inf, "share": 1.0}
ALONE = 0.02  # half width for an instance without neighbours: repeats of one run differ by about that much


@dataclass(frozen=True, slots=True)
class TargetEstimate:
    """Expected ratio with its 90 % range (each bound alone holds in 95 %), and what it rests on; all (R,).

    `support` is how much of what was learned applies, 0-1; `similar` how many measured rows are like this one, on how
    many `machines`; `measured` how many outcomes of exactly these instances.
    """

    expected: Floats
    lower: Floats
    upper: Floats
    support: Floats
    similar: Floats
    machines: Floats
    measured: Floats


@dataclass(frozen=True, slots=True)
class FittedTarget:
    """Everything needed to predict one ratio.

    `trust` is the part of the correction that is applied on hosts that training did not see; `least` and `most` bound
    it on the log scale, with what is remembered; `ceiling` is the highest upper bound. `figures` are errors by
    protocol, `held_out` the predictions of left-out rows.
    """

    target: str
    names: tuple[str, ...]
    learner: ResidualLearner | None
    support: Support | None
    trust: float
    memory: Memory
    ranges: Ranges
    least: float
    most: float
    ceiling: float
    figures: Mapping[str, Mapping[str, Any]]
    held_out: tuple[HeldOutPredictions, ...] = ()

    def ask(self, examples: Examples) -> TargetEstimate:
        """Predict examples; reference path beside `LearnedPredictor`, which does the same for scenes."""
        here = np.isin(examples.platform, list(self.memory.platforms))
        recalled = self.memory.of(examples.victim, examples.neighbours, here)
        own = own_width(self.target, examples.base)
        return self.estimate(examples.x, examples.base, (own, own), recalled, here, examples.size)

    def estimate(
        self, x: Floats, base: Floats, own: tuple[Floats, Floats], recalled: Recalled, here: Bools, size: Ints,
        known: Floats | float = 1.0,
    ) -> TargetEstimate:  # fmt: skip
        """Turn features (R, F), the analytic ratio and what is remembered (R,) into ratios with ranges.

        `own` are the half widths of the analytic model's range on the log scale, down and up, without doubt about
        demand; `here` whether training saw the host; `size` the number of instances of each row's scene; `known` (R,)
        how well its demands are known, 0-1. An instance without neighbours is not corrected: its ratio is 1 by
        definition.
        """
        alone = size <= 1
        if self.learner is None or self.support is None:
            learned, deviation, nearness, near = np.zeros((4, len(base)))
            similar = machines = np.zeros(len(base))
        else:
            full = with_base(x, base)
            learned, deviation = self.learner.predict(full)
            likeness = self.support.of(full)
            similar, machines, near = likeness.similar, likeness.machines, likeness.value * known
            nearness = near * agreement(learned, deviation)
        believed = np.where(here, 1.0, self.trust) * nearness
        correction = np.clip(believed * learned + near * recalled.effect, self.least, self.most)
        correction = np.where(alone, 0.0, correction)
        expected = np.clip(base * np.exp(correction), LOWEST[self.target], HIGHEST[self.target])
        hints = hints_of(base, expected, correction, deviation)
        down, up = self.ranges.half_widths(hints, here, recalled.familiar, nearness, own)
        down, up = (np.where(alone, ALONE, width) for width in (down, up))
        return TargetEstimate(
            expected=expected,
            lower=np.clip(expected * np.exp(-down), LOWEST[self.target], np.minimum(expected, SURE[self.target])),
            upper=np.minimum(expected * np.exp(up), self.ceiling),
            support=np.maximum(
                nearness, np.where(here, recalled.measured / (recalled.measured + self.memory.shrink), 0.0)
            ),
            similar=similar,
            machines=machines,
            measured=np.where(here, recalled.measured, 0.0),
        )


def with_base(x: Floats, base: Floats) -> Floats:
    """Features with the log of the analytic ratio as the last column; (R, F + 1)."""
    return np.column_stack([x, np.log(base)])


def own_width(target: str, base: Floats) -> Floats:
    """Half width of the analytic model's own range on the log scale; (R,)."""
    if target in {"throughput", "share"}:
        return prior_spread(base, np.zeros(len(base), dtype=bool))
    times = LATENCY_TIMES if target == "latency" else JITTER_TIMES
    return times * PRIOR_HALF_WIDTH * np.maximum(0.5, np.log2(base))
