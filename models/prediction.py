"""InterferencePrediction and the Predictor protocol: what serving asks of any model, learned or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from models.scene import SceneBatch

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Band:
    """Expected value with its 90 % interval; three arrays of one shape (scenes, slots), nan where nobody sits."""

    expected: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True, slots=True)
class InterferencePrediction:
    """What co-location does to every instance of every scene.

    `throughput` is T/B (1.0 = as alone), `latency` is co-located over solo mean latency (1.0 = as alone), `jitter` the
    same of the standard deviation of latency, `outside` marks questions that lie outside the training data, whose
    intervals are wide on purpose. All of shape (scenes, slots).
    """

    throughput: Band
    latency: Band
    jitter: Band
    outside: Bools


class Predictor(Protocol):
    """Turns scenes into predictions; `version` names it, `origin` says where its training data came from."""

    @property
    def version(self) -> str: ...

    @property
    def origin(self) -> str: ...

    def predict(self, scenes: SceneBatch) -> InterferencePrediction: ...
