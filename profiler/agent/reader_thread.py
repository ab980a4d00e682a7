"""Reads a backend in a thread of its own, so that a tool that hangs keeps no other thread waiting."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

from profiler.backends import Backend, Counters


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
