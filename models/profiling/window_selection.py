"""Selects the windows that a phase's profile is made of: solo windows, away from changes, where there are enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.profiling.mean_intervals import MeanEstimate, estimate
from models.profiling.phases import Phases
from models.profiling.windows import InstanceWindows

LEAST_WINDOWS = 12  # solo windows of a profile: two minutes at the agent's ten seconds
_EDGE = 4  # windows of a stretch from which on those beside a change, which may hold some of both, are left out
_FROM_HOST = ("event", "switch")  # what solo windows say of the host belongs to the workload; busy and steal do not


@dataclass(frozen=True, slots=True)
class PhaseWindows:
    """The windows of one phase and the estimates from them.

    `all` are its windows, `used` those that the `estimates` are made of: only solo ones if `solo`. `alone` counts the
    solo windows that are not next to a change.
    """

    number: int
    spans: tuple[tuple[float, float], ...]
    all: Ints
    used: Ints
    solo: bool
    solo_windows: int
    alone: int
    estimates: Mapping[str, MeanEstimate]

    @classmethod
    def of(cls, windows: InstanceWindows, phases: Phases, solo: Bools, number: int) -> PhaseWindows:
        stretches = [(a, b) for a, b in phases.stretches if phases.labels[a] == number]
        inner = np.concatenate([_inner(a, b, len(windows)) for a, b in stretches])
        alone = inner[solo[inner]]
        is_solo = len(alone) >= min(LEAST_WINDOWS, len(inner)) and len(alone) > 0
        used = alone if is_solo else inner
        runs = np.searchsorted([a for a, _ in stretches], used, side="right") + len(windows) * windows.unbroken[used]
        spans = tuple(span for a, b in stretches for span in _spans(windows, a, b))
        found = {key: estimate(values[used], runs) for key, values in _columns(windows, solo=is_solo).items()}
        known = {key: one for key, one in found.items() if one is not None}
        rows = np.flatnonzero(phases.labels == number)
        return cls(number, spans, rows, used, is_solo, int(solo[rows].sum()), len(alone), known)


def _spans(windows: InstanceWindows, begin: int, end: int) -> list[tuple[float, float]]:
    """Begin and end of the windows of a segment, split where windows are missing."""
    gaps = begin + 1 + np.flatnonzero(np.diff(windows.unbroken[begin:end]))
    edges = [begin, *(int(gap) for gap in gaps), end]
    return [(float(windows.times[a] - windows.period_s), float(windows.times[b - 1])) for a, b in pairwise(edges)]


def _inner(begin: int, end: int, count: int) -> Ints:
    """The windows of a segment without those next to a change, where there are enough."""
    if end - begin < _EDGE:
        return np.arange(begin, end)
    return np.arange(begin + (begin > 0), end - (end < count))


def _columns(windows: InstanceWindows, *, solo: bool) -> dict[str, Floats]:
    """Metrics that can be attributed to the instance: its own and, in solo windows, those of driver domain and host."""
    columns = {key: values for key, values in windows.own.items() if not key.endswith("_p95")}
    if solo:
        for key, values in windows.around.items():
            of_driver = key.startswith("driver_domain.") and not key.endswith("_p95")
            if key not in columns and (of_driver or key in _FROM_HOST):
                columns[key] = values
    return dict(sorted(columns.items()))
