"""Of what training left out a range was calibrated: pairs, or windows of hosts."""

from __future__ import annotations

import pytest

from advisor.domain import Calibration, Instance, PlacementRequest, calibration_in_words
from advisor.placement.decision import recommend
from profiler.demand import Demand
from tests.advisor.core.core_clouds import Slower, cloud, context, host, vm


class OfWindows(Slower):
    """As if the share that instances get had been learned from windows, too."""

    of_windows = True


KNOWN = vm("n", None, demand={"cpu": Demand(1.0, "cpu")})


@pytest.mark.parametrize(
    ("predictor", "asked", "calibration"),
    [
        (Slower(), KNOWN, "trained"),
        (OfWindows(), KNOWN, "windows"),
        (OfWindows(), vm("n", "spin"), "trained"),
    ],
)
def test_a_range_says_what_it_was_held_against(predictor: Slower, asked: Instance, calibration: Calibration) -> None:
    (candidate,) = recommend(cloud([host()]), context(predictor), PlacementRequest(asked)).candidates
    assert candidate.calibration == calibration


def test_windows_are_no_pairs() -> None:
    assert "pairs" not in calibration_in_words(["windows"])
    assert "hosts" in calibration_in_words(["windows"])
