"""How long kube-scheduler may wait for us: it schedules one pod after another, so a late answer delays all of them."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from advisor import deadline
from advisor.errors import DeadlinePassed
from api.problems import Busy

T = TypeVar("T")
REST_S = 5.0  # after a late answer questions are refused at once for so long
_PODS = 256  # pods whose first question is remembered


class Patience:
    """Limits the time of all questions about a pod together.

    After a late answer every question is refused at once for a while; then one question is tried. kube-scheduler takes
    a refusal for an error, and goes on without us where the extender is `ignorable`.
    """

    def __init__(self, within_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.within_s = within_s
        self._clock = clock
        self._rests_until = 0.0
        # By the uid of a pod: when an attempt to schedule it began, and the verbs that were asked since.
        self._begun: OrderedDict[str, tuple[float, set[str]]] = OrderedDict()

    def wrap(self, endpoint: Callable[..., Awaitable[T]]) -> Callable[..., Coroutine[Any, Any, T]]:
        """The endpoint with this limit; its `body` is about a pod. Busy or DeadlinePassed once the time is over."""

        @wraps(endpoint)
        async def in_time(*args: Any, **kwargs: Any) -> T:
            now = self._clock()
            if now < self._rests_until:
                raise Busy(f"an answer took over {self.within_s:g} s; pods are not advised on for up to {REST_S:g} s")
            trial = self._rests_until > 0
            if trial:  # refuse all others meanwhile
                self._rests_until = now + self.within_s
            left_s = self._left_s(kwargs["body"].pod.metadata.uid, endpoint.__name__, now)
            try:
                with deadline.within(min(left_s, deadline.left_s())):
                    answer = await endpoint(*args, **kwargs)
            except DeadlinePassed:
                if self._clock() >= now + left_s:  # else it was the caller's own, shorter deadline
                    self._rests_until = self._clock() + REST_S
                raise
            if trial:
                self._rests_until = 0.0
            return answer

        return in_time

    def _left_s(self, uid: str, verb: str, now: float) -> float:
        """The time that this attempt to schedule the pod has left. A verb that is asked again begins a new attempt."""
        begun, asked = self._begun.get(uid, (now, set()))
        if not uid or verb in asked or now - begun >= self.within_s:
            begun, asked = now, set()
        self._begun[uid] = begun, asked | {verb}
        self._begun.move_to_end(uid)
        while len(self._begun) > _PODS:
            self._begun.popitem(last=False)
        return begun + self.within_s - now


_patience: ContextVar[Patience] = ContextVar("patience")


class WithPatience:
    """Sets the Patience of this application for a request: routes are shared by all applications of a process."""

    def __init__(self, app: ASGIApp, patience: Patience) -> None:
        self.app = app
        self.patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        token = _patience.set(self.patience)
        try:
            await self.app(scope, receive, send)
        finally:
            _patience.reset(token)


def patient(endpoint: Callable[..., Awaitable[T]]) -> Callable[..., Coroutine[Any, Any, T]]:
    """The endpoint, wrapped by the Patience of the application that is asked."""

    @wraps(endpoint)
    async def run(*args: Any, **kwargs: Any) -> T:
        return await _patience.get().wrap(endpoint)(*args, **kwargs)

    return run
