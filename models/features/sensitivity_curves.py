"""Sensitivity and pressure curves from bubble sweeps (Bubble-Up, Mars et al., MICRO 2011).

A bubble is a program whose pressure can be set. A dataset holds a sweep as metrics with these names:
`FAMILY_<level><unit>` (`bubble_32mb`) is the T/B of a workload beside a bubble of that level, and `FAMILY_reporter` is
the T/B of a fixed reporter program beside the workload. The profile of the workload `reporter` holds the reporter's own
curve. Inverting this curve gives a workload's pressure: the bubble level that slows the reporter as much.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.arrays import Floats
from models.data.scene import ProfileTable, SceneBatch

REPORTER = "reporter"
LEAST_LEVELS = 3  # fewer make no curve
_LEVEL = re.compile(r"(?P<family>[a-z][a-z0-9_]*)_(?P<level>\d+(?:\.\d+)?)[a-z]*")


@dataclass(frozen=True, slots=True)
class BubbleSweep:
    """One family of bubbles: `levels` (L,), rising from 0.

    `sensitivity` (rows, L) is the T/B of each profile beside each level; it never rises with the level. `pressure`
    (rows,) is the level that each profile is equivalent to. Both are nan where unknown.
    """

    family: str
    levels: Floats
    sensitivity: Floats
    pressure: Floats


def families(columns: Sequence[str]) -> dict[str, list[tuple[float, str]]]:
    """Finds the sweeps among metric names: for each family its (level, column) pairs, by rising level."""
    found: dict[str, list[tuple[float, str]]] = {}
    reported = {column for column in columns if column.endswith(f"_{REPORTER}")}
    for column in columns if reported else ():
        match = _LEVEL.fullmatch(column)
        if match and f"{match['family']}_{REPORTER}" in reported:
            found.setdefault(match["family"], []).append((float(match["level"]), column))
    return {family: sorted(levels) for family, levels in sorted(found.items()) if len(levels) >= LEAST_LEVELS}


def read_sweep(table: ProfileTable, family: str, columns: Sequence[tuple[float, str]]) -> BubbleSweep:
    """Reads one family's curves; every pressure is nan where the reporter's own curve is missing."""
    used = [(level, column) for level, column in columns if level > 0]
    levels = np.array([0.0, *(level for level, _ in used)])
    measured = np.stack([np.ones(len(table.values)), *(table.column(column) for _, column in used)], axis=1)
    sensitivity = np.array([_falling(levels, row) for row in measured])
    reporters = [row for row, name in enumerate(table.names) if name == REPORTER]
    known = [row for row in reporters if np.isfinite(sensitivity[row]).all()]
    pressure = np.full(len(measured), np.nan)
    if known:
        seen = table.column(f"{family}_{REPORTER}")
        curve = sensitivity[known[-1]]
        falling = -curve + np.arange(len(curve)) * 1e-12  # np.interp wants it to rise
        pressure = np.where(np.isfinite(seen), np.interp(-np.nan_to_num(seen, nan=1.0), falling, levels), np.nan)
    return BubbleSweep(family, levels, sensitivity, pressure)


def _falling(levels: Floats, measured: Floats) -> Floats:
    """Fits a curve that never rises to the measured points; (L,), all nan where too few levels were measured."""
    there = np.isfinite(measured)
    if there.sum() <= LEAST_LEVELS:
        return np.full(len(levels), np.nan)
    from scipy.optimize import isotonic_regression  # slow to import, and few datasets have sweeps

    fitted = isotonic_regression(measured[there], increasing=False).x
    return np.asarray(np.interp(levels, levels[there], np.minimum(fitted, 1.0)))


def curve_columns(scenes: SceneBatch) -> tuple[tuple[str, ...], Floats]:
    """Two features per family: the neighbours' total pressure, and the log T/B that it leaves the instance.

    Returns names (K,) and values (S, N, K). Pressures are added (Zhao et al., PACT 2013), over all neighbours on the
    host: bubbles press on resources that the whole host shares.
    """
    names: list[str] = []
    values: list[Floats] = []
    for family, columns in families(scenes.table.columns).items():
        sweep = read_sweep(scenes.table, family, columns)
        own = np.where(scenes.present, sweep.pressure[scenes.profile] * np.minimum(scenes.load, 1.0), 0.0)
        around = _of_the_others(own)
        names += [f"curve {family}", f"press {family}"]
        values += [np.log(np.clip(_read_off(sweep, scenes.profile, around), 1e-3, None)), around]
    return tuple(names), np.stack(values, axis=2) if values else np.zeros((*scenes.present.shape, 0))


def _of_the_others(own: Floats) -> Floats:
    """The sum over all other slots of a scene; (S, N), nan where another slot's value is unknown."""
    unknown = np.isnan(own)
    known = np.where(unknown, 0.0, own)
    around = np.maximum(known.sum(axis=1, keepdims=True) - known, 0.0)
    return np.where(unknown.sum(axis=1, keepdims=True) > unknown, np.nan, around)


def _read_off(sweep: BubbleSweep, rows: NDArray[np.int64], level: Floats) -> Floats:
    """Interpolates each slot's curve at its level, flat beyond the measured levels; (S, N), nan where unknown."""
    inside = np.clip(np.nan_to_num(level), sweep.levels[0], sweep.levels[-1])
    right = np.clip(np.searchsorted(sweep.levels, inside), 1, len(sweep.levels) - 1)
    low, high = sweep.levels[right - 1], sweep.levels[right]
    share = (inside - low) / (high - low)
    curve = sweep.sensitivity[rows]
    at = [np.take_along_axis(curve, (right + step)[:, :, None], axis=2)[:, :, 0] for step in (-1, 0)]
    return np.where(np.isnan(level), np.nan, at[0] * (1 - share) + at[1] * share)
