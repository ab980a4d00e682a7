"""Lanes: the threads in which requests are worked on; few, with a short queue, so that a crowd is refused, not kept."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, wraps
from typing import Any, Literal, TypeVar

from advisor import deadline
from advisor.errors import DeadlinePassed
from api.problems import Busy

T = TypeVar("T")
LaneName = Literal["question", "storage", "long", "none"]
CPUS = len(os.sched_getaffinity(0))
# Threads and places in the queue. Questions compute: more threads than CPUs make none of them faster and each of them
# late. Who stores or looks up waits for the database, seldom for a CPU. What takes seconds has a lane of its own.
SIZES: Mapping[LaneName, tuple[int, int]] = {"question": (CPUS, 128), "storage": (16, 512), "long": (1, 16)}


class Lane:
    """So many threads and so many places to wait; `running` and `waiting` may be read by whoever watches."""

    def __init__(self, name: str, threads: int, places: int) -> None:
        self.name = name
        self.threads = threads
        self.places = places
        self._there = 0  # in a thread or in the queue
        self._counting = threading.Lock()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    @property
    def running(self) -> int:
        """Threads at work."""
        return min(self._there, self.threads)

    @property
    def waiting(self) -> int:
        """Requests that no thread has taken up."""
        return max(self._there - self.threads, 0)

    async def run(self, work: Callable[[], T]) -> T:
        """Do it in a thread of the lane; Busy when the queue is full, DeadlinePassed as soon as the time is up.

        What has begun then goes on to its next step, and keeps its thread until there.
        """
        left_s = deadline.left_s()
        if left_s <= 0:
            deadline.check()
        with self._counting:
            if self._there >= self.threads + self.places:
                raise Busy(f"{self.places} requests wait already; ask again in a moment")
            self._there += 1
        begun: Future[T] = self._pool.submit(copy_context().run, work)
        begun.add_done_callback(self._leave)
        result = asyncio.wrap_future(begun)
        try:
            done, _ = await asyncio.wait([result], timeout=None if left_s == float("inf") else left_s)
        except asyncio.CancelledError:
            begun.cancel()
            raise
        if not done:
            result.add_done_callback(_forget)
            begun.cancel()
            raise DeadlinePassed(f"the time for this request was over before a {self.name} thread had answered it")
        return result.result()

    def _leave(self, _done: Future[Any]) -> None:
        with self._counting:
            self._there -= 1

    def close(self) -> None:
        """Let the threads end."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Lanes:
    """The lanes of one application."""

    def __init__(self) -> None:
        self.by_name: Mapping[LaneName, Lane] = {name: Lane(name, *size) for name, size in SIZES.items()}

    def wrap(self, endpoint: Callable[..., T], name: LaneName) -> Callable[..., Awaitable[T]]:
        """The same endpoint, run in a lane; to FastAPI it looks as it did."""
        lane = self.by_name[name]

        @wraps(endpoint)
        async def in_lane(*args: Any, **kwargs: Any) -> T:
            return await lane.run(partial(endpoint, *args, **kwargs))

        return in_lane

    def close(self) -> None:
        """Let all threads end."""
        for lane in self.by_name.values():
            lane.close()


def _forget(result: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more, whatever came of it."""
    if not result.cancelled():
        result.exception()
