"""Reads hardware counters of instances at the end of each window: by resctrl where mounted, perf events on request."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from profiler.agent.log import Log
from profiler.backends import Backend, ThreadedBackend
from profiler.backends.perf_events import CYCLES, HARDWARE, INSTRUCTIONS, PerfCounters
from profiler.backends.resctrl import ResctrlReader
from profiler.backends.source import HostSource
from profiler.collectors.windows import Key, Statistic

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
