"""Measuring a run: when it begins and ends, who keeps pressing meanwhile, what is said of unsteady and failing ones."""

from __future__ import annotations

from typing import Any

import pytest

from lab import measure as module
from lab import processes, usage_windows
from lab.errors import RunError
from lab.measure import RunMeasurement, Timing, measure
from profiler.backends import BackendError
from tests.lab import lab_doubles
from tests.lab.lab_doubles import FakeInstances, FakeWorkload

SHORT = Timing(1, 0.1, 0.1)


class _Clock:
    """Time that passes where a program sleeps, and 0.1 ms whenever it is asked for."""

    def __init__(self) -> None:
        self._now = 1000.0

    def monotonic(self) -> float:
        self._now += 1e-4
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds

    time = thread_time = monotonic


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    made = _Clock()
    for place in (module, processes, usage_windows, lab_doubles):
        monkeypatch.setattr(place, "time", made)
    return made


def _measure(instances: Any, timing: Timing = SHORT) -> RunMeasurement:
    return measure(instances, timing, {})


def test_a_window_is_as_long_as_asked_for_and_ends_before_the_programs_do() -> None:
    instances = FakeInstances(FakeWorkload(), FakeWorkload())
    measured = _measure(instances)
    assert measured.seconds == pytest.approx(0.9, abs=0.035)  # of which it looks every 0.03 s
    assert {name: reached.throughput for name, reached in measured.reached.items()} == {"a": 100.0, "b": 100.0}
    assert all(program.stopped for member in instances.members for program in member.started)
    assert all(backend.closed for backend in instances.backends)


def test_who_needs_longer_to_begin_is_released_earlier() -> None:
    instances = FakeInstances(FakeWorkload(lead_s=0.3, late_s=0.3), FakeWorkload())
    _measure(instances)
    (early,), (late,) = (
        [program.began or 0.0 for program in member.started if program.command[0] == "work"]
        for member in instances.members
    )
    assert late - early == pytest.approx(0.3, abs=0.002)


def test_windows_cover_warm_up_and_measured_time_apart() -> None:
    measured = _measure(FakeInstances(FakeWorkload()), Timing(1, 0.6, 0.6))
    cpu = measured.series.of("a")["cpu"]
    assert cpu == pytest.approx([50.0] * len(cpu), abs=0.1)
    assert sum(at_s <= 0 for at_s in measured.series.at_s) >= 2
    assert sum(at_s > 0 for at_s in measured.series.at_s) >= 3
    assert len(measured.series.activity("a")) == sum(at_s > 0 for at_s in measured.series.at_s)


def test_fixed_work_ends_the_window_when_it_is_done() -> None:
    longer = _measure(FakeInstances(FakeWorkload(lasts_s=1.6, fixed=True), FakeWorkload()))
    assert longer.seconds == pytest.approx(1.6, abs=0.035)
    shorter = _measure(FakeInstances(FakeWorkload(lasts_s=0.5, fixed=True), FakeWorkload()))
    assert shorter.seconds == pytest.approx(0.5, abs=0.035)


def test_who_is_done_early_keeps_pressing_on_the_others() -> None:
    instances = FakeInstances(
        FakeWorkload(lasts_s=0.4, fixed=True, filler_s=0.2), FakeWorkload(lasts_s=1.5, fixed=True)
    )
    _measure(instances)
    fillers = [program for program in instances.members[0].started if program.command[0] == "fill"]
    assert len(fillers) >= 4  # the warm-up's, and one after the other once it was done


def test_fixed_work_that_is_never_done_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FIXED_S", 0.5)
    with pytest.raises(RunError, match=r"^a did not end within"):
        _measure(FakeInstances(FakeWorkload(lasts_s=60, fixed=True), FakeWorkload()))


def test_a_program_that_hangs_fails_the_run_and_everything_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LATE_S", 0.2)
    instances = FakeInstances(FakeWorkload(), FakeWorkload(late_s=60))
    with pytest.raises(RunError, match=r"^b did not end within"):
        _measure(instances)
    assert all(program.stopped for member in instances.members for program in member.started)


def test_a_filler_that_fails_is_reported_before_anything_is_measured() -> None:
    with pytest.raises(RunError, match="a: fill ended with status 3 in the warm-up: it broke"):
        _measure(FakeInstances(FakeWorkload(filler_s=0.0, filler_code=3)))


def test_a_warm_up_goes_on_until_windows_are_steady_and_no_longer() -> None:
    steady = _measure(FakeInstances(FakeWorkload()), Timing(1, 0.1, 6.0))
    assert 1.0 < steady.warmup_s < 3.0
    growing = _measure(FakeInstances(FakeWorkload(), used_s=lambda seconds: 0.05 * seconds**2), Timing(1, 0.1, 2.5))
    assert growing.warmup_s == pytest.approx(2.5, abs=0.035)


def test_a_run_whose_windows_drift_is_marked_and_kept() -> None:
    drifting = _measure(FakeInstances(FakeWorkload(), used_s=lambda seconds: 0.2 * seconds**2), Timing(2, 0.1, 0.1))
    assert drifting.unsteady == ("a",)
    assert drifting.reached["a"].throughput == 100.0
    assert _measure(FakeInstances(FakeWorkload()), Timing(2, 0.1, 0.1)).unsteady == ()


@pytest.mark.parametrize("after", ["_release", "_window"])
def test_a_run_whose_readings_come_late_is_disturbed(
    after: str, clock: _Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen on a busy host: a window of 0.02 s beside the throughput of a second, and hardly anything foreign in it."""
    assert not _measure(FakeInstances(FakeWorkload())).disturbed
    on_time = getattr(module, after)

    def held_up(*arguments: Any) -> Any:
        result = on_time(*arguments)
        clock.sleep(0.25)
        return result

    monkeypatch.setattr(module, after, held_up)
    assert _measure(FakeInstances(FakeWorkload())).disturbed


def test_counters_that_cannot_be_read_fail_the_run_in_one_sentence() -> None:
    instances: Any = FakeInstances(FakeWorkload())

    def refuse() -> None:
        raise BackendError("no counters here")

    instances.backend = refuse
    with pytest.raises(RunError, match="its counters cannot be read: no counters here"):
        _measure(instances)


def test_where_only_one_may_read_it_does_both() -> None:
    instances: Any = FakeInstances(FakeWorkload())
    first = instances.backend

    def only_once() -> Any:
        if instances.backends:
            raise BackendError("another reader is there")
        return first()

    instances.backend = only_once
    measured = _measure(instances)
    assert len(instances.backends) == 1
    assert measured.series.of("a")["cpu"]
