"""Means over half an hour become windows in the shape of half hours that were seen."""

from __future__ import annotations

import pytest

from models.profiling.windows import shapes

QUIET, BUSY = [0.1, 0.1, 0.1, 0.1, 0.1, 0.7], [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]
SEEN = shapes({300.0 * (at + 1): value for at, value in enumerate(QUIET + BUSY + [9.0] * 5)}, 300)


def test_a_mean_takes_the_shape_of_the_half_hour_that_is_nearest_to_it() -> None:
    assert SEEN.means == pytest.approx([0.2, 1.5])  # five windows are no half hour
    windows = SEEN.broken_down(36_000.0, 1800.0, 1.2)
    assert list(windows) == [34_500.0, 34_800.0, 35_100.0, 35_400.0, 35_700.0, 36_000.0]
    assert list(windows.values()) == pytest.approx([0.8, 1.6, 0.8, 1.6, 0.8, 1.6])
    assert list(SEEN.broken_down(1800.0, 1800.0, 0.4).values())[-1] == pytest.approx(1.4)


def test_no_window_is_above_what_there_can_be() -> None:
    assert max(SEEN.broken_down(1800.0, 1800.0, 0.8, 2.0).values()) == 2.0


def test_without_a_half_hour_that_was_seen_means_say_nothing() -> None:
    assert shapes({300.0: 1.0}, 300).broken_down(1800.0, 1800.0, 1.0) == {}
    assert SEEN.broken_down(1800.0, 100.0, 1.0) == {}


def test_who_stood_still_has_the_shape_of_standing_still() -> None:
    still = shapes({300.0 * (at + 1): 0.0 for at in range(6)}, 300)
    assert list(still.broken_down(1800.0, 1800.0, 0.5).values()) == [0.5] * 6
