"""What half hours tell of windows, on windows that were made up."""

from __future__ import annotations

import numpy as np

from research.half_hours import WAYS, errors


def test_shapes_that_were_seen_tell_the_spread_that_means_hide() -> None:
    generator = np.random.default_rng(5)
    trace = 0.2 * generator.gamma(1.0, 1.0, (288, 20))
    alone, equal, shaped = (errors(trace, 36, 288)[name] for name in WAYS)
    assert shaped[0][0] < alone[0][0]  # the mean of the day, by its factor
    assert shaped[1][0] < equal[1][0]  # its spread
    assert equal[1][1] < 0.7
