"""The agent's loop: samples once a period, with a log that repeats nothing."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import TextIO

from profiler.backends import Backend, Counters
from profiler.collectors import collect
from profiler.collectors.windows import Key, MetricWindow, Statistic, WindowAggregator

# The agent's log: one line per event on standard error, as `key=value` or JSON, with repeats suppressed for a
# minute.

EVERY_S = 60.0  # the same message is not logged more often
_REMEMBERED = 1000  # messages; more kinds than this in a minute may repeat earlier
_NUMBERS = re.compile(r"\d+")
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@%+,=-]+\Z")

Value = str | int | float | None


class Log:
    """Writes events; safe to use from every thread, and never raises: a host without a log is still measured."""

    def __init__(
        self, stream: TextIO | None = None, *, as_json: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream or sys.stderr
        self._as_json = as_json
        self._clock = clock
        self._lock = threading.Lock()
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}  # when logged last, how often suppressed since

    def info(self, event: str, **fields: Value) -> None:
        """Log an event at level info. Such events are rare and never suppressed."""
        self._write("info", event, fields)

    def warn(self, event: str, same: str = "", **fields: Value) -> None:
        """Log what went wrong. Within a minute, a repeat of an event with the same `same` is only counted.

        Numbers in `same` make no difference: process ids and times would make every message a new one.
        """
        now, same = self._clock(), _NUMBERS.sub("0", same)
        with self._lock:
            last, suppressed = self._logged.get((event, same), (-EVERY_S, 0))
            if now - last < EVERY_S:
                self._logged[event, same] = (last, suppressed + 1)
                return
            if len(self._logged) >= _REMEMBERED:
                del self._logged[next(iter(self._logged))]
            self._logged.pop((event, same), None)  # so that the oldest stands first
            self._logged[event, same] = (now, 0)
        self._write("warning", event, {**fields, "repeated": suppressed} if suppressed else fields)

    def _write(self, level: str, event: str, fields: dict[str, Value]) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line: dict[str, Value] = {"time": stamp, "level": level, "event": event, **fields}
        text = json.dumps(line) if self._as_json else " ".join(f"{name}={_shown(line[name])}" for name in line)
        with contextlib.suppress(OSError, ValueError):  # the reader is gone, or the disk is full
            self._stream.write(text + "\n")
            self._stream.flush()


def _shown(value: Value) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if _PLAIN.match(text) else json.dumps(text)  # one line, whatever text a tool or a server gave


# Reads a backend in a thread of its own, so that a tool that hangs keeps no other thread waiting.


@dataclass(frozen=True, slots=True)
class ReaderResult:
    """The result of one request: counters, or in `error` why there are none; `seconds` is how long it took."""

    counters: Counters | None
    error: str
    seconds: float


class ReaderThread:
    """Gives each reading to `done`, in its own thread. At most one reading is under way."""

    def __init__(
        self,
        backend: Backend,
        done: Callable[[ReaderResult], None],
        after_reading: Callable[[Backend], None] | None = None,
    ) -> None:
        """`after_reading` gets the backend after each reading; it must not raise."""
        self._backend = backend
        self._done = done
        self._after_reading = after_reading
        self._requests: SimpleQueue[bool] = SimpleQueue()  # False = end
        # A daemon: a thread that hangs in a tool must not keep the agent from ending.
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self._thread.start()

    def request(self) -> None:
        """Ask for one reading; the caller waits for it before asking again."""
        self._requests.put(True)

    def close(self, timeout_s: float) -> None:
        """End after the reading under way and close the backend, without waiting longer than `timeout_s` for that."""
        self._requests.put(False)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while self._requests.get():
            self._done(self._read())
            if self._after_reading is not None:
                self._after_reading(self._backend)
        with contextlib.suppress(Exception):  # the thread ends anyway, and what was measured is kept
            self._backend.close()

    def _read(self) -> ReaderResult:
        begun = time.perf_counter()
        counters, error = None, ""
        try:
            counters = self._backend.read_counters()
        except Exception as failure:  # noqa: BLE001 - whatever goes wrong costs one reading, never the agent
            error = f"{type(failure).__name__}: {failure}"
        return ReaderResult(counters, error, time.perf_counter() - begun)


BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # of how long readings take
JUMP_S = 1.0  # more than this between wall clock and monotonic clock from one reading to the next is a jump
REASONS = ("clock", "failed", "gap", "late", "new", "reset", "tasks_ended", "vanished")  # for samples not made
WINDOW_REASONS = ("clock_jump", "suspended", "thin")  # for windows not reported
_GAP = 3.5  # intervals between two readings, after which the rates between them are no samples of one interval
_SHORTEST_GAP_S = 1.0  # … and never less than this: a busy host may hold a fast agent up for a moment
_GRACE_S = 0.5  # for the reading under way when the agent ends


class StartError(Exception):
    """A part of the agent cannot start with its options; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often to read, how long windows are, and when to end by itself (None = never); all in seconds."""

    interval_s: float = 1.0
    window_s: float = 10.0
    duration_s: float | None = None
    one_window: bool = False


@dataclass(frozen=True, slots=True)
class AgentView:
    """A snapshot of the agent, for the exporter. `dropped` and `windows_dropped` count by reason.

    `durations` has one count for each of BUCKETS_S and one for longer readings.
    """

    host: str
    backend: str
    totals: Mapping[Key, float]
    window: MetricWindow | None
    readings: int
    dropped: Mapping[str, int]
    windows: int
    windows_dropped: Mapping[str, int]
    durations: tuple[int, ...]
    duration_sum_s: float


def suspended_s() -> float:
    """Seconds for which this host slept since it booted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


