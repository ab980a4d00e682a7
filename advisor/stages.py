"""Stages of a question, timed where a front end asks for it: so an operator sees where the time of an answer goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Literal, Protocol, get_args

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
