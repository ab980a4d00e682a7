"""Windows of five minutes from means over half an hour, in shapes that were seen: the method of fragments.

A mean says how much was wanted and at which hour, but not how it varied within. Each mean takes the shape of the half
hour with the most similar mean that was seen window by window (Svanidze, 1964, for the flow of rivers).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

HALF_HOUR_S = 1800


@dataclass(frozen=True, slots=True)
class Shapes:
    """Half hours that were seen window by window: their means in order, and each one's windows over its mean."""

    window_s: int
    means: Sequence[float]
    ratios: Sequence[Sequence[float]]

    def broken_down(self, end_s: float, step_s: float, mean: float, most: float = math.inf) -> Mapping[float, float]:
        """The windows of `step_s` seconds up to `end_s` that had this mean: end of each → demand, at most `most`.

        Empty where no half hour was seen, or where the seconds are not whole windows.
        """
        count = round(step_s / self.window_s)
        if not self.means or count < 1 or abs(count * self.window_s - step_s) > 1:
            return {}
        ratios = self.ratios[self._nearest(mean)]
        begin_s = end_s - step_s
        return {begin_s + (at + 1) * self.window_s: min(mean * ratios[at % len(ratios)], most) for at in range(count)}

    def _nearest(self, mean: float) -> int:
        at = bisect.bisect_left(self.means, mean)
        near = [one for one in (at - 1, at) if 0 <= one < len(self.means)]
        return min(near, key=lambda one: abs(self.means[one] - mean))


def shapes(windows: Mapping[float, float], window_s: int) -> Shapes:
    """Of windows (end → demand): every half hour of which all are there."""
    count = HALF_HOUR_S // window_s
    blocks: dict[int, list[float]] = {}
    for end_s in sorted(windows):
        blocks.setdefault(int(end_s - window_s) // HALF_HOUR_S, []).append(windows[end_s])
    seen = sorted((sum(block) / count, block) for block in blocks.values() if len(block) == count)
    ratios = [[one / mean for one in block] if mean > 0 else [1.0] * count for mean, block in seen]
    return Shapes(window_s, [mean for mean, _ in seen], ratios)
