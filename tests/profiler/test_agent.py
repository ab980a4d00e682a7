"""The agent's loop: on time, never blocked, every sample that is not made is counted, every window is of one piece."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from lab.processes import wait_until
from profiler.agent.loop import Agent, Log, Pace
from profiler.backends import BackendError, Counters
from profiler.collectors.windows import Key, MetricWindow
from tests.profiler.steady_backend import SteadyBackend

CPU: Key = ("a", "instance", "cpu")
TICK = 0.05


class Bench:
    """An agent in a thread, with what it delivered and what it said."""

    def __init__(self, backend: SteadyBackend, asleep: Callable[[], float] = lambda: 0.0, **pace: float | bool) -> None:
        self.backend = backend
        self.windows: list[MetricWindow] = []
        self.said = io.StringIO()
        settings = {"interval_s": TICK, "window_s": 0.5, **pace}
        self.agent = Agent(backend, Pace(**settings), self.windows.append, Log(self.said), asleep)  # type: ignore[arg-type]
        self._thread = threading.Thread(target=self.agent.run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def run(self) -> None:
        self.start()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def until(self, condition: Callable[[], object]) -> None:
        assert wait_until(lambda: bool(condition()), 60), (self.agent.view(), self.said.getvalue())

    def stop(self) -> float:
        """Seconds it took to end."""
        begun = time.monotonic()
        self.agent.stop()
        self._thread.join(10)
        assert not self._thread.is_alive()
        return time.monotonic() - begun


@pytest.mark.measured
def test_windows_have_the_rate_that_the_counters_show() -> None:
    bench = Bench(SteadyBackend(), duration_s=1.5)
    bench.run()
    assert len(bench.windows) >= 2
    for window in bench.windows:
        assert window.series[CPU].mean == pytest.approx(50, rel=1e-3)
        assert window.series[CPU].p95 == pytest.approx(50, rel=1e-3)
        assert window.host == "h1"
        assert window.end_s == pytest.approx(time.time(), abs=10)
    view = bench.agent.view()
    assert view.windows == len(bench.windows)
    seconds = bench.backend.begun[-1] - bench.backend.begun[0]
    assert view.totals[CPU] == pytest.approx(50 * seconds, rel=0.3)
    assert sum(view.durations) == view.readings == len(bench.backend.begun)


@pytest.mark.measured
def test_readings_begin_on_a_grid_that_does_not_drift() -> None:
    backend = SteadyBackend(lambda _number: time.sleep(0.01))
    Bench(backend, duration_s=2.0).run()
    offsets = [(begun - backend.begun[0]) % TICK for begun in backend.begun]
    late = sorted(min(offset, TICK - offset) for offset in offsets)
    assert late[len(late) // 2] < 0.01, "ten milliseconds a reading would have added up to 400"
    assert len(backend.begun) >= 30


def test_readings_are_made_in_a_thread_of_their_own() -> None:
    backend = SteadyBackend()
    Bench(backend, duration_s=0.2).run()
    assert backend.threads == {"reader"}
    assert backend.closed.is_set()


@pytest.mark.measured
def test_a_tool_that_hangs_costs_its_samples_and_blocks_nothing() -> None:
    hang = threading.Event()
    backend = SteadyBackend(lambda number: hang.wait(20) if number == 5 else None)
    bench = Bench(backend)
    bench.start()
    bench.until(lambda: bench.agent.view().dropped["late"] >= 10)
    assert len(backend.begun) == 6, "no reading is begun while one hangs"
    hang.set()
    bench.until(lambda: len(bench.windows) >= 2)
    bench.stop()
    assert bench.agent.view().dropped["late"] >= 11
    assert bench.said.getvalue().count("event=late") <= 2
    assert all(window.series[CPU].mean == pytest.approx(50, rel=1e-3) for window in bench.windows)


def test_while_a_tool_hangs_old_windows_are_not_shown_as_new() -> None:
    hang, shown = threading.Event(), threading.Event()

    def hang_once_a_window_is_shown(_number: int) -> None:
        if bench.agent.view().window is not None:
            shown.set()
            hang.wait(20)

    bench = Bench(SteadyBackend(hang_once_a_window_is_shown))
    bench.start()
    bench.until(shown.is_set)
    bench.until(lambda: bench.agent.view().window is None)
    assert bench.agent.view().windows_dropped["thin"] >= 1
    hang.set()
    bench.stop()


@pytest.mark.measured
def test_it_ends_in_time_though_a_tool_hangs() -> None:
    hang = threading.Event()
    bench = Bench(SteadyBackend(lambda number: hang.wait(20) if number == 3 else None))
    bench.start()
    bench.until(lambda: bench.agent.view().dropped["late"])
    assert bench.stop() < 2
    hang.set()


@pytest.mark.parametrize(
    "error", [BackendError("xl gives no answer"), OSError(5, "I/O"), ValueError("a bug"), KeyError("x")]
)
@pytest.mark.measured
def test_a_reading_that_fails_costs_one_sample(error: Exception) -> None:
    def trouble(number: int) -> None:
        if number in (3, 4):
            raise error

    bench = Bench(SteadyBackend(trouble), duration_s=0.9)
    bench.run()
    assert bench.agent.view().dropped["failed"] == 2
    assert bench.said.getvalue().count("event=failed") == 1
    assert bench.windows[0].series[CPU].mean == pytest.approx(50, rel=1e-3)


@pytest.mark.measured
def test_a_window_across_a_clock_jump_is_dropped_and_the_next_one_has_the_new_time() -> None:
    backend = SteadyBackend()
    backend.trouble = lambda number: setattr(backend, "skew_s", 3600.0 if number >= 15 else 0.0)
    bench = Bench(backend, duration_s=2.0)
    bench.run()
    view = bench.agent.view()
    assert view.windows_dropped["clock_jump"] == 1
    assert view.dropped["clock"] == 1
    before = [window for window in bench.windows if window.end_s < time.time() + 1000]
    assert before and len(before) < len(bench.windows)
    assert view.totals[CPU] > 0


@pytest.mark.measured
def test_a_host_that_slept_is_distinguished_from_a_clock_that_was_set() -> None:
    backend = SteadyBackend()
    backend.trouble = lambda number: setattr(backend, "skew_s", 500.0 if number >= 8 else 0.0)
    bench = Bench(backend, lambda: backend.skew_s, duration_s=0.8)
    bench.run()
    dropped = bench.agent.view().windows_dropped
    assert (dropped["suspended"], dropped["clock_jump"]) == (1, 0)


@pytest.mark.measured
def test_a_small_correction_of_the_clock_is_no_jump() -> None:
    backend = SteadyBackend()
    backend.trouble = lambda number: setattr(backend, "skew_s", 0.5 if number >= 8 else 0.0)
    bench = Bench(backend, duration_s=0.8)
    bench.run()
    assert bench.agent.view().windows_dropped["clock_jump"] == 0


@pytest.mark.measured
def test_rates_over_a_long_gap_are_no_samples() -> None:
    backend = SteadyBackend()
    backend.trouble = lambda number: setattr(backend, "stopped_s", 30.0 if number >= 8 else 0.0)
    bench = Bench(backend, duration_s=1.0)
    bench.run()
    assert bench.agent.view().dropped["gap"] == 1
    assert bench.agent.view().totals[CPU] < 50 * 20


@pytest.mark.measured
def test_instances_that_come_and_go_are_counted() -> None:
    backend = SteadyBackend()
    names = {0: ("a",), 4: ("a", "b"), 8: ("b",)}
    backend.trouble = lambda number: setattr(backend, "names", names.get(number, backend.names))
    bench = Bench(backend, duration_s=2.5)
    bench.run()
    view = bench.agent.view()
    assert (view.dropped["new"], view.dropped["vanished"]) == (1, 1)
    assert {key[0] for key in view.totals} == {"b", None}, "the exporter must not show who is gone"


@pytest.mark.measured
def test_stopping_delivers_the_window_in_progress() -> None:
    bench = Bench(SteadyBackend(), window_s=60.0)
    bench.start()
    bench.until(lambda: bench.agent.view().readings >= 6)
    assert bench.windows == []
    assert bench.stop() < 2
    assert bench.windows[0].series[CPU].samples >= 4


def test_one_window_is_enough_when_asked_for() -> None:
    bench = Bench(SteadyBackend(), one_window=True)
    bench.run()
    assert len(bench.windows) == 1


@pytest.mark.measured
def test_counters_that_make_no_sense_cost_their_samples() -> None:
    backend = SteadyBackend()
    plain = backend.read_counters

    def odd() -> Counters:
        counters = plain()
        return replace(counters, instances=counters.host) if len(backend.begun) == 4 else counters  # type: ignore[arg-type]

    backend.read_counters = odd  # type: ignore[method-assign]
    bench = Bench(backend, duration_s=0.9)
    bench.run()
    assert bench.agent.view().dropped["failed"] == 1
    assert bench.windows[0].series[CPU].mean == pytest.approx(50, rel=1e-3)
