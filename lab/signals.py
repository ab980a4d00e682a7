"""Stop signals: they raise StopRequested while the lab measures, and are ignored while it cleans up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from lab.errors import StopRequested

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stoppable() -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal become StopRequested; the same signals during clean-up change nothing."""

    def stop(number: int, _frame: FrameType | None) -> None:
        for stopping in _STOPPING:
            signal.signal(stopping, signal.SIG_IGN)
        raise StopRequested(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in _STOPPING}
    if before[signal.SIGHUP] is signal.SIG_IGN:  # started with nohup, in order to outlive its terminal
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def deaf() -> Iterator[None]:
    """Ignore stopping signals meanwhile."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
