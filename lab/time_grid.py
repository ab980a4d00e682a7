"""The time grid of a temporal campaign: rounds start at fixed times, and late ones are skipped and reported."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from lab.campaign import Temporal
from lab.journal import Journal
from lab.rounds import Round

_LATE_SHARE = 0.1  # of the spacing; a round that would start later than this is skipped
_ORIGIN = "grid_origin"


class TimeGrid:
    """Knows when each round is due. The origin is when the campaign first started; the journal keeps it."""

    def __init__(
        self, temporal: Temporal, journal: Journal, say: Callable[[str], None],
        clock: Callable[[], float] = time.time, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self._every_s = temporal.every_min * 60
        self._slots = temporal.slots
        self._journal = journal
        self._say = say
        self._clock = clock
        self._sleep = sleep

    @property
    def end(self) -> float:
        """When the grid ends, as epoch time."""
        return self._origin() + self._slots * self._every_s

    def wait(self, step: Round, *, resumed: bool) -> bool:
        """Wait until a round is due; False when it is too late. A `resumed` round may be finished within its slot."""
        if step.due_s is None:
            return True
        due = self._origin() + step.due_s
        late_s = self._clock() - due
        if late_s < 0:
            self._say(f"round {step.number} begins at {datetime.fromtimestamp(due).astimezone():%d %b %H:%M:%S}")
            while (left := due - self._clock()) > 0:
                self._sleep(left)
            return True
        if late_s <= self._every_s * (1.0 if resumed else _LATE_SHARE):
            return True
        self._say(f"round {step.number} is skipped: it was due {late_s / 60:.1f} minutes ago")
        return False

    def _origin(self) -> float:
        known = self._journal.facts(_ORIGIN)
        if not known:
            known = [round(self._clock(), 3)]
            self._journal.note(_ORIGIN, known[0])
        return float(known[0])
