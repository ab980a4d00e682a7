"""Baselines (contract, section 3): simple methods that fit training rows and predict T/B; all by one signature."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from models.arrays import Floats, Ints
from models.data.dataset import DatasetError
from models.features.examples import Examples, pair_folds
from models.learning.fitted_target import TargetEstimate
from models.learning.fitting import fit_target
from models.physics.prior import band, prior_spread

# Low-rank factorisation of pair effects by alternating least squares: a victim factor times a neighbour factor.

FactorPair = tuple[Floats, Floats]

START = 0.1  # standard deviation of initial factors; with all zeros the gradient would be zero


@dataclass(frozen=True, slots=True)
class FactorProducts:
    """Which factor products each of `rows` R rows is a sum of.

    Entry e adds `share[e]` times the product of left factor `left[e]` and right factor `right[e]` to row `row[e]`; all
    four are (E,).
    """

    rows: int
    row: Ints
    left: Ints
    right: Ints
    share: Floats

    def of_rows(self, rows: Ints) -> FactorProducts:
        """The entries of these rows only; row numbers stay the same."""
        remaining = np.zeros(self.rows, dtype=bool)
        remaining[rows] = True
        kept = remaining[self.row]
        return replace(self, row=self.row[kept], left=self.left[kept], right=self.right[kept], share=self.share[kept])

    def predict(self, left: Floats, right: Floats) -> Floats:
        """The sum of each row's products of left (L, K) and right (M, K) factors; (R,)."""
        value = self.share * np.einsum("ek,ek->e", left[self.left], right[self.right])
        return np.asarray(np.bincount(self.row, value, minlength=self.rows), dtype=float)


