"""How commands end: their exit codes, and what stops those that go on."""

from __future__ import annotations

import signal
import threading

FAILED, WRONG_USAGE, NO_HOST = 1, 2, 3  # NO_HOST: an answer that names no host


def stop_event() -> threading.Event:
    """An event that SIGINT and SIGTERM set from now on."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop
