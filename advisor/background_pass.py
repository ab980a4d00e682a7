"""A pass over what is stored, again and again in a thread of its own, so that no request waits for it."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod

from advisor.errors import AdvisorError


class BackgroundPass(ABC):
    """One per process: a pass begins when a caller nudges it and it is time, and only one runs at a time.

    `name` is that of the thread, `failed` says in the log what was not done when a pass fails. The first one begins
    after `first_s` seconds, the next `every_s` after the last began.
    """

    def __init__(self, name: str, failed: str, *, first_s: float, every_s: float) -> None:
        self._name, self._failed, self._every_s = name, failed, every_s
        self._due_s = time.monotonic() + first_s
        self._starting = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def nudge(self) -> None:
        """Begin in the background when it is time."""
        if time.monotonic() < self._due_s:
            return
        with self._starting:
            running = self._thread is not None and self._thread.is_alive()
            if time.monotonic() < self._due_s or running or self._stopping.is_set():
                return
            self._due_s = time.monotonic() + self._every_s
            self._thread = threading.Thread(target=self._in_background, name=self._name, daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop after the step under way."""
        with self._starting:
            self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    @abstractmethod
    def _pass(self) -> None:
        """Go over everything once, with pauses."""

    def _rest(self, began: float, *, pausing: bool) -> bool:
        """Rest for as long as the step took that began at `began` (monotonic s); True = stop."""
        return self._stopping.wait(time.monotonic() - began if pausing else 0.0)

    def _in_background(self) -> None:
        log = logging.getLogger(type(self).__module__)
        try:
            self._pass()
        except AdvisorError as error:  # the next one may find the database in better health
            log.warning("%s: %s", self._failed, error)
        except Exception:
            log.exception("%s", self._failed)
