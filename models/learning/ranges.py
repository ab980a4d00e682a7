"""Conformal prediction ranges from errors on left-out campaigns, workloads and pairs, normalised by expected size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.arrays import Bools, Floats

LEVEL = 0.9
TAIL = (1 - LEVEL) / 2  # each bound alone holds in 95 % of cases, so that the lower bound can be used for ranking
LEAST_ERROR = 0.003  # of the log ratio: repeats that agree better do so by chance
FEW = 20  # errors below which a tier has no bounds of its own, and those of the next wider one hold
UNTESTED = 1.05  # half width on the log scale where nothing could be left out: a factor of nearly three
STEEPEST = 8.0  # slope of the log of an error: few rows may make it any
ENOUGH_WORKLOADS = 8  # families of them, from which on left-out ones show how new ones behave
MOST = 50.0  # typical errors that a bound is away at most
# What a question may have in common with training, the least first: not the campaign or machine, not the workloads, not
# the pair.
TIERS = ("elsewhere", "workload", "pair")
HINTS = 4


@dataclass(frozen=True, slots=True)
class Ranges:
    """The typical error of a row is exp(start + slope . hints), never smaller where a hint is larger. `bounds[tier]` is
    how many typical errors the lower and the upper bound are away. `floor` is the least half width beside a workload
    that training did not see."""

    start: float
    slope: tuple[float, ...]
    bounds: Mapping[str, tuple[float, float]]
    floor: float = 0.0

    def half_widths(
        self, hints: Floats, here: Bools, familiar: Floats, nearness: Floats, own: tuple[Floats, Floats]
    ) -> tuple[Floats, Floats]:
        """Distance of the lower and of the upper bound on the log scale; (R,) each.

        `here` (R,) says whether training saw the host, `familiar` (R,) how well it knows victim and neighbours, 0-1.
        `nearness` (R,), 0-1, is how much the learned widths count beside the analytic model's `own`; those only widen.
        """
        scale = self.scale(hints)
        found = []
        for side in (0, 1):
            away, new, pair = (self.bounds[tier][side] for tier in TIERS)
            known = familiar * pair * scale + (1 - familiar) * np.maximum(new * scale, self.floor)
            width = np.maximum(np.where(here, known, np.maximum(away * scale, known)), LEAST_ERROR)
            # Between what is known by its name the analytic model's range says nothing more.
            trust = np.maximum(nearness, np.where(here, familiar, 0.0))
            found.append(trust * width + (1 - trust) * np.maximum(width, own[side]))
        return found[0], found[1]

    def scale(self, hints: Floats) -> Floats:
        """The typical error of each row on the log scale; (R,)."""
        return np.asarray(np.exp(np.minimum(self.start + hints @ np.array(self.slope), 1.0)))

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        bounds = {name: list(pair) for name, pair in self.bounds.items()}
        return {
            "start": self.start, "slope": list(self.slope), "bounds": bounds, "floor": self.floor
        }  # fmt: skip

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Ranges:
        """Inverse of `to_json`; KeyError, IndexError, TypeError or ValueError on anything else."""
        bounds = {name: (float(value["bounds"][name][0]), float(value["bounds"][name][1])) for name in TIERS}
        made = cls(
            float(value["start"]), tuple(float(one) for one in value["slope"]), bounds, float(value["floor"])
        )  # fmt: skip
        every = [made.start, *made.slope, made.floor, *(one for pair in bounds.values() for one in pair)]
        if not np.isfinite(every).all() or len(made.slope) != HINTS or min(*every[1:]) < 0:
            raise ValueError("ranges have a number that is none, or is below 0")
        return made


def hints_of(base: Floats, expected: Floats, correction: Floats, deviation: Floats) -> Floats:
    """What makes an error larger, (R, 4), each at least 0: contention as the analytic model has it and as the answer
    has it, the size of the correction, and how far members of the learner differ."""
    lost = [1 - np.clip(one, 0.0, 1.0) for one in (base, expected)]
    return np.stack([*lost, np.minimum(np.abs(correction), 2.0), np.minimum(deviation, 1.0)], axis=1)


@dataclass(frozen=True, slots=True)
class TierErrors:
    """Left-out rows of one tier, (J,): errors on the log scale, and what `half_widths` needs of each row; `weight` (J,)
    is how much each counts. `scatter` (J,) is by how much a row differs from the median of its own repeats, as a
    further one would, nan = not repeated."""

    error: Floats
    scatter: Floats
    hints: Floats
    familiar: Floats
    nearness: Floats
    own: tuple[Floats, Floats]
    weight: Floats


def calibrate(tiers: Mapping[str, TierErrors], workloads: int) -> Ranges:
    """Fit the typical error over all tiers, then the bounds of each so that they hold in LEVEL of its left-out rows,
    and of repeats around their own median, which no model tells apart. With few different `workloads` nothing shows how
    others behave."""
    floor = 0.0 if workloads >= ENOUGH_WORKLOADS else UNTESTED if "workload" not in tiers else UNTESTED / 2
    filled = [one for one in tiers.values() if len(one.error)]
    if not filled:
        return Ranges(float(np.log(UNTESTED)), (0.0,) * HINTS, dict.fromkeys(TIERS, (1.0, 1.0)), floor)
    error = np.concatenate([np.abs(one.error) for one in filled])
    hints = np.concatenate([one.hints for one in filled])
    start, slope = _typical(np.log(error + LEAST_ERROR), hints)
    ranges = Ranges(start, slope, dict.fromkeys(TIERS, (1.0, 1.0)), floor)
    bounds: dict[str, tuple[float, float]] = {}
    for tier in TIERS:
        rows = tiers.get(tier)
        if rows is None or len(rows.error) < FEW:
            continue
        scale = ranges.scale(rows.hints)
        bounds[tier] = _of_side(rows, 0, scale), _of_side(rows, 1, scale)
    signed, weight = (np.concatenate([getattr(one, name) for one in filled]) for name in ("error", "weight"))
    scale, nothing = ranges.scale(hints), np.zeros(len(error))
    of_all = _bound(-signed, scale, nothing + 1, nothing, weight), _bound(signed, scale, nothing + 1, nothing, weight)
    usual = next((bounds[tier] for tier in TIERS if tier in bounds), of_all)
    for tier in TIERS:
        bounds[tier] = usual = bounds.get(tier, usual)
    return Ranges(start, slope, bounds, floor)


def _of_side(rows: TierErrors, side: int, scale: Floats) -> float:
    """The lower (0) or the upper (1) bound of a tier, in typical errors."""
    sign, repeated = (-1, 1)[side], np.isfinite(rows.scatter)
    found = _bound(sign * rows.error, scale, rows.nearness, rows.own[side], rows.weight)
    if not repeated.any():
        return found
    parts = (scale, rows.nearness, rows.own[side], rows.weight)
    return max(found, _bound(sign * rows.scatter[repeated], *(one[repeated] for one in parts)))


def _typical(size: Floats, hints: Floats) -> tuple[float, tuple[float, ...]]:
    """Start and slopes, none below 0, of the log of an error by least squares."""
    from scipy.optimize import nnls

    low = float(size.min())
    found, _ = nnls(np.column_stack([np.ones(len(size)), hints]), size - low)
    return float(found[0] + low), tuple(min(float(one), STEEPEST) for one in found[1:])


def _bound(error: Floats, scale: Floats, nearness: Floats, own: Floats, weight: Floats) -> float:
    """How many typical errors a bound must be away to hold in all but TAIL of the rows, by weight; with n rows of them
    the next larger one (Lei et al., JASA 2018)."""
    allowed = TAIL * weight.sum() - weight.max()

    def missed(away: float) -> float:
        width = away * scale
        return float(weight[error > nearness * width + (1 - nearness) * np.maximum(width, own)].sum())

    low, high = 0.0, MOST
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if missed(middle) <= max(allowed, 0.0) else (middle, high)
    return max(high, 0.1)


def balanced(groups: Sequence[str]) -> Floats:
    """Weights by which groups of any size count alike, by the root of their size; mean 1; (J,)."""
    if not len(groups):
        return np.zeros(0)
    _, which, count = np.unique(np.array(groups), return_inverse=True, return_counts=True)
    weight = 1 / np.sqrt(count[which])
    return np.asarray(weight / weight.mean())
