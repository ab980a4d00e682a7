"""Of what training left out a range was calibrated: pairs, or windows of hosts."""

from __future__ import annotations

import re

import pytest

from advisor.domain import (
    Calibration,
    Instance,
    PlacementRequest,
    calibration_in_words,
    codec,
    recommendation_from_json,
)
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


class OfFortyHosts(OfWindows):
    """As if these windows had been of forty hosts."""

    hosts_of_windows = 40


@pytest.mark.parametrize(
    ("predictor", "asked", "hosts"),
    [
        (OfFortyHosts(), KNOWN, 40),
        (OfFortyHosts(), vm("n", "spin"), None),
        (OfWindows(), KNOWN, None),
    ],
)
def test_windows_say_of_how_many_hosts_they_were(predictor: Slower, asked: Instance, hosts: int | None) -> None:
    answer = recommend(cloud([host()]), context(predictor), PlacementRequest(asked))
    (candidate,) = answer.candidates
    assert candidate.calibration_hosts == hosts
    assert recommendation_from_json(codec.answer_values(answer), answer.request).best.calibration_hosts == hosts
    sentence = calibration_in_words([candidate.calibration], candidate.calibration_hosts)
    assert re.findall(r"windows of (\d+) host", sentence) == ([str(hosts)] if hosts else [])
