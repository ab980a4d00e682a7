"""All methods of an evaluation with one signature: training rows and test rows in, predictions out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.arrays import Floats
from models.data.dataset import DatasetError
from models.evaluation.baselines import BASELINES, Baseline
from models.features.examples import Examples
from models.learning.fitted_target import TargetEstimate, fit_target
from models.physics.prior import band, prior_spread

OURS = "cotenant"
HIGHEST = 1.1


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
    found = band(test.base, prior_spread(test.base, np.zeros(len(test), dtype=bool)), HIGHEST)
    return IntervalPrediction(found.expected, found.lower, found.upper)


def plain(baseline: Baseline) -> Method:
    """A baseline as a method; it gives no intervals."""
    return lambda train, test: IntervalPrediction(baseline(train, test))


METHODS: Mapping[str, Method] = {
    OURS: _ours,
    "prior": _prior,
    **{name: plain(baseline) for name, baseline in BASELINES.items()},
}


def chosen(models: Sequence[str]) -> dict[str, Method]:
    """The methods of these names, all if there are no names; DatasetError for an unknown name."""
    for name in models:
        if name not in METHODS:
            raise DatasetError(f"model {name!r} is none of {', '.join(METHODS)}")
    return {name: method for name, method in METHODS.items() if not models or name in models}
