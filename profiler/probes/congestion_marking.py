"""Decides when a probed slot counts as congested: by lost packets, or delays close to those of losses."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

TAU_S = 0.050  # defaults of EC2NET §VI
ALPHA = 0.005


@dataclass(frozen=True, slots=True)
class SlotProbe:
    """One probe: its slot, when it was sent (s), and the one-way delay (s) of each of its packets, None = lost.

    Delays may have any constant offset: the two ends' clocks need not agree (`above_smallest` takes it off).
    """

    slot: int
    sent_s: float
    delays_s: tuple[float | None, ...]

    @property
    def lost(self) -> int:
        """Packets of this probe that never arrived."""
        return self.delays_s.count(None)

    @property
    def delay_s(self) -> float | None:
        """The largest delay among the packets that arrived."""
        return max((delay for delay in self.delays_s if delay is not None), default=None)


def above_smallest(probes: Sequence[SlotProbe]) -> list[SlotProbe]:
    """The same probes with delays above the smallest of all, which is propagation and the clocks' difference."""
    smallest = min((delay for probe in probes for delay in probe.delays_s if delay is not None), default=0.0)
    return [
        replace(probe, delays_s=tuple(None if delay is None else delay - smallest for delay in probe.delays_s))
        for probe in probes
    ]


def largest_delays(probes: Sequence[SlotProbe]) -> list[float | None]:
    """The running estimate of the largest one-way delay after each probe, None before the first loss.

    "Estimated by the one way delay of the most recent successful packet when a packet loss happens" (EC2NET §VI).
    """
    estimates: list[float | None] = []
    recent: float | None = None
    largest: float | None = None
    for probe in probes:
        for delay in probe.delays_s:
            if delay is not None:
                recent = delay
            elif recent is not None:
                largest = recent
        estimates.append(largest)
    return estimates


@dataclass(frozen=True, slots=True)
class Marked:
    """Congested slots by both readings of the rule, and how many count as congested by their delay alone."""

    either: frozenset[int]
    both: frozenset[int]
    by_delay_alone: int


def mark(probes: Sequence[SlotProbe], tau_s: float = TAU_S, alpha: float = ALPHA) -> Marked:
    """Mark the slots of `probes` (in order of sending) as congested.

    `either` is the rule as EC2NET §VI prints it: a packet lost within `tau_s` of the slot, or a delay above
    (1 - alpha) x the largest delay as estimated at that time. `both` is the strict reading: a packet of the slot's own
    probe lost, or a loss within `tau_s` and such a delay.
    """
    probes = above_smallest(probes)
    losses = [probe.sent_s for probe in probes if probe.lost]
    either, both, alone = set(), set(), 0
    for probe, largest in zip(probes, largest_delays(probes), strict=True):
        near = _near(losses, probe.sent_s, tau_s)
        delay = probe.delay_s
        late = delay is not None and largest is not None and delay > (1 - alpha) * largest
        if near or late:
            either.add(probe.slot)
            alone += not near
        if probe.lost or (near and late):
            both.add(probe.slot)
    return Marked(frozenset(either), frozenset(both), alone)


def _near(times: Sequence[float], moment: float, reach: float) -> bool:
    place = bisect_left(times, moment - reach)
    return place < len(times) and times[place] <= moment + reach
