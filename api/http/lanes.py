"""Lanes: the threads in which requests are worked on; few, with a short queue, so that a crowd is refused, not kept."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial, wraps
from typing import Any, Literal, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from advisor import deadline
from advisor.errors import DeadlinePassed
from advisor.service import actor
from api.problems import Busy

T = TypeVar("T")
LaneName = Literal["question", "storage", "long", "admin", "sign_in", "none"]
_Job = tuple[Future[Any], Callable[[], Any]]
CPUS = len(os.sched_getaffinity(0))
# Threads and places in the queue. Questions compute: more threads than CPUs make none of them faster and each of them
# late. Who stores or looks up waits for the database, seldom for a CPU. What takes seconds has a lane of its own, and
# what administrators do has one, too: taking a bad model out of service must not wait for other people's plans.
SIZES: Mapping[LaneName, tuple[int, int]] = {
    "question": (CPUS, 128),
    "storage": (16, 512),
    "long": (1, 16),
    "admin": (1, 16),
    "sign_in": (4, 16),  # may wait for Keystone, on behalf of strangers
}
SHARE = 0.75  # of a lane, for one caller at most
MANY = {"local", "anybody"}  # stand for more than one caller: where no token is needed, and who signs in


class Lane:
    """So many threads and so many places to wait; `running` and `waiting` may be read by whoever watches.

    Callers take turns, and none of them has more than SHARE of what there is: whoever asks for everything at once
    delays nobody but itself.
    """

    def __init__(self, name: str, threads: int, places: int) -> None:
        self.name = name
        self.threads = threads
        self.places = places
        self._each = max(int(SHARE * (threads + places)), 1)
        self._there: Counter[str] = Counter()  # of each caller, in a thread or in the queue
        self._queues: OrderedDict[str, deque[_Job]] = OrderedDict()  # by caller; the first one's turn is next
        self._changing = threading.Lock()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    @property
    def running(self) -> int:
        """Threads at work."""
        return min(self._there.total(), self.threads)

    @property
    def waiting(self) -> int:
        """Requests that no thread has taken up."""
        return max(self._there.total() - self.threads, 0)

    async def run(self, work: Callable[[], T], caller: str | None = None) -> T:
        """Do it in a thread of the lane; Busy when the queue is full, DeadlinePassed as soon as the time is up.

        What has begun then goes on to its next step, and keeps its thread until there. A caller has its share of the
        lane; None = nobody's.
        """
        left_s = deadline.left_s()
        if left_s <= 0:
            deadline.check()
        job: _Job = (Future(), partial(copy_context().run, work))
        self._enqueue(job, caller)
        begun = job[0]
        begun.add_done_callback(lambda _: self._leave(caller))
        self._pool.submit(self._next)
        result = asyncio.wrap_future(begun)
        try:
            done, _ = await asyncio.wait([result], timeout=None if left_s == float("inf") else left_s)
        except asyncio.CancelledError:
            self._drop(job, caller)
            raise
        if not done:
            result.add_done_callback(_forget)
            self._drop(job, caller)
            raise DeadlinePassed(f"the time for this request was over before a {self.name} thread had answered it")
        answer: T = result.result()
        return answer

    def _enqueue(self, job: _Job, caller: str | None) -> None:
        name = caller or ""
        with self._changing:
            if self._there.total() >= self.threads + self.places:
                raise Busy(f"{self.places} requests wait already; ask again in a moment")
            if caller is not None and self._there[name] >= self._each:
                raise Busy(f"{self._each} requests of yours are under way already; wait for some of them")
            self._there[name] += 1
            self._queues.setdefault(name, deque()).append(job)

    def _drop(self, job: _Job, caller: str | None) -> None:
        """Nobody waits for it any more; what has begun goes on."""
        if job[0].cancel():
            with self._changing, suppress(KeyError, ValueError):
                self._queues[caller or ""].remove(job)
                if not self._queues[caller or ""]:
                    del self._queues[caller or ""]

    def _next(self) -> None:
        """In a thread: the oldest request of the caller whose turn it is; nothing where it was dropped."""
        with self._changing:
            if not self._queues:
                return
            name, queue = self._queues.popitem(last=False)
            begun, work = queue.popleft()
            if queue:
                self._queues[name] = queue  # behind everybody else who waits
        if not begun.set_running_or_notify_cancel():
            return
        try:
            begun.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits for the answer
            begun.set_exception(error)

    def _leave(self, caller: str | None) -> None:
        name = caller or ""
        with self._changing:
            self._there[name] -= 1
            if not self._there[name]:
                del self._there[name]

    def close(self) -> None:
        """Let the threads end; who waits is not answered."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._changing:
            waiting = [begun for queue in self._queues.values() for begun, _ in queue]
            self._queues.clear()
        for begun in waiting:
            begun.cancel()


class Lanes:
    """The lanes of one application."""

    def __init__(self) -> None:
        self.by_name: Mapping[LaneName, Lane] = {name: Lane(name, *size) for name, size in SIZES.items()}

    def close(self) -> None:
        """Let all threads end."""
        for lane in self.by_name.values():
            lane.close()


_lanes: ContextVar[Lanes] = ContextVar("lanes")


class InLanes:
    """Tells routes, which applications share, in whose lanes this request runs."""

    def __init__(self, app: ASGIApp, lanes: Lanes) -> None:
        self.app = app
        self.lanes = lanes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        token = _lanes.set(self.lanes)
        try:
            await self.app(scope, receive, send)
        finally:
            _lanes.reset(token)


def in_lane(endpoint: Callable[..., T], name: LaneName) -> Callable[..., Awaitable[T]]:
    """The same endpoint, run in a lane of the application that is asked; to FastAPI it looks as it did."""

    @wraps(endpoint)
    async def run(*args: Any, **kwargs: Any) -> T:
        caller = actor()
        lane = _lanes.get().by_name[name]
        return await lane.run(partial(endpoint, *args, **kwargs), None if caller in MANY else caller)

    return run


def _forget(result: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more, whatever came of it."""
    if not result.cancelled():
        result.exception()
