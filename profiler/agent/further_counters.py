"""Counters beside a backend's: those of the processor, and which instance waits for which, by cotenant-run-queue."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from profiler.agent.loop import Log
from profiler.backends import Backend, GroupedBackend, ThreadedBackend
from profiler.backends.commands import StreamChild
from profiler.backends.hardware_counters import CYCLES, HARDWARE, INSTRUCTIONS, PerfCounters, ResctrlReader
from profiler.backends.sources import HostSource
from profiler.collectors.windows import OTHERS, InstanceWaits, Key, RunQueueWindow, Statistic
from profiler.parse.proc import RunQueueCounts, parse_run_queue
from profiler.parse.text import ParseError

# Reads hardware counters of instances at the end of each window: by resctrl where mounted, perf events on request.

EVENTS = ((HARDWARE, CYCLES), (HARDWARE, INSTRUCTIONS))
_LOOK_AGAIN_S = 4.5  # between two listings of threads and groups
_MOST_COUNTED = 4096  # threads and groups; each is two open files, a group two for each CPU
Target = int | str  # a thread, or the folder of a group


class HardwareWatch:
    """The thread that reads the backend calls `look`; one other thread calls everything else.

    Perf events make every switch between instances slower, so they are counted only where `events` are given: two
    pairs of the kernel's type and number. The metric is the count of the first per count of the second.
    """

    def __init__(self, source: HostSource, log: Log, events: Sequence[tuple[int, int]] = ()) -> None:
        self._log = log
        resctrl = ResctrlReader(source)
        self._resctrl = resctrl if resctrl.is_there() else None
        self._events = events
        self._looked_s: float | None = None
        self._threads: Mapping[str, tuple[int, ...]] = {}
        self._groups: Mapping[str, str] = {}
        self._open: dict[Target, PerfCounters] = {}
        self._counted: dict[Target, tuple[int, ...]] = {}
        self._memory: dict[str, int] = {}

    def look(self, backend: Backend) -> None:
        """List now and then which threads and groups belong to which instances."""
        now_s = time.monotonic()
        if not isinstance(backend, ThreadedBackend) or not (self._resctrl or self._events):
            return
        if self._looked_s is None or now_s - self._looked_s >= _LOOK_AGAIN_S:
            self._looked_s = now_s
            try:
                self._threads = dict(backend.threads())
                self._groups = dict(backend.counted_groups()) if self._events else {}
            except Exception as error:  # noqa: BLE001 - it costs these figures, never the agent
                self._warn(f"threads cannot be listed: {type(error).__name__}: {error}")

    def close_window(self, seconds: float) -> dict[Key, Statistic]:
        """End the window of this length; returns what each instance occupied, moved and needed in it."""
        values: dict[tuple[str, str], float] = {}
        if self._resctrl:
            values.update(self._read_resctrl(self._resctrl, seconds))
        if self._events:
            values.update(self._read_events())
        return {(name, "instance", metric): Statistic(value, value, 1) for (name, metric), value in values.items()}

    def close(self) -> None:
        """Stop counting."""
        for counters in self._open.values():
            counters.close()
        self._open.clear()

    def _read_resctrl(self, resctrl: ResctrlReader, seconds: float) -> Iterator[tuple[tuple[str, str], float]]:
        counters = resctrl.read(self._threads, {})
        for name, counts in counters.items():
            if counts.cache_bytes is not None:
                yield (name, "llc_mb"), counts.cache_bytes / (1 << 20)
            if counts.memory_bytes is not None and name in self._memory and seconds > 0:
                yield (name, "mem_bw_mb_s"), max(counts.memory_bytes - self._memory[name], 0) / 1e6 / seconds
        self._memory = {
            name: counts.memory_bytes for name, counts in counters.items() if counts.memory_bytes is not None
        }

    def _read_events(self) -> Iterator[tuple[tuple[str, str], float]]:
        threads, groups = self._threads, self._groups  # one snapshot: another thread replaces them
        targets: dict[str, tuple[Target, ...]] = {
            name: (groups[name],) if name in groups else tids for name, tids in threads.items()
        }
        self._close_others({target for of_instance in targets.values() for target in of_instance})
        for name, of_instance in targets.items():
            steps = [step for target in of_instance if (step := self._step(target)) is not None]
            cycles, instructions = (sum(step[event] for step in steps) for event in (0, 1))
            if instructions > 0:
                yield (name, "cpi"), cycles / instructions

    def _step(self, target: Target) -> tuple[int, ...] | None:
        """What was counted since the last window; None where counting has only begun, or is not possible."""
        if target not in self._open and len(self._open) >= _MOST_COUNTED:
            self._warn(f"more than {_MOST_COUNTED} threads and groups; cycles of the others are not counted")
            return None
        try:
            if target not in self._open:
                self._open[target] = _counters(self._events, target)
            now = self._open[target].read()
        except ProcessLookupError:
            return None  # it ended
        except OSError as error:
            self._warn(f"cycles are not counted: {error.strerror or error}")
            return None
        before, self._counted[target] = self._counted.get(target), now
        return None if before is None else tuple(after - was for after, was in zip(now, before, strict=True))

    def _close_others(self, targets: set[Target]) -> None:
        for ended in self._open.keys() - targets:
            self._open.pop(ended).close()
            self._counted.pop(ended, None)

    def _warn(self, problem: str) -> None:
        self._log.warn("hardware", same=problem, error=problem[:1000])


def _counters(events: Sequence[tuple[int, int]], target: Target) -> PerfCounters:
    return PerfCounters(events, thread=target) if isinstance(target, int) else PerfCounters(events, group=target)


# Measures which instance waits for which: runs cotenant-run-queue and turns its counts per group into instances'.

_PERIOD_S = 1  # of the lines that it prints
_LONGEST_LINE = 1 << 24  # bytes; one of 4,096 groups is under 2 MB
_ENOUGH = 0.5  # share of a window without which its percentiles say nothing about it


@dataclass(frozen=True, slots=True)
class RunQueueStatus:
    """`waited_for` are seconds since the agent started, by victim and what ran meanwhile.

    `problem` says why nothing is counted now; "" = it is.
    """

    waited_for: Mapping[tuple[str, str], float]
    problem: str


class RunQueueWatch:
    """The thread that reads the backend calls `look`; one other thread calls everything else."""

    def __init__(self, program: str, log: Log) -> None:
        argv = (program, "--every", str(_PERIOD_S))
        self._child = StreamChild(argv, "make run-queue builds it")
        self._log = log
        self._window = RunQueueWindow()
        self._stream = 0
        self._rest = b""
        self._lost = 0
        self._looked_s: float | None = None
        self._groups: Mapping[int, str] = {}
        self._groups_before: Mapping[int, str] = {}
        self._lock = threading.Lock()  # over what status() shows
        self._waited_for: Counter[tuple[str, str]] = Counter()
        self._problem = ""

    def start(self) -> None:
        """Start the program; if that fails, the reason is logged and the agent goes on without."""
        self._read_program()

    def look(self, backend: Backend) -> None:
        """List now and then which groups belong to which instances."""
        now_s = time.monotonic()
        if not isinstance(backend, GroupedBackend):
            return
        if self._looked_s is None or now_s - self._looked_s >= _LOOK_AGAIN_S:
            self._looked_s = now_s
            try:
                groups = backend.scheduling_groups()
            except Exception as error:  # noqa: BLE001 - it costs these figures, never the agent
                self._warn(f"groups cannot be listed: {type(error).__name__}: {error}")
                return
            self._groups_before, self._groups = self._groups, groups

    def close_window(self, seconds: float) -> dict[Key, Statistic]:
        """End the window of this length; returns percentiles of the waits of each instance, and for which it waited."""
        self._read_program()
        # instances that ended meanwhile are still known from the listing before
        waits = self._window.waits_of({**self._groups_before, **self._groups})
        self._window = RunQueueWindow()
        self._add_waits(waits)
        if waits.seconds < _ENOUGH * seconds:
            return {}
        return waits.series(set(self._groups.values()))

    def status(self) -> RunQueueStatus:
        """A snapshot, for the exporter and the summary."""
        with self._lock:
            return RunQueueStatus(dict(self._waited_for), self._problem)

    def close(self) -> None:
        """End the program."""
        self._child.close()

    def _add_waits(self, waits: InstanceWaits) -> None:
        present = {*self._groups_before.values(), *self._groups.values()}
        known = {*present, *OTHERS}
        with self._lock:
            self._waited_for.update(waits.waited_for)
            for pair in [pair for pair in self._waited_for if pair[0] not in present or pair[1] not in known]:
                del self._waited_for[pair]  # as all series of an instance that ended

    def _read_program(self) -> None:
        piece = self._child.read()
        if piece.stream != self._stream:
            self._stream, self._rest = piece.stream, b""
        *lines, self._rest = (self._rest + piece.data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines, self._rest = [self._rest], b""  # not a line, so parsing refuses it
        problem = piece.problem
        try:
            for line in lines:
                self._add(parse_run_queue(line.decode("utf-8", "replace")))
        except ParseError as error:
            problem = error.reason
            self._child.give_up(problem)
        with self._lock:
            self._problem = problem
        if problem:
            self._warn(problem)

    def _add(self, counts: RunQueueCounts) -> None:
        if counts.lost > self._lost:
            self._log.warn("run_queue_full", error="more groups wait than there is room for; not all waits count")
        self._lost = counts.lost
        self._window.add(counts)

    def _warn(self, problem: str) -> None:
        self._log.warn("run_queue", same=problem, error=f"{problem}; waiting comes from schedstat alone"[:1000])
