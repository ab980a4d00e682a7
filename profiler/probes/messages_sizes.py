"""NetPIPE's schedule of message sizes, points of a curve over them, and reading of NetPIPE's output."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

LARGEST = 10 * 1024 * 1024  # CSTACK Fig. 2: 1 B to 10 MB
PERTURBATION = 3  # bytes around each size, NetPIPE's default


class NetpipeOutputError(ValueError):
    """NetPIPE wrote something that is not a curve; the message names the line."""


@dataclass(frozen=True, slots=True)
class MessagePoint:
    """A message size in bytes and the time in s for one way: half of a round trip."""

    size: int
    one_way_s: float

    @property
    def mbit(self) -> float:
        """Mb/s (10^6; NetPIPE prints 2^20) with this size."""
        return self.size * 8e-6 / self.one_way_s


def sizes(largest: int = LARGEST, perturbation: int = PERTURBATION) -> tuple[int, ...]:
    """1, 2, 3, 4, 6, 8, 12, 16 ... with `perturbation` bytes less and more where steps are wider; `largest` is in.

    Raises ValueError unless largest >= 1 and perturbation >= 0.
    """
    if largest < 1 or perturbation < 0:
        raise ValueError(f"sizes up to {largest} with perturbation {perturbation} are none")
    chosen = {largest}
    size, step, taken = 1, 1, 0
    while size <= largest:
        if taken > 2 and taken % 2:  # NetPIPE doubles its step at every second size from the fourth on
            step *= 2
        wide = 0 < perturbation < step - 1
        chosen.update((size - perturbation, size, size + perturbation) if wide else (size,))
        size += step
        taken += 1
    return tuple(sorted(size for size in chosen if size <= largest))


def at(curve: Sequence[MessagePoint], size: int) -> float | None:
    """One-way time in s at `size`, between two measured sizes by a power law; None outside of what was measured.

    `curve` is sorted by size.
    """
    place = bisect_left(curve, size, key=lambda point: point.size)
    if place < len(curve) and curve[place].size == size:
        return curve[place].one_way_s
    if not 0 < place < len(curve):
        return None
    low, high = curve[place - 1], curve[place]
    part = math.log(size / low.size) / math.log(high.size / low.size)
    return math.exp((1 - part) * math.log(low.one_way_s) + part * math.log(high.one_way_s))


def read_netpipe(text: str) -> tuple[MessagePoint, ...]:
    """NetPIPE's output file: size, Mb/s (of 2^20), one-way time in s per line. NetpipeOutputError names a bad line."""
    points = []
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split()
        if not fields:
            continue
        try:
            size, seconds = int(fields[0]), float(fields[2])
        except (ValueError, IndexError):
            raise NetpipeOutputError(f"line {number} of NetPIPE's output is not size, Mb/s, s: {line[:60]!r}") from None
        if size < 1 or not 0 < seconds < math.inf:
            raise NetpipeOutputError(f"line {number} of NetPIPE's output has no size or time above 0: {line[:60]!r}")
        points.append(MessagePoint(size, seconds))
    if not points:
        raise NetpipeOutputError("NetPIPE wrote no sizes")
    return tuple(sorted(points, key=lambda point: point.size))