@dataclass(frozen=True, slots=True)
class _FactorSide:
    """One side (left or right) of the factorisation: entries of the same row and factor form a cell.

    `own` and `row` (C,) are the factor and the row of each cell, `cell` (E,) the cell of each entry, and `most` is the
    highest number of cells in a row.
    """

    own: Ints
    row: Ints
    cell: Ints
    most: int

    @classmethod
    def of(cls, row: Ints, own: Ints, count: int) -> _FactorSide:
        cells, cell = np.unique(row * count + own, return_inverse=True)
        return cls(cells % count, cells // count, cell, int(np.bincount(cells // count).max(initial=1)))


def factorise(
    products: FactorProducts,
    target: Floats,
    start: FactorPair,
    penalty: float,
    *,
    sweeps: int,
    free: tuple[Sequence[int], Sequence[int]] | None = None,
) -> FactorPair:
    """Fit factors (L, K) and (M, K) so that the rows' sums of products approximate `target` (R,); ridge-regularised.

    `start` holds the initial factors. `free` are the columns of each side that are fitted, None = all. A factor without
    entries is 0 in these columns. Where each row has one cell per side, a step is the exact least-squares solution.
    Otherwise a step is shortened to 1 / (most cells of a row), for which the loss never increases.
    """
    names = (products.left, products.right)
    factors = (start[0].copy(), start[1].copy())
    columns = [list(one) for one in free or [range(one.shape[1]) for one in start]]
    sides = [_FactorSide.of(products.row, name, len(factor)) for name, factor in zip(names, factors, strict=True)]
    for side, own, fitted in zip(sides, factors, columns, strict=True):
        own[np.ix_(np.bincount(side.own, minlength=len(own)) == 0, fitted)] = 0.0
    for _ in range(sweeps):
        for this, other in ((0, 1), (1, 0)):
            others = factors[other][names[other]] * products.share[:, None]
            _step(sides[this], factors[this], others, target, columns[this], penalty)
    return factors


def _step(side: _FactorSide, own: Floats, others: Floats, target: Floats, free: list[int], penalty: float) -> None:
    """Update one side's factors in place towards the optimum for fixed factors of the other side, `others` (E, K)."""
    columns = [np.bincount(side.cell, column, minlength=len(side.own)) for column in others.T]
    design = np.stack(columns, axis=1).astype(float)
    parts = design * own[side.own]
    rest: Floats = target - np.bincount(side.row, parts.sum(axis=1), minlength=len(target))
    remaining: Floats = rest[side.row] + parts[:, free].sum(axis=1)
    own[:, free] += (_solve(side.own, design[:, free], remaining, len(own), penalty) - own[:, free]) / side.most


def _solve(group: Ints, design: Floats, target: Floats, count: int, penalty: float) -> Floats:
    """Ridge regression of `target` (C,) on `design` (C, K) in every group at once; (count, K), 0 for empty groups."""
    width = design.shape[1]
    squares = np.empty((count, width, width))
    for one in range(width):
        for other in range(one + 1):
            value = np.bincount(group, design[:, one] * design[:, other], minlength=count)
            squares[:, one, other] = squares[:, other, one] = value
    right = np.stack([np.bincount(group, column * target, minlength=count) for column in design.T], axis=1)
    return np.asarray(np.linalg.solve(squares + penalty * np.eye(width), right[:, :, None])[:, :, 0])


# Predicts groups from measured pairs by a rule: additive, product or max composition.

LOWEST, HIGHEST = 1e-3, 1.1
Rule = Callable[[Floats], float]  # the pairs' ratios of one victim to its ratio beside all of them


def compose_additive(train: Examples, test: Examples) -> Floats:
    """Slowdowns add up: s = 1 + sum of (s_pair - 1)."""
    return _compose(train, test, lambda ratios: 1 / max(1 + float((1 / ratios - 1).sum()), 1 / HIGHEST))


def compose_product(train: Examples, test: Examples) -> Floats:
    """Ratios multiply: each neighbour takes a share of what the others leave."""
    return _compose(train, test, lambda ratios: float(ratios.prod()))


def compose_max(train: Examples, test: Examples) -> Floats:
    """Only the worst neighbour counts."""
    return _compose(train, test, lambda ratios: float(ratios.min()))


def _compose(train: Examples, test: Examples, rule: Rule) -> Floats:
    """`rule` over the mean measured ratio of each pair, where all of them are known; else the training mean; (R,)."""
    known = _means(train)
    guess = np.full(len(test), float(train.ratio.mean()))
    for row, keys in enumerate(_keys(test)):
        ratios = [next((known[key] for key in exact_first if key in known), None) for exact_first in keys]
        measured = [ratio for ratio in ratios if ratio is not None]
        if keys and len(measured) == len(keys):
            guess[row] = rule(np.array(measured))
    return np.asarray(np.clip(guess, LOWEST, HIGHEST))


def _means(train: Examples) -> Mapping[Hashable, float]:
    found: dict[Hashable, list[float]] = defaultdict(list)
    for ratio, size, keys in zip(train.ratio, train.size, _keys(train), strict=True):
        if size == 2 and keys:
            for key in keys[0]:
                found[key].append(float(ratio))
    return {key: float(np.mean(ratios)) for key, ratios in found.items()}


def _keys(examples: Examples) -> Iterator[list[tuple[Hashable, Hashable]]]:
    """For every row and neighbour the pair: as it is pinned against that neighbour, and however it is pinned."""
    for victim, platform, beside in zip(examples.victim, examples.platform, examples.neighbours, strict=True):
        pairs = [(platform, victim, one.workload, round(one.overlap, 2)) for one in beside]
        yield [(pair, pair[:3]) for pair in pairs]


COMPOSITIONS = {"compose_additive": compose_additive, "compose_product": compose_product, "compose_max": compose_max}


Baseline = Callable[[Examples, Examples], Floats]

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


# The matrix factorisation baseline: log T/B as victim term, neighbour term and a low-rank product of both.

RANKS, PENALTIES = (2, 3, 4), (0.1, 0.3, 1.0, 3.0)  # of targets scaled to a mean square of 1
SWEEPS, FOLDS = 30, 3


@dataclass(frozen=True, slots=True)
class Entries(FactorProducts):
    """Pairs of victim and neighbour of each row, as indices of workloads."""

    @classmethod
    def of(cls, examples: Examples, names: dict[str, int]) -> Entries:
        """Entries of the rows. A neighbour that is not among `names` is ignored; such a victim gets the last index."""
        found = [
            (row, names.get(examples.victim[row], len(names)), names[one.workload])
            for row, beside in enumerate(examples.neighbours)
            for one in beside
            if one.workload in names
        ]
        row, victim, neighbour = np.array(found, dtype=np.int64).reshape(-1, 3).T
        return cls(len(examples), row, victim, neighbour, np.ones(len(found)))


def ridge_factors(
    entries: FactorProducts, target: Floats, count: int, rank: int, penalty: float
) -> tuple[Floats, Floats]:
    """Fit factors [1, a, u] of `count` workloads, and one more for unknown victims, and [b, 1, v] of neighbours, so
    that `target` (R,) is about the sum over neighbours of a + b + u.v; ridge-regularised."""
    random, latent = np.random.default_rng(0), range(2, rank + 2)
    left, right = np.zeros((count + 1, rank + 2)), np.zeros((count, rank + 2))
    for side in (left, right):
        side[:count, latent] = START * random.normal(size=(count, rank))
    left[:, 0] = right[:, 1] = 1.0
    free = ((1, *latent), (0, *latent))
    return factorise(entries, target, (left, right), penalty, sweeps=SWEEPS, free=free)


def fit_factors(train: Examples, names: dict[str, int], target: Floats) -> tuple[Floats, Floats]:
    """Factors of `target` (R,), scaled, with the rank and the penalty that tell left-out pairs of `train` best."""
    entries = Entries.of(train, names)
    scale = float(np.sqrt(np.mean(target**2))) or 1.0
    folds = pair_folds(train, folds=FOLDS)

    def loss(how: tuple[int, float]) -> float:
        off = 0.0
        for rows, left_out in folds:
            predicted = entries.predict(*ridge_factors(entries.of_rows(rows), target / scale, len(names), *how))
            off += np.abs(target / scale - predicted)[left_out].sum()
        return off

    best = min(product(RANKS, PENALTIES), key=loss)
    left, right = ridge_factors(entries, target / scale, len(names), *best)
    return left * scale, right


# All methods of an evaluation with one signature: training rows and test rows in, predictions out.

OURS = "cotenant"
_HIGHEST_BAND = 1.1


@dataclass(frozen=True, slots=True)
class IntervalPrediction:
    """Expected T/B of test rows, with the bounds of a 90 % interval where the method gives one; all (R,)."""

    expected: Floats
    lower: Floats | None = None
    upper: Floats | None = None


Method = Callable[[Examples, Examples], IntervalPrediction]


def predict_rows(train: Examples, test: Examples) -> TargetEstimate:
    """The product's method: fit on `train`, predict `test`."""
    return fit_target(train, "throughput").ask(test)


def _ours(train: Examples, test: Examples) -> IntervalPrediction:
    found = predict_rows(train, test)
    return IntervalPrediction(found.expected, found.lower, found.upper)


def _prior(train: Examples, test: Examples) -> IntervalPrediction:
    """The analytic model, which needs no training."""
    del train
    found = band(test.base, prior_spread(test.base, np.zeros(len(test), dtype=bool)), _HIGHEST_BAND)
    return IntervalPrediction(found.expected, found.lower, found.upper)


def plain(baseline: Baseline) -> Method:
    """A baseline as a method; it gives no intervals."""
    return lambda train, test: IntervalPrediction(baseline(train, test))


METHODS: Mapping[str, Method] = {
    OURS: _ours,
    "analytic": _prior,
    **{name: plain(baseline) for name, baseline in BASELINES.items()},
}


def chosen(models: Sequence[str]) -> dict[str, Method]:
    """The methods of these names, all if there are no names; DatasetError for an unknown name."""
    for name in models:
        if name not in METHODS:
            raise DatasetError(f"model {name!r} is none of {', '.join(METHODS)}")
    return {name: method for name, method in METHODS.items() if not models or name in models}
