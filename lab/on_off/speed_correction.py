"""Takes the changing speed of CPUs out of a member's rates, as far as the rates themselves show that they follow it.

A hypervisor moves virtual CPUs between cores and threads of one core, so their speed jumps by up to 1.7, within seconds
and for any length of time. `lab.cpu_speed` measures it in each window. How far a rate follows it depends on the work:
wholly in registers, hardly in memory. This is found from windows of the same state, so ratios of states do not enter.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import quantiles

from lab.on_off.measure import OnOffWindow
from lab.on_off.states import State

_FEWEST = 20  # windows with the member at work, below which nothing is taken out
_STEP, _MOST = 0.05, 1.25  # above 1, because strangers' use of memory can change a rate more than the speed does
_FASTEST = 20  # the speed that counts as full is exceeded in one of so many windows


class SpeedCorrection:
    """How a member's rate follows its CPUs: rate = full rate x (1 - `follows` x (1 - speed / full speed))."""

    def __init__(self, windows: Sequence[OnOffWindow], place: int) -> None:
        self._place = place
        own = [window for window in windows if place in window.state and window.progress[place] > 0]
        speeds = [speed for window in own if (speed := _speed(window, place)) is not None]
        self._full = quantiles(speeds, n=_FASTEST)[-1] if len(speeds) >= _FEWEST else None
        self.follows = 0.0
        if self._full is not None:
            known = [window for window in own if _speed(window, place) is not None]
            steps = [_STEP * number for number in range(round(_MOST / _STEP) + 1)]
            self.follows = min(steps, key=lambda follows: self._unexplained(known, follows))

    def seconds(self, window: OnOffWindow) -> float:
        """The seconds at full speed that would give what this window gave."""
        return window.seconds * self._part(window, self.follows)

    def _part(self, window: OnOffWindow, follows: float) -> float:
        speed = _speed(window, self._place)
        if self._full is None or speed is None:
            return 1.0
        return 1 - follows * max(0.0, 1 - speed / self._full)

    def _unexplained(self, windows: Sequence[OnOffWindow], follows: float) -> float:
        """Sum of squares of log rates about the mean of their state."""
        by_state: dict[State, list[float]] = defaultdict(list)
        for window in windows:
            part = self._part(window, follows)
            if part <= 0:
                return math.inf
            by_state[window.state].append(math.log(window.progress[self._place] / window.seconds / part))
        return sum(_squares(values) for values in by_state.values())


def _speed(window: OnOffWindow, place: int) -> float | None:
    return window.speeds[place] if window.speeds else None


def _squares(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)
