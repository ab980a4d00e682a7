"""How fast the machine was in each window of a member, as its windows in other states just before and after show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

from lab.on_off.estimator import StateShare

_FEWEST = 8  # windows; fewer say nothing of how the machine's speed lasts


def machine_speeds(windows: Sequence[tuple[Hashable, StateShare]]) -> list[float]:
    """A factor around 1 for each (state, share): all windows in which one member worked, in the order of time.

    A window's rate over the mean of its state is the machine's speed then, with noise. The mean of its neighbours' is
    trusted as far as it has told these speeds over the whole run (the slope of the regression through 1, from 0 to 1).
    A window never counts for itself, so its own noise stays in its ratio.
    """
    sums: dict[Hashable, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for state, share in windows:
        sums[state][0] += share.progress
        sums[state][1] += share.exposure
    relative = [_relative(share, *sums[state]) for state, share in windows]
    if len(relative) < _FEWEST:
        return [1.0] * len(relative)
    around = [_beside(relative, place) for place in range(len(relative))]
    spread = sum(value * value for value in around)
    slope = sum(a * b for a, b in zip(relative, around, strict=True)) / spread if spread else 0.0
    trusted = min(1.0, max(0.0, slope))
    return [max(0.1, 1 + trusted * value) for value in around]


def _relative(share: StateShare, progress: float, exposure: float) -> float:
    """By how much its rate is above the mean of its state."""
    return share.progress / share.exposure * exposure / progress - 1 if progress > 0 and share.exposure > 0 else 0.0


def _beside(values: Sequence[float], place: int) -> float:
    near = [values[at] for at in (place - 1, place + 1) if 0 <= at < len(values)]
    return sum(near) / len(near)
