"""Windows: means weighted by time, percentiles, instances that come and go, series that are too thin."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.collectors import Collected, SampleRow
from profiler.collectors.windows import Key, MetricWindow, WindowAggregator, percentile

CPU: Key = ("a", "instance", "cpu")
values = st.floats(0, 1e9, allow_subnormal=False)
seconds = st.floats(0.05, 3)


def reading(of: dict[str | None, float], length: float = 1.0, time_s: float = 1e9) -> Collected:
    rows = tuple(
        SampleRow(name, "instance" if name else "host", {"cpu" if name else "event": value})
        for name, value in of.items()
    )
    return Collected("h", time_s, length, rows, (), ())


def fill(windows: WindowAggregator, readings: list[dict[str | None, float]], begin: float = 0.0) -> MetricWindow:
    """Readings one second apart, then the end of the window."""
    for number, values in enumerate(readings, 1):
        windows.add(reading(values), begin + number)
    return windows.close(begin + len(readings))


@given(st.lists(st.tuples(values, seconds), min_size=1, max_size=50))
def test_the_mean_is_weighted_by_time_and_lies_between_the_extremes(pairs: list[tuple[float, float]]) -> None:
    whole = sum(length for _, length in pairs)
    windows = WindowAggregator(1e6, whole / len(pairs))
    now = 0.0
    for value, length in pairs:
        now += length
        windows.add(reading({"a": value}, length), now)
    totals = windows.totals()
    statistic = windows.close(now).series[CPU]
    expected = sum(value * length for value, length in pairs) / whole
    assert statistic.mean == pytest.approx(expected)
    assert min(value for value, _ in pairs) <= statistic.mean <= max(value for value, _ in pairs)
    assert statistic.samples == len(pairs)
    assert totals[CPU] == pytest.approx(sum(value * length for value, length in pairs))


@given(st.lists(values, min_size=2, max_size=300))
def test_p95_is_that_of_the_standard_library(numbers: list[float]) -> None:
    ordered = sorted(numbers)
    expected = statistics.quantiles(ordered, n=20, method="inclusive")[18]
    assert percentile(ordered, 0.95) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert (percentile(ordered, 0), percentile(ordered, 1)) == (ordered[0], ordered[-1])


def test_p95_of_a_single_value_is_that_value() -> None:
    assert percentile([7.0], 0.95) == 7.0


@given(st.lists(st.sets(st.sampled_from("abcd")), min_size=10, max_size=10))
def test_only_series_known_in_half_of_the_readings_are_reported(present: list[set[str]]) -> None:
    window = fill(WindowAggregator(10, 1), [{None: 1.0, **dict.fromkeys(names, 5.0)} for names in present])
    known = {name: sum(name in names for names in present) for name in "abcd"}
    assert {key[0] for key in window.series if key[0]} == {name for name, count in known.items() if count >= 5}
    assert window.thin == sum(0 < count < 5 for count in known.values())


@given(st.lists(st.sets(st.sampled_from("abcd")), min_size=1, max_size=40))
def test_totals_never_fall_while_an_instance_lives_and_vanish_with_it(present: list[set[str]]) -> None:
    windows = WindowAggregator(4, 1)
    before: dict[str, float] = {}
    since: set[str] = set()
    for number, names in enumerate(present, 1):
        windows.add(reading({None: 1.0, **dict.fromkeys(names, 2.0)}), number)
        since |= names
        if windows.due(number):
            windows.close(number)
            assert {key[0] for key in windows.totals() if key[0]} == since
            since = set()
        now = {key[0]: total for key, total in windows.totals().items() if key[0]}
        assert all(now[name] >= total for name, total in before.items() if name in now)
        before = now


def test_totals_count_everything_once_across_windows() -> None:
    windows = WindowAggregator(10, 1)
    fill(windows, [{"a": 50.0}] * 10)
    fill(windows, [{"a": 50.0}] * 10, begin=10)
    assert windows.totals() == {CPU: 1000.0}


def test_a_window_in_which_nothing_was_read_forgets_no_instance() -> None:
    windows = WindowAggregator(10, 1)
    fill(windows, [{"a": 50.0}] * 10)
    assert windows.close(20.0).series == {}
    assert windows.totals() == {CPU: 500.0}


def test_a_hung_tail_makes_a_window_thin() -> None:
    windows = WindowAggregator(10, 1)
    for number in range(1, 5):
        windows.add(reading({"a": 1.0}), number)
    assert windows.due(10.0)
    window = windows.close(10.0)
    assert (window.series, window.thin) == ({}, 1)


def test_a_window_that_ends_early_is_judged_by_its_own_length() -> None:
    windows = WindowAggregator(10, 1)
    for number in range(1, 4):
        windows.add(reading({"a": 1.0}, time_s=1e9 + number), number)
    window = windows.close(3.2)
    assert window.series[CPU].samples == 3
    assert window.end_s == 1e9 + 3


def test_windows_stay_on_their_grid_though_readings_jitter() -> None:
    windows = WindowAggregator(10, 1)
    ends = []
    for number in range(1, 41):
        now = number + (0.2 if number % 2 else -0.2)
        windows.add(reading({"a": 1.0}), now)
        if windows.due(now):
            ends.append(number)
            assert windows.close(now).series[CPU].samples == 10
    assert ends == [10, 20, 30, 40]


def test_an_abandoned_window_is_gone_and_its_totals_are_not() -> None:
    windows = WindowAggregator(10, 1)
    for number in range(1, 6):
        windows.add(reading({"a": 100.0}), number)
    windows.abandon()
    window = fill(windows, [{"a": 1.0}] * 10, begin=50)
    assert window.series[CPU].mean == 1.0
    assert windows.totals() == {CPU: 510.0}
