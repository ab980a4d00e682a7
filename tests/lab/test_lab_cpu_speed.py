"""The speed of CPUs while others work on them: by CPU, by time, and without a trace."""

from __future__ import annotations

import os
import threading
import time

import pytest

from lab.cpu_speed import SpeedWatch
from lab.processes import wait_until

CPU = min(os.sched_getaffinity(0))


@pytest.mark.measured
def test_cpus_that_are_there_have_a_speed_and_others_are_left_out() -> None:
    before, threads = os.sched_getaffinity(0), set(threading.enumerate())
    begin = time.monotonic()
    with SpeedWatch({CPU, 9999}) as watch:
        time.sleep(0.7)
        speeds = watch.between(begin, time.monotonic())
    assert list(speeds) == [CPU]
    assert speeds[CPU] > 0
    assert os.sched_getaffinity(0) == before
    assert set(threading.enumerate()) <= threads


@pytest.mark.measured
def test_only_what_was_sampled_between_the_two_times_counts() -> None:
    with SpeedWatch({CPU}) as watch:
        time.sleep(0.4)
        middle = time.monotonic()
        assert watch.between(middle - 0.4, middle)
        assert watch.between(middle, middle + 10) == {}


def test_a_neighbour_on_the_same_cpu_takes_time_and_not_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the thread is asked, not the clock on the wall."""
    monkeypatch.setattr("lab.cpu_speed.time.thread_time", iter((0.0, 0.0004) * 100).__next__)
    begin = time.monotonic()
    with SpeedWatch({CPU}) as watch:
        assert wait_until(lambda: CPU in watch.between(begin, time.monotonic()), 20)
        assert watch.between(begin, time.monotonic())[CPU] == pytest.approx(1.0)


def test_a_watch_of_nothing_knows_nothing() -> None:
    with SpeedWatch(()) as watch:
        assert watch.between(0, time.monotonic()) == {}
