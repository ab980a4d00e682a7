"""The standard normal distribution. scipy.special has it, and takes a quarter of the time of a question to load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist

import numpy as np

from models.arrays import Floats
from models.physics import compiled_contention

_erfc = np.frompyfunc(math.erfc, 1, 1)


def below(values: Floats) -> Floats:
    """The chance of a smaller value, in the shape of `values`."""
    if _compiled is not None:
        return _compiled(values)
    return np.asarray(0.5 * _erfc(-values * math.sqrt(0.5)), dtype=np.float64)


def density_at(chances: Sequence[float]) -> Floats:
    """The density at the quantiles of these chances, 0 at those of 0 and 1."""
    normal = NormalDist()
    return np.array([normal.pdf(normal.inv_cdf(each)) if 0 < each < 1 else 0.0 for each in chances])


_compiled = compiled_contention.load_normal(Path(__file__).parent)
