"""Measures which instance waits for which: runs cotenant-run-queue and turns its counts per group into instances'."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from profiler.agent.log import Log
from profiler.backends import Backend, GroupedBackend
from profiler.backends.stream_child import StreamChild
from profiler.collectors.run_queue import OTHERS, InstanceWaits, RunQueueWindow
from profiler.collectors.windows import Key, Statistic
from profiler.parse.run_queue import RunQueueCounts, parse_run_queue
from profiler.parse.text import ParseError

_PERIOD_S = 1  # of the lines that it prints
_LOOK_AGAIN_S = 4.5  # between two listings of the groups
_LONGEST_LINE = 1 << 24  # bytes; one of 4,096 groups is under 2 MB
_ENOUGH = 0.5  # share of a window without which its percentiles say nothing about it


@dataclass(frozen=True, slots=True)
class RunQueueStatus:
    """`waited_for` are seconds since the agent started, by victim and who ran meanwhile.

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
