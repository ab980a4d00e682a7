"""How long Kubernetes' scheduler is kept waiting: it schedules one pod after another, and each waits for our answer."""

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
REST_S = 5.0  # for which nobody is kept waiting after an answer that was late
_PODS = 256  # whose first question is remembered


class Patience:
    """Gives all questions about a pod one time together; after an answer that was late every question is refused at
    once for a while, and then one is tried.

    A refusal is an error to kube-scheduler, which goes on without us where the extender is `ignorable`.
    """

    def __init__(self, within_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.within_s = within_s
        self._clock = clock
        self._rests_until = 0.0
        # By uid of a pod: when the first question of an attempt to schedule it came, and which verbs were asked since.
        self._begun: OrderedDict[str, tuple[float, set[str]]] = OrderedDict()

    def wrap(self, endpoint: Callable[..., Awaitable[T]]) -> Callable[..., Coroutine[Any, Any, T]]:
        """The same endpoint, of which `body` is about a pod; Busy or DeadlinePassed once patience is over."""

        @wraps(endpoint)
        async def in_time(*args: Any, **kwargs: Any) -> T:
            now = self._clock()
            if now < self._rests_until:
                raise Busy(f"an answer took over {self.within_s:g} s; pods are not advised on for up to {REST_S:g} s")
            trial = self._rests_until > 0
            if trial:  # whoever comes meanwhile does not wait, too
                self._rests_until = now + self.within_s
            left_s = self._left_s(kwargs["body"].pod.metadata.uid, endpoint.__name__, now)
            try:
                with deadline.within(min(left_s, deadline.left_s())):
                    answer = await endpoint(*args, **kwargs)
            except DeadlinePassed:
                if self._clock() >= now + left_s:  # else whoever asks allowed it less
                    self._rests_until = self._clock() + REST_S
                raise
            if trial:
                self._rests_until = 0.0
            return answer

        return in_time

    def _left_s(self, uid: str, verb: str, now: float) -> float:
        """What this attempt to schedule the pod has left of its time. A verb that is asked again is of a new one."""
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
    """Tells routes, which applications share, whose patience counts for this request."""

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
    """The same endpoint, as `Patience.wrap` of the application that is asked makes it."""

    @wraps(endpoint)
    async def run(*args: Any, **kwargs: Any) -> T:
        return await _patience.get().wrap(endpoint)(*args, **kwargs)

    return run
