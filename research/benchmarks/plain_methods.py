"""Plain methods of learning T/B, which the product must beat: each tuned by leaving out campaigns of its own training
rows, and fitted on the columns that the product's learner has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from models.arrays import Floats, Ints
from models.features.examples import Examples, elsewhere_folds, elsewhere_of, group_repeats
from models.learning.fitted_target import boosting_params, with_base
from models.learning.support import balanced

LOWEST, HIGHEST = 1e-3, 1.0
ROUNDS = (50, 150, 300)  # of boosting
LEAVES = (7, 31)
PENALTIES = tuple(np.logspace(-1, 4, 6).tolist())  # of a ridge regression on standardised columns
NEIGHBOURS = (1, 3, 10, 30)
MEASURED = ("own", "beside", "host", "most")  # what columns begin with that stand for metrics
_Predict = Callable[["RatioRows"], Floats]
_Fits = Callable[["RatioRows", Sequence[Any]], Iterable[_Predict]]


@dataclass(frozen=True, slots=True)
class RatioRows:
    """R measured situations, repeats joined: `x` (R, F) with the log of the analytic ratio as its last column, `ratio`
    and `base` (R,) measured and analytic, `weight` (R,) with which campaigns count by the root of their size."""

    examples: Examples
    x: Floats
    ratio: Floats
    base: Floats
    weight: Floats

    @classmethod
    def of(cls, examples: Examples) -> RatioRows:
        """The rows of some examples, repeats joined."""
        grouped = group_repeats(examples)
        one = grouped.examples
        ratio = one.base * np.exp(grouped.residual)
        return cls(one, with_base(one.x, one.base), ratio, one.base, grouped.weight * balanced(elsewhere_of(one)))

    def take(self, rows: Ints) -> RatioRows:
        """The rows with these numbers."""
        part = (self.x[rows], self.ratio[rows], self.base[rows], self.weight[rows])
        return RatioRows(self.examples.take(rows), *part)


@dataclass(frozen=True, slots=True)
class PlainMethod:
    """`fits` takes rows and settings, and gives for each setting what predicts T/B of rows, (R,); `grid` are those that
    are tried."""

    fits: _Fits
    grid: Sequence[Any] = ((),)

    def tuned(self, rows: RatioRows) -> _Predict:
        """Fitted on all rows with the setting that errs least on left-out campaigns of them."""
        errors = np.zeros(len(self.grid))
        for train, test in elsewhere_folds(rows.examples) if len(self.grid) > 1 else ():
            left_out = rows.take(test)
            for at, predict in enumerate(self.fits(rows.take(train), self.grid)):
                off = np.abs(np.clip(predict(left_out), LOWEST, HIGHEST) - left_out.ratio)
                errors[at] += float((left_out.weight * off).sum())
        return next(iter(self.fits(rows, [self.grid[int(errors.argmin())]])))


def _boosted(target: Callable[[RatioRows], Floats], back: Callable[[Floats, RatioRows], Floats]) -> _Fits:
    """Boosted trees with so many leaves, after so many rounds of one fit."""

    def fits(rows: RatioRows, grid: Sequence[tuple[int, int]]) -> Iterator[_Predict]:
        import lightgbm

        boosters = {}
        for leaves in dict.fromkeys(leaves for leaves, _ in grid):
            options = boosting_params(len(rows.ratio), 0) | {"num_leaves": leaves}
            options.pop("n_estimators")
            data = lightgbm.Dataset(rows.x, target(rows), weight=rows.weight, params={**options})
            most = max(rounds for of, rounds in grid if of == leaves)
            boosters[leaves] = lightgbm.train(options, data, num_boost_round=most)
        for leaves, rounds in grid:

            def predict(asked: RatioRows, leaves: int = leaves, rounds: int = rounds) -> Floats:
                return back(np.asarray(boosters[leaves].predict(asked.x, num_iteration=rounds)), asked)

            yield predict

    return fits


def _pipeline(model: Any) -> Pipeline:
    return make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler(), model)


def _asking(fitted: Pipeline, columns: Ints) -> _Predict:
    return lambda asked: np.asarray(fitted.predict(asked.x[:, columns]))


def _ridge(rows: RatioRows, grid: Sequence[float]) -> Iterator[_Predict]:
    for penalty in grid:
        fitted = _pipeline(Ridge(penalty)).fit(rows.x, rows.ratio, ridge__sample_weight=rows.weight)
        yield _asking(fitted, np.arange(rows.x.shape[1]))


def _nearest(rows: RatioRows, grid: Sequence[int]) -> Iterator[_Predict]:
    columns = np.flatnonzero([name.partition(" ")[0] in MEASURED for name in rows.examples.names])
    for count in grid:
        nearest = KNeighborsRegressor(n_neighbors=min(count, len(rows.ratio)), weights="distance")
        fitted = _pipeline(nearest).fit(rows.x[:, columns], rows.ratio)
        yield _asking(fitted, columns)


def _mean_by_pair(rows: RatioRows, _: object) -> Iterator[_Predict]:
    """The mean of the victim beside the same neighbours, else of the victim, else of all rows."""
    found: dict[object, list[float]] = defaultdict(list)
    for ratio, *names in zip(rows.ratio.tolist(), *_names(rows), strict=True):
        for name in names:
            found[name].append(ratio)
    mean, usual = {name: float(np.mean(some)) for name, some in found.items()}, float(rows.ratio.mean())
    yield lambda asked: np.array(
        [mean.get(pair, mean.get(victim, usual)) for pair, victim in zip(*_names(asked), strict=True)]
    )


def _names(rows: RatioRows) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    around = [tuple(sorted(one.workload for one in beside)) for beside in rows.examples.neighbours]
    return [(victim, *beside) for victim, beside in zip(rows.examples.victim, around, strict=True)], (
        rows.examples.victim
    )


METHODS: Mapping[str, PlainMethod] = {
    "LightGBM of T/B": PlainMethod(
        _boosted(lambda rows: rows.ratio, lambda predict, _: predict), tuple(product(LEAVES, ROUNDS))
    ),
    "LightGBM of log(measured / analytic)": PlainMethod(
        _boosted(lambda rows: np.log(rows.ratio / rows.base), lambda predict, rows: rows.base * np.exp(predict)),
        tuple(product(LEAVES, ROUNDS)),
    ),
    "ridge": PlainMethod(_ridge, PENALTIES),
    "nearest by metrics": PlainMethod(_nearest, NEIGHBOURS),
    "mean by pair": PlainMethod(_mean_by_pair),
}


def predicted(train: Examples, test: Examples, methods: Collection[str]) -> dict[str, Floats]:
    """T/B of every row of `test` by each of these methods of METHODS, learned from `train`; (R,) each."""
    rows = RatioRows.of(train)
    asked = RatioRows(test, with_base(test.x, test.base), test.ratio, test.base, np.ones(len(test)))
    return {name: np.clip(METHODS[name].tuned(rows)(asked), LOWEST, HIGHEST) for name in methods}
