"""Groups that are compared: only with others like them, with an interval, and with none where they are few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from models.evaluation.matched_outcomes import DAY_S, FaredUnit, matched_difference


def units(number: int, *, gain: float, seed: int = 1) -> list[FaredUnit]:
    """Two classes, of which the one that fares worse asks more often; those who follow get `gain` more."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(number):
        heavy = bool(random.random() < 0.5)
        followed = bool(random.random() < (0.7 if heavy else 0.2))
        share = (0.8 if heavy else 0.95) + gain * followed + 0.02 * float(random.normal())
        host, time_s = f"h{random.integers(12)}", DAY_S * 7 * float(random.random())
        found.append(FaredUnit(followed, "batch" if heavy else "web", host, 1.8 if heavy else 0.3, time_s, share))
    return found


@pytest.mark.parametrize("gain", [0.05, 0.0, -0.03])
def test_the_difference_is_found_although_those_who_fare_worse_ask_more_often(gain: float) -> None:
    some = units(300, gain=gain)
    found = matched_difference(some)
    assert found.lower is not None and found.upper is not None
    assert found.lower < gain < found.upper < gain + 0.03
    means = [np.mean([one.outcome for one in some if one.followed is way]) for way in (True, False)]
    assert means[0] - means[1] < found.lower, "plain means say something else"


def test_few_instances_show_nothing_and_unlike_ones_are_not_compared() -> None:
    some = units(300, gain=0.1)
    assert matched_difference(some[:24]).lower is None
    assert matched_difference([replace(one, host="h1") for one in some]).lower is None
    assert matched_difference([replace(one, time_s=60.0) for one in some]).lower is None
    assert _unlike(some, stratum="other") == _unlike(some, demand=9.0) == _unlike(some, time_s=1e9) == 0
    assert matched_difference([]).matched == 0


def _unlike(some: Sequence[FaredUnit], **what: object) -> int:
    return matched_difference([replace(one, **what) if one.followed else one for one in some]).matched  # type: ignore[arg-type]
