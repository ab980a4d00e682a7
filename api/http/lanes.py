"""Lanes: how many requests of each kind run at once, how long others wait, and who listens for events meanwhile."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial, wraps
from inspect import Parameter, Signature, iscoroutinefunction, signature
from typing import Any, Literal, TypeVar, cast, get_type_hints

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from advisor import deadline
from advisor.domain import ServiceEvent
from advisor.errors import DeadlinePassed
from advisor.service import AccessService, actor
from api.problems import Busy

T = TypeVar("T")
LaneName = Literal["question", "hold", "storage", "long", "admin", "sign_in", "none"]
# With the time (monotonic s) at which it came, and what watches the stages of its request.
_Job = tuple[Future[Any], Callable[[], Any], float, deadline.Watch | None]
CPUS = len(os.sched_getaffinity(0))
# Threads and places in the queue. Questions compute: more threads than CPUs would make each of them late and none
# faster. Requests that store or look up wait for the database, seldom for a CPU. Requests that take seconds have a lane
# of their own, and so have administrators: taking a bad model out of service must not wait for other people's plans.
# Answers that hold their host are made one after the other anyway: more threads would wait for each other in the way
# of questions and pages.
SIZES: Mapping[LaneName, tuple[int, int]] = {
    "question": (CPUS, 128),
    "hold": (1, 128),
    "storage": (16, 512),
    "long": (1, 16),
    "admin": (1, 16),
    "sign_in": (4, 16),  # may wait for Keystone, on behalf of strangers
}
# How long a request may wait for a thread, in multiples of `max_wait_s`; the other lanes' callers wait for long anyway.
PATIENCE: Mapping[LaneName, float] = {"question": 1.0, "hold": 1.0, "storage": 5.0}
LATE = 1.5  # of that a request may have waited when its turn comes; one that waited longer is refused then
REMEMBERED, OUTLIERS = 32, 2  # requests by which the lane knows how long one takes; the longest of these do not count
MOST_AGAIN_S = 30
SHARE = 0.75  # of a lane that one caller may take at most
MANY = {"local", "anybody"}  # actors that stand for many callers: where no token is needed, and at sign-in


class Lane:
    """A number of threads and of places to wait; metrics read `running` and `waiting`.

    Callers take turns, and none has more than SHARE of the lane: a caller that asks for everything at once delays only
    itself. A request whose turn is not expected within `most_wait_s` (s), or before its deadline, is refused at once.
    """

    def __init__(self, name: str, threads: int, places: int, most_wait_s: float = math.inf) -> None:
        self.name = name
        self.threads = threads
        self.places = places
        self.most_wait_s = most_wait_s
        self._took_s: deque[float] = deque(maxlen=REMEMBERED)
        self._most_each = max(int(SHARE * (threads + places)), 1)
        self._present: Counter[str] = Counter()  # requests of each caller, in a thread or in the queue
        self._queues: OrderedDict[str, deque[_Job]] = OrderedDict()  # by caller; the first one's turn is next
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    @property
    def running(self) -> int:
        """Threads at work."""
        return min(self._present.total(), self.threads)

    @property
    def waiting(self) -> int:
        """Requests that no thread has taken up."""
        return max(self._present.total() - self.threads, 0)

    async def run(self, work: Callable[[], T], caller: str | None = None) -> T:
        """Do it in a thread of the lane; Busy when the queue is full, DeadlinePassed as soon as the time is up.

        Work that has begun goes on to its next check of the deadline and keeps its thread until then. The request
        counts for `caller`'s share of the lane; None = for none.
        """
        left_s = deadline.left_s()
        if left_s <= 0:
            deadline.check()
        job: _Job = (Future(), partial(copy_context().run, work), time.monotonic(), deadline.watching())
        self._enqueue(job, caller, min(self.most_wait_s, left_s))
        future = job[0]
        future.add_done_callback(lambda _: self._leave(caller))
        self._pool.submit(self._next)
        result = asyncio.wrap_future(future)
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

    def _enqueue(self, job: _Job, caller: str | None, most_wait_s: float) -> None:
        name = caller or ""
        with self._lock:
            wait_s = self._expected_wait_s(name, job[2]) if self._queues else 0.0
            if wait_s > most_wait_s:
                raise Busy(
                    f"a {self.name} thread would be free in {wait_s:.1f} s, and {most_wait_s:.1f} s may be waited",
                    retry_after_s=min(math.ceil(wait_s), MOST_AGAIN_S),
                )
            if self._present.total() >= self.threads + self.places:
                raise Busy(f"{self.places} requests wait already; ask again in a moment")
            if caller is not None and self._present[name] >= self._most_each:
                raise Busy(f"{self._most_each} requests of yours are under way already; wait for some of them")
            self._present[name] += 1
            self._queues.setdefault(name, deque()).append(job)

    def _expected_wait_s(self, name: str, now_s: float) -> float:
        """Until the turn of one more request of this caller comes: callers take turns, so that of each other one no
        more requests are before it than of its own. At least as long as its oldest one has waited."""
        own = self._queues.get(name, ())
        ahead = sum(min(len(queue), len(own) + (other != name)) for other, queue in self._queues.items())
        took_s = sorted(self._took_s)[: -OUTLIERS if len(self._took_s) > REMEMBERED // 4 else None]
        expected_s = ahead * sum(took_s) / len(took_s) / self.threads if took_s else 0.0
        return max(expected_s, now_s - own[0][2] if own else 0.0)

    def _drop(self, job: _Job, caller: str | None) -> None:
        """The job's caller is gone: take it out of the queue; if it has begun, it goes on."""
        if job[0].cancel():
            with self._lock, suppress(KeyError, ValueError):
                self._queues[caller or ""].remove(job)
                if not self._queues[caller or ""]:
                    del self._queues[caller or ""]

    def _next(self) -> None:
        """In a thread: do the oldest request of the caller whose turn it is; nothing where it was dropped."""
        with self._lock:
            if not self._queues:
                return
            name, queue = self._queues.popitem(last=False)
            future, work, came_s, watch = queue.popleft()
            if queue:
                self._queues[name] = queue  # behind all other callers that wait
        if not future.set_running_or_notify_cancel():
            return
        began_s = time.monotonic()
        if watch is not None:
            watch.waited(began_s - came_s)
        if began_s - came_s > LATE * self.most_wait_s:
            future.set_exception(Busy(f"it waited {began_s - came_s:.1f} s for a {self.name} thread; ask again"))
            return
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again where the answer is awaited
            future.set_exception(error)
        with self._lock:
            self._took_s.append(time.monotonic() - began_s)

    def _leave(self, caller: str | None) -> None:
        name = caller or ""
        with self._lock:
            self._present[name] -= 1
            if not self._present[name]:
                del self._present[name]

    def close(self) -> None:
        """Let the threads end; waiting requests are not answered."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            waiting = [future for queue in self._queues.values() for future, *_ in queue]
            self._queues.clear()
        for future in waiting:
            future.cancel()


class Lanes:
    """The lanes of one application."""

    def __init__(self, max_wait_s: float = math.inf) -> None:
        self.by_name: Mapping[LaneName, Lane] = {
            name: Lane(name, *size, max_wait_s * PATIENCE.get(name, math.inf)) for name, size in SIZES.items()
        }

    def close(self) -> None:
        """Let all threads end."""
        for lane in self.by_name.values():
            lane.close()


_lanes: ContextVar[Lanes] = ContextVar("lanes")


class InLanes:
    """Sets the lanes of this application for a request: routes are shared by all applications of a process."""

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
    """The endpoint, run in a lane of the application that is asked; FastAPI sees the same signature.

    Of the lane `hold` a request whose body says `dry_run` runs in that of questions.
    """

    @wraps(endpoint)
    async def run(*args: Any, **kwargs: Any) -> T:
        caller = actor()
        is_dry = name == "hold" and getattr(kwargs.get("body"), "dry_run", False)
        lane = _lanes.get().by_name["question" if is_dry else name]
        return await lane.run(partial(endpoint, *args, **kwargs), None if caller in MANY else caller)

    return run


class Given:
    """Marks a parameter of an endpoint that the application gives: `of` makes it of the request, in the endpoint's own
    thread. What else `of` takes is read from the request as the endpoint's own parameters are.

    FastAPI has dependencies for that, but works on each as on an endpoint of its own: decision 251.
    """

    def __init__(self, of: Callable[..., Any]) -> None:
        self.of = of


def given(endpoint: Callable[..., T]) -> Callable[..., T]:
    """The endpoint as FastAPI shall see it: it takes the request instead of what is Given."""
    hints = get_type_hints(endpoint, include_extras=True)
    makers = {
        name: next((mark.of for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Given)), None)
        for name, hint in hints.items()
    }
    made = {name: of for name, of in makers.items() if of is not None}
    if not made:
        return endpoint
    own = signature(endpoint).parameters
    asks = next((name for name in own if hints[name] is Request), "")
    seen = {name: parameter.replace(annotation=hints[name]) for name, parameter in own.items() if name not in made}
    if not asks:
        seen["request"] = Parameter("request", Parameter.KEYWORD_ONLY, annotation=Request)
    takes: dict[str, list[str]] = {}  # of the request, beside the request itself
    for name, of in made.items():
        _, *names = signature(of).parameters.values()
        more = {one.name: one for one in names}
        types = get_type_hints(of, include_extras=True) if more else {}
        takes[name] = list(more)
        seen |= {other: parameter.replace(annotation=types[other]) for other, parameter in more.items()}

    def all_of(values: dict[str, Any]) -> dict[str, Any]:
        request = values[asks] if asks else values.pop("request")
        return values | {name: of(request, *map(values.pop, takes[name])) for name, of in made.items()}

    if iscoroutinefunction(endpoint):

        @wraps(endpoint)
        async def filled(**values: Any) -> Any:
            return await endpoint(**all_of(values))
    else:

        @wraps(endpoint)
        def filled(**values: Any) -> Any:
            return endpoint(**all_of(values))

    ordered = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in seen.values()]
    filled.__signature__ = Signature(ordered, return_annotation=hints.get("return", Signature.empty))  # type: ignore[attr-defined]
    return cast(Callable[..., T], filled)


def _forget(result: asyncio.Future[Any]) -> None:
    """Fetch the exception of a result that no client awaits any more, or asyncio would log it."""
    if not result.cancelled():
        result.exception()


# Listeners to events: a limited number, with one look at the database a second for all listeners of a process.

MOST, EACH = 64, 16  # listeners of one process, and of one caller among them: each holds a connection
POLL_S = 1.0
LOOK_S = 10.0  # for one look at the database
Seen = tuple[tuple[ServiceEvent, ...], str]


class Listeners:
    """The listeners of one application, and the events that they got last."""

    def __init__(self, access: AccessService, lane: Lane) -> None:
        self._access = access
        self._lane = lane
        self._present: Counter[str] = Counter()
        self._lock = asyncio.Lock()
        self._last: tuple[str | None, float, Seen] | None = None

    @contextmanager
    def one_more(self, caller: str) -> Iterator[None]:
        """While a client listens; Busy where there are too many."""
        if self._present.total() >= MOST:
            raise Busy(f"{MOST} listen already; ask another worker, or again later")
        if caller not in MANY and self._present[caller] >= EACH:
            raise Busy(f"{EACH} requests of yours listen already; close some of them")
        self._present[caller] += 1
        try:
            yield
        finally:
            self._present[caller] -= 1

    async def after(self, mark: str | None) -> Seen:
        """What `AccessService.events` says after this mark; listeners at the same mark share one look for a moment."""
        async with self._lock:
            now = time.monotonic()
            if self._last is None or self._last[0] != mark or now - self._last[1] >= POLL_S / 2:
                with deadline.within(LOOK_S):  # not what is left of the request: a listener outlasts that
                    seen = await self._lane.run(partial(self._access.events, mark))
                self._last = mark, now, seen
            return self._last[2]


class EventStream(StreamingResponse):
    """Server-sent events; Busy where there is no room for one more listener."""

    media_type = "text/event-stream"

    def __init__(self, listeners: Listeners, caller: str, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, headers={"X-Accel-Buffering": "no"})  # nginx would hold events until there are more
        self._listeners = listeners
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry; Busy before anything is sent."""
        with self._listeners.one_more(self._caller):
            await super().__call__(scope, receive, send)