class Agent:
    """Measures until it is stopped and gives every finished window to `deliver`, which must not block."""

    def __init__(
        self,
        backend: Backend,
        pace: Pace,
        deliver: Callable[[MetricWindow], None],
        log: Log,
        asleep: Callable[[], float] = suspended_s,
        after_reading: Callable[[Backend], None] | None = None,
        window_series: Callable[[float], Mapping[Key, Statistic]] | None = None,
    ) -> None:
        """`after_reading` gets the backend after each reading, in the thread that reads.

        `window_series` gets the length of each window at its end, in seconds, and returns further series for it.
        """
        self._backend = backend
        self._pace = pace
        self._deliver = deliver
        self._log = log
        self._asleep = asleep
        self._after_reading = after_reading
        self._window_series = window_series
        self._slept_s = asleep()
        self._inbox: SimpleQueue[ReaderResult | None] = SimpleQueue()  # None = stop
        self._lock = threading.Lock()  # over everything that view() shows
        self._windows = WindowAggregator(pace.window_s, pace.interval_s)
        self._window: MetricWindow | None = None
        self._before: Counters | None = None
        self._stopping = False
        self._reading = False
        self._missed = 0  # ticks that passed while the reading under way hung
        self._readings = 0
        self._finished = 0
        self._dropped: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._windows_dropped: Counter[str] = Counter(dict.fromkeys(WINDOW_REASONS, 0))
        self._durations = [0] * (len(BUCKETS_S) + 1)
        self._duration_sum_s = 0.0

    def run(self) -> None:
        """Measure until `stop` is called or the time is up; then the window in progress is delivered, too."""
        reader = ReaderThread(self._backend, self._inbox.put, self._after_reading)
        begin, interval = time.monotonic(), self._pace.interval_s
        last = None if self._pace.duration_s is None else int(self._pace.duration_s / interval + 1e-9)
        tick = 0
        while not self._stopping and not self._is_done(tick, last):
            wait = begin + tick * interval - time.monotonic()
            if wait > 0:
                self._receive(wait)
                continue
            if last is not None and tick > last:
                break
            self._tick(reader)
            now_tick = int((time.monotonic() - begin) / interval)
            if now_tick > tick:  # the loop itself was held up
                self._drop("late", now_tick - tick)
            tick = max(tick, now_tick) + 1
        reader.close(_GRACE_S)
        while not self._inbox.empty():
            self._receive(0)
        self._close_window()

    def stop(self) -> None:
        """End soon. Safe to call from a signal handler and from any thread."""
        self._stopping = True
        self._inbox.put(None)

    def view(self) -> AgentView:
        """A snapshot of the agent now."""
        with self._lock:
            return AgentView(
                self._backend.host, self._backend.name, self._windows.totals(), self._window,
                self._readings, dict(self._dropped), self._finished, dict(self._windows_dropped),
                tuple(self._durations), self._duration_sum_s,
            )  # fmt: skip

    def _is_done(self, tick: int, last: int | None) -> bool:
        if self._pace.one_window and self._finished + sum(self._windows_dropped.values()):
            return True
        return last is not None and tick > last and not self._reading

    def _tick(self, reader: ReaderThread) -> None:
        if not self._reading:
            self._reading, self._missed = True, 0
            reader.request()
            return
        self._missed += 1
        self._drop("late", 1)
        self._log.warn("late", error="a reading takes longer than --every; choose a longer time", missed=self._missed)
        if self._windows.due(time.monotonic()):
            self._close_window()

    def _receive(self, wait_s: float) -> None:
        """Take the reading under way if it ends within `wait_s`."""
        try:
            reading = self._inbox.get(timeout=wait_s) if wait_s > 0 else self._inbox.get_nowait()
        except Empty:
            return
        if reading is not None:
            self._take(reading)

    def _take(self, reading: ReaderResult) -> None:
        missed, self._reading, self._missed = self._missed, False, 0
        with self._lock:
            self._readings += 1
            self._durations[bisect_left(BUCKETS_S, reading.seconds)] += 1
            self._duration_sum_s += reading.seconds
        if reading.counters is None:
            self._drop("failed", 1)
            self._log.warn("failed", same=reading.error, error=reading.error[:1000])
        elif missed:
            self._drop("late", 1)
            self._log.warn("late", same="done", error="a reading was dropped", seconds=reading.seconds)
        elif self._before is None:
            self._before = reading.counters
        else:
            self._compare_safely(self._before, reading.counters)
        if self._windows.due(time.monotonic()):
            self._close_window()

    def _compare_safely(self, before: Counters, now: Counters) -> None:
        self._before = now
        try:
            self._compare(before, now)
        except Exception as error:  # noqa: BLE001 - a backend that counts nonsense costs its samples, never the agent
            self._before = None
            self._drop("failed", 1)
            text = f"no rates from two readings: {type(error).__name__}: {error}"
            self._log.warn("failed", same="compare", error=text[:1000])

    def _compare(self, before: Counters, now: Counters) -> None:
        seconds = now.monotonic_s - before.monotonic_s
        jump_s = now.time_s - before.time_s - seconds
        if abs(jump_s) > JUMP_S:
            self._jumped(jump_s)
            return
        if seconds > max(_GAP * self._pace.interval_s, _SHORTEST_GAP_S):
            self._drop("gap", 1)
            self._log.warn("gap", error="the reading before was too long ago to compare with", seconds=seconds)
            return
        collected = collect(before, now)
        with self._lock:
            self._dropped.update(drop.reason for drop in collected.drops)
            self._windows.add(collected, now.monotonic_s)

    def _jumped(self, jump_s: float) -> None:
        """Drop the window in progress: time stamps before and after the jump do not compare."""
        slept_s = self._asleep()
        reason = "suspended" if slept_s - self._slept_s > JUMP_S else "clock_jump"
        self._slept_s = slept_s
        self._drop("clock", 1)
        self._log.warn(reason, seconds=jump_s, error="the window in progress is dropped")
        with self._lock:
            self._windows.abandon()
            self._windows_dropped[reason] += 1

    def _close_window(self) -> None:
        with self._lock:
            window = self._windows.close(time.monotonic())
        further = self._window_series(window.seconds) if self._window_series else {}
        if window.series and further:
            window = replace(window, series={**window.series, **further})
        with self._lock:
            self._window = window if window.series else None  # a window without series must not show the one before
            if window.series:
                self._finished += 1
            elif window.seconds >= self._pace.interval_s:  # else nothing had begun
                self._windows_dropped["thin"] += 1
        if window.series:
            self._deliver(window)
        elif window.thin:
            self._log.warn("window_dropped", reason="thin", error="under half of its readings came", series=window.thin)

    def _drop(self, reason: str, count: int) -> None:
        with self._lock:
            self._dropped[reason] += count
