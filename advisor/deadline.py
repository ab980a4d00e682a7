"""How long a computation may take, and how it reports its progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from advisor.errors import DeadlinePassed

_until: ContextVar[float] = ContextVar("until", default=math.inf)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Give what is asked inside, in this thread or task and those that copy its context, so much time from now."""
    token = _until.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _until.reset(token)


def left_s() -> float:
    """Seconds that are left, below 0 when the time is up, infinite without a limit."""
    return _until.get() - time.monotonic()


def check() -> None:
    """DeadlinePassed when the time is up; called between the steps of a question, never within a change."""
    if left_s() < 0:
        raise DeadlinePassed("the time for this request is over before it was answered; ask again, or allow it more")


# How far a long piece of work is.

Progress = Callable[[str, float], None]  # (what is being done, fraction done 0-1)
