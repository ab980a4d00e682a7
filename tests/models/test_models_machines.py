"""Machines distinguished by what is stated of them, not by the names of platforms."""

from __future__ import annotations

import numpy as np

from models.features.examples import machines_of

ROME, MILAN, UNSTATED = [2, 1, 2250.0, 0.5, 32], [2, 1, 2445.4, 0.5, 32], [2, 1, np.nan, np.nan, np.nan]


def test_platforms_of_one_machine_are_one_whatever_they_are_called() -> None:
    platform = ("a/lab", "a/lab-uplink", "b/lab", "c/lab", "c/lab")
    stated = np.array([ROME, ROME, MILAN, [2, 1, 2251.0, 0.5, np.nan], ROME])
    assert machines_of(platform, stated) == ("a/lab", "a/lab", "b/lab", "a/lab", "a/lab")


def test_of_whose_processors_nothing_is_stated_each_platform_is_a_machine() -> None:
    assert machines_of(("a/x", "b/x", "a/x"), np.array([UNSTATED] * 3)) == ("a/x", "b/x", "a/x")
    assert machines_of(("a/x", "b/x"), np.zeros((0, 5))) == ("a/x", "b/x")
