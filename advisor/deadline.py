"""How long a computation may take, how it reports its progress, and in which stages a question spends its time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Literal, Protocol, get_args

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


Stage = Literal["queue", "snapshot", "filters", "predict", "explain", "store"]
STAGES: tuple[Stage, ...] = get_args(Stage)


class Watch(Protocol):
    """What a front end does with the stages of a request."""

    def stage(self, name: Stage) -> AbstractContextManager[None]:
        """Around a stage."""

    def waited(self, seconds: float) -> None:
        """The stage `queue` has ended: the request has waited so long for a thread."""


_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched_by(watch: Watch) -> Iterator[None]:
    """Inside, and in threads that take this context over, stages are reported to `watch`."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


def watching() -> Watch | None:
    """What watches here."""
    return _watch.get()


@contextmanager
def stage(name: Stage) -> Iterator[None]:
    """Around a stage of a question; it costs next to nothing where no front end watches."""
    watch = _watch.get()
    if watch is None:
        yield
    else:
        with watch.stage(name):
            yield
