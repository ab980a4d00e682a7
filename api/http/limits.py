"""How often one caller may ask: a token bucket for each, in the memory of one worker."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

MOST_CALLERS = 10_000  # buckets that are remembered; beyond them the longest unused one is forgotten, as if full


class RateLimit:
    """Allows each caller `per_s` requests per second and `burst` at once; 0 per second = no limit. Not thread-safe.

    A bucket is one number, the time at which it will be full again (the generic cell rate algorithm, ITU-T I.371).
    """

    def __init__(self, per_s: float, burst: int, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._step_s = 1 / per_s if per_s else 0.0
        self._room_s = (burst - 1) * self._step_s
        self._monotonic = monotonic
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, caller: str) -> float:
        """Seconds until this caller may ask again; 0 = now, and that is counted."""
        if not self._step_s:
            return 0.0
        now = self._monotonic()
        full_at = max(self._full_at.get(caller, now), now)
        wait = full_at - now - self._room_s
        if wait > 0:
            return wait
        self._full_at[caller] = full_at + self._step_s
        self._full_at.move_to_end(caller)
        if len(self._full_at) > MOST_CALLERS:
            self._full_at.popitem(last=False)
        return 0.0
