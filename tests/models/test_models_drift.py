"""Alarms: a real shift is found in time and described, and what stays as it was gives none."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from models.evaluation.drift import alarms, detect, split
from models.evaluation.prediction_checks import FEW, WINDOW
from tests.models.checked_rows import HALF, honest, one, series

SEEDS = range(20)


@pytest.mark.parametrize("heavy", [False, True])
def test_nothing_is_said_of_stationary_data(heavy: bool) -> None:
    """20 windows each: the rate of false alarms that docs/models.md states is 0 and 0.5 % of windows."""
    assert [alarms(series(honest(WINDOW, seed, heavy=heavy))) for seed in SEEDS] == [()] * len(SEEDS)


@pytest.mark.parametrize("direction", [-1.0, 1.0])
def test_a_shift_by_one_half_width_is_found_within_20_scenes(direction: float) -> None:
    delays = []
    for seed in SEEDS:
        offs = honest(WINDOW, seed)
        offs[100:] += direction
        found = detect(offs)
        assert min(found.values()) >= 100
        delays.append(found["page_hinkley"] - 100)
        assert found["adwin"] - 100 <= 60
    assert np.median(delays) <= 15
    assert sorted(delays)[-2] <= 20


# Where river 0.26 reported a shift after 100 windows first: its Page-Hinkley, and its ADWIN, which looks at the borders
# of its buckets alone (None = never).
BY_RIVER: Mapping[tuple[float, int], tuple[int, int | None]] = {
    (0.5, 0): (173, None), (0.5, 1): (150, None), (0.5, 2): (136, None), (0.5, 3): (126, 171), (0.5, 4): (123, 150),
    (0.5, 5): (129, 142), (0.5, 6): (140, 176), (0.5, 7): (142, 199), (0.5, 8): (160, None), (0.5, 9): (122, 167),
    (-1.0, 0): (108, 124), (-1.0, 1): (114, 126), (-1.0, 2): (113, 128), (-1.0, 3): (116, 144), (-1.0, 4): (117, 144),
    (-1.0, 5): (115, 129), (-1.0, 6): (108, 119), (-1.0, 7): (113, 123), (-1.0, 8): (110, 128), (-1.0, 9): (117, 129),
    (2.0, 0): (106, 113), (2.0, 1): (104, 111), (2.0, 2): (105, 111), (2.0, 3): (105, 111), (2.0, 4): (104, 111),
    (2.0, 5): (105, 111), (2.0, 6): (106, 114), (2.0, 7): (105, 111), (2.0, 8): (106, 113), (2.0, 9): (103, 110),
}  # fmt: skip


@pytest.mark.parametrize(("shift", "seed"), BY_RIVER)
def test_a_shift_is_found_where_river_finds_it_and_by_adwin_no_later(shift: float, seed: int) -> None:
    offs = honest(WINDOW, seed)
    offs[100:] += shift
    found, (page_hinkley, adwin) = detect(offs), BY_RIVER[shift, seed]
    assert found["page_hinkley"] == page_hinkley
    if adwin is not None:
        assert adwin - 40 <= found["adwin"] <= adwin


def test_an_alarm_tells_since_when_and_how_far() -> None:
    offs = honest(WINDOW, 3)
    offs[120:] -= 1.5
    rows = series(offs)
    alarm = next(one for one in alarms(rows) if one.kind == "shift")
    assert "page_hinkley" in alarm.detectors
    assert abs((alarm.since - rows[120].time).total_seconds()) <= 5 * 60
    assert rows[120].time < alarm.detected <= rows[140].time
    assert alarm.scenes == pytest.approx(80, abs=5)
    assert alarm.before == pytest.approx(0, abs=0.15)
    assert alarm.after == pytest.approx(-1.5, abs=0.15)
    assert alarm.off == pytest.approx(np.exp(-1.5 * HALF), abs=0.02)


def test_a_change_for_the_better_is_no_alarm() -> None:
    offs = honest(WINDOW, 4) * 0.5
    offs[:100] += 0.6
    assert detect(offs)
    assert alarms(series(offs)) == ()


def test_errors_that_grow_on_both_sides_are_found_by_coverage() -> None:
    offs = honest(WINDOW, 5)
    offs[100:] *= 3.0
    rows = series(offs)
    (alarm,) = (one for one in alarms(rows) if one.kind == "coverage")
    assert alarm.detectors == ("binomial",)
    assert alarm.after < 0.7 < 0.85 < alarm.before
    assert abs((alarm.since - rows[100].time).total_seconds()) <= 15 * 60


def test_coverage_that_never_was_good_began_with_the_window() -> None:
    rows = series(honest(WINDOW, 6) * 3.0)
    (alarm,) = (one for one in alarms(rows) if one.kind == "coverage")
    assert alarm.since == rows[0].time
    assert alarm.before == 0.9


@pytest.mark.parametrize(("missed", "alarmed"), [(28, False), (40, True)])
def test_coverage_alarms_only_where_chance_would_hardly_do_it(missed: int, alarmed: bool) -> None:
    """Of 200 intervals that hold in 9 of 10 cases 28 or more miss in 4 of 100 windows, 40 or more in 2 of 100,000."""
    offs = np.zeros(WINDOW)
    offs[np.linspace(0, WINDOW - 1, missed).astype(int)] = np.resize([1.1, -1.1], missed)
    assert bool([one for one in alarms(series(offs)) if one.kind == "coverage"]) == alarmed


def test_few_scenes_say_nothing_however_bad() -> None:
    assert alarms(series([5.0] * (FEW - 1))) == ()
    assert alarms([one(number // 20, off=5.0) for number in range(20 * (FEW - 1))]) == ()


def test_the_same_rows_always_tell_the_same() -> None:
    offs = honest(WINDOW, 7)
    offs[100:] += 1.0
    assert alarms(series(offs)) == alarms(series(offs))


@pytest.mark.parametrize("place", [5, 40, 95])
def test_a_series_is_parted_where_its_mean_moves(place: int) -> None:
    steps = np.zeros(100)
    steps[place:] = 1.0
    assert split(steps) == place
