"""The CPU work probe on series with known answers, and for real."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.probes.base import Progress
from profiler.probes.cpu_work import PROBE, calibrate, measure, times, work
from tests.probes.two_ends import StopOnce, options_of


def test_what_takes_over_twice_the_median_is_an_outlier() -> None:
    constant = times([500.0] * 5)
    assert (constant["median"].value, constant["variation"].value, constant["outliers"].value) == (500, 0, 0)
    found = times([400.0, 500.0, 500.0, 500.0, 1000.0, 1001.0])
    assert found["outliers"].value == 1
    assert found["outliers_share"].value == pytest.approx(100 / 6)
    assert not {"variation", "stdev"} & set(times([5.0]))  # of one sample


@given(st.lists(st.floats(0.1, 1e5), min_size=2, max_size=50), st.floats(0.5, 2))
def test_variation_and_outliers_do_not_depend_on_the_machines_speed(took: list[float], speed: float) -> None:
    slow, scaled = times(took), times([value * speed for value in took])
    assert scaled["variation"].value == pytest.approx(slow["variation"].value, rel=1e-6, abs=1e-6)
    assert scaled["median"].value == pytest.approx(slow["median"].value * speed)


def test_the_work_is_done_and_stays_in_the_range_of_ordinary_numbers() -> None:
    # subnormal and infinite numbers take other times
    assert work(0) == 2.0
    assert work(1000) == work(1000)
    assert 1.0 < work(2_000_000) < work(1000) < work(1) < 2.0


@pytest.mark.measured
def test_the_calibrated_work_takes_about_as_much_cpu_as_was_asked_for() -> None:
    run = PROBE.run(options_of("cpu-work", "--count", "5", "--work-ms", "40"), Progress())
    cpu = sorted(float(value or 0) for value in run.series.columns["cpu_ms"])
    assert cpu[0] == pytest.approx(40, rel=0.5)  # clocks of virtual machines change, neighbours share caches
    assert run.values["min"].value >= cpu[0] * 0.99


@pytest.mark.measured
def test_more_work_takes_longer_in_proportion() -> None:
    once = calibrate(10)
    _, _, single = measure(once, 5, None, None, Progress())
    _, _, fourfold = measure(4 * once, 5, None, None, Progress())
    assert min(fourfold) == pytest.approx(4 * min(single), rel=0.3)


def test_the_iterations_of_an_earlier_run_are_repeated_exactly() -> None:
    run = PROBE.run(options_of("cpu-work", "--count", "2", "--iterations", "12_345"), Progress())
    assert run.circumstances["iterations"] == "12345"


@pytest.mark.measured
def test_work_begins_on_a_grid_of_time() -> None:
    at_s, _, _ = measure(10, 4, None, 0.1, Progress())
    assert [round(at, 1) for at in at_s] == [0.0, 0.1, 0.2, 0.3]


@pytest.mark.measured
def test_seconds_end_the_work() -> None:
    at_s, _, _ = measure(calibrate(5), 10**6, 0.2, None, Progress())
    assert 0 < at_s[-1] < 0.2


@pytest.mark.measured
def test_seconds_end_the_work_before_one_that_would_begin_later() -> None:
    before = time.monotonic()
    at_s, _, _ = measure(10, 10**6, 0.25, 0.1, Progress())
    assert [round(at, 1) for at in at_s] == [0.0, 0.1, 0.2]
    assert len(measure(10, 10**6, 0.1, 20.0, Progress())[0]) == 1
    assert time.monotonic() - before < 10


def test_a_stop_in_the_middle_of_the_work_keeps_what_is_done() -> None:
    run = PROBE.run(options_of("cpu-work", "--count", "50", "--iterations", "1000"), StopOnce(2))
    assert run.values["samples"].value == 2
