"""Work as a clock: what a search may do is counted in predicted instances, so that each machine gives the same answer.

Seconds of a limit stand for so many predictions. The wall clock only stops a search whose machine is too slow for them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from advisor import deadline
from advisor.prediction.active import ActivePredictor, PredictorProxy
from models.data.scene import SceneBatch
from models.physics.prior import PriorPredictor
from models.prediction import TARGETS, InterferencePrediction

# Predicted slots (instances and empty places beside them) in a second of a limit. Plans of 96 hosts and 1,200 instances
# do 15,500 (right_size) to 58,000 (rebalance) of the analytic model in a second of CPU of a slow machine (AMD EPYC, two
# virtual CPUs, 2026-11-29); of 12 hosts with 150 instances 10,600 to 25,000.
SLOTS_PER_SECOND = 20_000.0
LEARNED_SLOTS_PER_SECOND = 4_000.0  # a learned model predicts at about a fifth of that speed


@dataclass(slots=True)
class Work:
    """What was done of one question; `ends_s` is when the wall clock stops it, by the monotonic clock."""

    per_second: float
    ends_s: float
    slots: float = 0.0
    stopped: bool = False

    @property
    def done_s(self) -> float:
        """The work done, as seconds."""
        return self.slots / self.per_second

    @property
    def over(self) -> bool:
        """Whether the wall clock has stopped it; that is kept, for the answer says so."""
        self.stopped |= time.monotonic() >= self.ends_s
        return self.stopped


_work: ContextVar[Work | None] = ContextVar("work", default=None)


@dataclass(frozen=True, slots=True)
class CountingPredictor(PredictorProxy):
    """Counts what is predicted as work."""

    work: Work

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        """As the predictor."""
        self.work.slots += scenes.present.size
        return self.predictor.predict(scenes, targets)


@contextmanager
def counted(chosen: ActivePredictor, within_s: float) -> Iterator[ActivePredictor]:
    """What is asked inside counts its predictions as work, and is stopped after so many seconds of the wall clock."""
    rate = SLOTS_PER_SECOND if chosen.predictor.version == PriorPredictor.version else LEARNED_SLOTS_PER_SECOND
    token = _work.set(Work(rate, time.monotonic() + min(within_s, deadline.left_s())))
    try:
        yield counting(chosen)
    finally:
        _work.reset(token)


def counting(chosen: ActivePredictor) -> ActivePredictor:
    """The same predictor, whose predictions count as work where work is counted."""
    work = _work.get()
    return chosen if work is None else replace(chosen, predictor=CountingPredictor(chosen.predictor, work))


def now_s() -> float:
    """The time by the work that was done; by the monotonic clock where work is not counted."""
    work = _work.get()
    return time.monotonic() if work is None else work.done_s


def add(slots: float) -> None:
    """Count other work, as so many predicted slots."""
    work = _work.get()
    if work is not None:
        work.slots += slots


def slots() -> float:
    """The work done so far, as predicted slots; 0 where work is not counted."""
    work = _work.get()
    return 0.0 if work is None else work.slots


def stop() -> None:
    """Keep that the wall clock has stopped a part of the work, in another process."""
    work = _work.get()
    if work is not None:
        work.stopped = True


def stopped() -> bool:
    """Whether the wall clock has stopped the work."""
    work = _work.get()
    return work is not None and work.over


def wall_left_s() -> float:
    """Seconds of the wall clock until work is stopped, infinite where it is not counted."""
    work = _work.get()
    return math.inf if work is None else work.ends_s - time.monotonic()
