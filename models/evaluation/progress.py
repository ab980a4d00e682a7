"""Progress of an evaluation and its remaining time, estimated from how long the same methods took before."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

Progress = Callable[[str, float], None]  # (what is being done, fraction done 0-1)


class EvaluationProgress:
    """Counts down a known amount of work: `work` says how often each step will run."""

    def __init__(self, say: Progress, work: Mapping[str, int], *, now: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._left = dict(work)
        self._now = now
        self._taken: dict[str, list[float]] = defaultdict(list)
        self._shown = 0.0

    @contextmanager
    def doing(self, name: str, where: str) -> Iterator[None]:
        """Context manager: report the step that begins, and measure its time."""
        self._say(f"{where}, {name}{self._time_left()}", self._fraction())
        begin = self._now()
        yield
        self._taken[name].append(self._now() - begin)
        self._left[name] -= 1

    def seconds(self, name: str) -> float:
        """The total time of this step so far, in seconds."""
        return sum(self._taken[name])

    def _remaining(self) -> float | None:
        """Remaining seconds; None until every remaining step has run once."""
        if any(count and not self._taken[name] for name, count in self._left.items()):
            return None
        return sum(count * self.seconds(name) / len(self._taken[name]) for name, count in self._left.items() if count)

    def _time_left(self) -> str:
        left = self._remaining()
        if left is None:
            return ""
        return f", about {left / 60:.0f} min left" if left >= 90 else f", about {left:.0f} s left"

    def _fraction(self) -> float:
        left, done = self._remaining(), sum(sum(times) for times in self._taken.values())
        if left is None:
            finished = sum(len(times) for times in self._taken.values())
            fraction = finished / max(finished + sum(self._left.values()), 1)
        else:
            fraction = done / (done + left) if done + left > 0 else 1.0
        self._shown = max(self._shown, min(fraction, 1.0))  # a bar that goes back says nothing
        return self._shown
