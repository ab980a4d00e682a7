"""The rule for unsteady runs, against known values and by simulation; and what windows are made of."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.steady_state import drift, drifts, has_settled, trend
from lab.usage_windows import UsageSeries

windows = st.lists(st.floats(0.1, 1e4), min_size=6, max_size=30)


def test_the_trend_is_the_one_of_the_text_book() -> None:
    assert trend([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) == pytest.approx(44 / 125**0.5)  # n (n - 1) (2 n + 5) / 18 = 125
    assert trend([5.0] * 10) == 0.0
    assert trend([10, 20, 5, 30]) == pytest.approx(1 / (4 * 3 * 13 / 18) ** 0.5)


@given(windows)
def test_a_trend_turns_around_with_its_windows_and_knows_no_units(values: list[float]) -> None:
    assert trend(values[::-1]) == pytest.approx(-trend(values))
    assert trend([2 * value for value in values]) == pytest.approx(trend(values))


def test_steady_windows_are_hardly_ever_called_drifting() -> None:
    draw = random.Random(1)
    called = sum(bool(drifts([draw.gauss(100, 5) for _ in range(12)])) for _ in range(2000))
    assert called / 2000 < 0.05


def test_windows_that_change_by_a_fifth_are_nearly_always_called_drifting() -> None:
    draw = random.Random(2)
    called = sum(
        bool(drifts([draw.gauss(100, 3) * (1 + 0.2 * position / 11) for position in range(12)])) for _ in range(500)
    )
    assert called / 500 > 0.95


def test_a_tiny_trend_does_no_harm() -> None:
    assert drifts([100 + 0.1 * position for position in range(12)]) is False


def test_too_few_windows_say_nothing() -> None:
    assert drifts([1.0, 2.0, 3.0]) is None
    assert not has_settled([1.0, 1.0, 1.0])


def test_work_that_only_begins_half_way_drifts() -> None:
    assert drift([0.0] * 5 + [9.0] * 5) == float("inf")
    assert drifts([0.0] * 6 + [9.0, 9.1, 9.2, 9.3, 9.4, 9.5]) is True
    assert drift([0.0] * 10) == 0.0


def test_only_the_last_windows_of_a_warm_up_count() -> None:
    assert has_settled([1.0, 20.0, 50.0, *[100.0, 101.0, 99.0, 100.0, 102.0, 100.0]])
    assert not has_settled([100.0] * 6 + [110.0, 121.0, 133.0, 146.0, 161.0, 177.0])


def test_the_activity_is_traffic_where_there_is_any_and_cpu_time_otherwise() -> None:
    series = UsageSeries(
        (-0.5, 0.5, 1.0),
        {
            "web": {"cpu": (9.0, 10.0, 11.0), "net_mbit": (80.0, 90.0, 95.0), "disk_mb_s": (0.0, 0.0, 0.0)},
            "cpu": {"cpu": (9.0, 10.0, 11.0), "net_mbit": (0.0, 0.1, 0.0)},
        },
    )
    assert series.activity("web") == (90.0, 95.0)
    assert series.activity("cpu") == (10.0, 11.0)
    assert series.activity("cpu", measured=False) == (9.0,)
    assert series.activity("unknown") == ()
