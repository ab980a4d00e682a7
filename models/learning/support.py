"""How much of what was measured is like a question, and ranges of a prediction, calibrated on left-out groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.arrays import Bools, Floats, Ints

# Conformal prediction ranges from errors on left-out campaigns, workloads and pairs, normalised by expected size.

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
    and of repeats around their own median, which no model separates. With few different `workloads` nothing shows how
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


MOST_CENTRES = 192  # that stand for all rows: of more, each has a few rows around it
MOST_MACHINES = 64  # that are distinguished; further ones count as one
HALF = 3.0  # measured rows like a question with which half of the way is gone
MISSING = 1.0  # how far apart, in spreads of a column, a known value and an unknown one are
LEAST_SPREAD = 0.05  # of a column: all are shares, ratios or logarithms
# A column of settings or limits that never varied in training gave nothing to the trees, and nothing shows that it
# does not matter. So one counts as much as all others together, in units of a tenth: of a share, or of a factor e.
UNTRIED_SPREAD, UNTRIED_WEIGHT = 0.1, 1.0
FARTHEST = -80.0  # of the exponent of a row's nearness: beyond it nothing counts
UNVARIED = 1e-6  # the spread of a column that has one value


@dataclass(frozen=True, slots=True)
class Likeness:
    """Of R rows, (R,): `value` how near training is, 0-1, as far as a row is known; `similar` how many measured rows
    are like each; `machines` on how many machines those were measured."""

    value: Floats
    similar: Floats
    machines: Floats


@dataclass(frozen=True, slots=True)
class Support:
    """K centres of the training rows, (K, F), nan = unknown, in the columns' own units.

    `scale` (F,) is the spread of each column and `weight` (F,) how much it counts: as much as it gave to the trees, 1
    in all, for what changes no answer makes no question another one; UNTRIED_WEIGHT where it had one value only.
    `count` (K, M) are the rows around each centre by
    machine. `reach` is the distance, in spreads, at which a row counts 0.61. `known` (F,), 1 in all, is how much of
    what the trees look at each column is, where training knew it.
    """

    centres: Floats
    scale: Floats
    weight: Floats
    count: Floats
    reach: float
    known: Floats

    def of(self, x: Floats) -> Likeness:
        """How near training is to rows (R, F): continuous in every column, and never nearer with more distance."""
        return self.of_squares(squares(x, self.centres, self.scale, self.weight), self.reach, self.known_of(x))

    def known_of(self, x: Floats) -> Floats:
        """How much of what the trees look at is known of rows (R, F), 0-1: (R,). However many measured rows are alike
        in the rest, nothing shows that a question is like them in what is not known of it."""
        return np.asarray(~np.isnan(x) @ self.known)

    def of_squares(self, away: Floats, reach: float, known: Floats) -> Likeness:
        """The same from squared distances (R, K), and how much is known of the rows (R,)."""
        # Seven digits of a count of rows are enough, and processors are slow with numbers next to nothing.
        near = np.multiply(away, -1 / (2 * reach**2), dtype=np.float32, casting="unsafe")
        near = np.exp(np.maximum(near, FARTHEST, out=near), out=near)
        by_machine = (near @ self.count.astype(np.float32)).astype(np.float64)
        similar = by_machine.sum(axis=1)
        machines = np.minimum(by_machine, 1.0).sum(axis=1)
        return Likeness(known * similar / (similar + HALF), similar, machines)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        centres = [[None if np.isnan(one) else one for one in row] for row in self.centres.tolist()]
        return {
            "centres": centres, "scale": self.scale.tolist(), "weight": self.weight.tolist(),
            "count": self.count.tolist(), "reach": self.reach, "known": self.known.tolist(),
        }  # fmt: skip

    @classmethod
    def from_json(cls, value: Mapping[str, Any], features: int) -> Support:
        """Inverse of `to_json`; KeyError, TypeError or ValueError on anything else."""
        centres = np.array([[np.nan if one is None else one for one in row] for row in value["centres"]], dtype=float)
        names = ("scale", "weight", "count", "known")
        scale, weight, count, known = (np.array(value[name], dtype=float) for name in names)
        reach = float(value["reach"])
        shapes = centres.shape == (len(count), features) and scale.shape == weight.shape == known.shape == (features,)
        if not shapes or count.ndim != 2 or not len(count):
            raise ValueError("the centres of support do not fit together")
        sane = (scale > 0).all() and (count >= 0).all() and reach > 0 and (known >= 0).all() and known.sum() < 1 + 1e-6
        if not sane or not (
            (weight >= 0).all() and all(np.isfinite(one).all() for one in (scale, weight, count, reach))
        ):
            raise ValueError("support has a scale, a weight or a count that is none")
        return cls(centres, scale, weight, count, reach, known)


def squares(x: Floats, centres: Floats, scale: Floats, weight: Floats) -> Floats:
    """Weighted squared distances of rows (R, F) from centres (K, F) in spreads; (R, K).

    One product of matrices. What all rows or all centres have in common in a column, as that it is known, adds the same
    to each centre or row, and takes no column of the product: most columns are known everywhere or nowhere.
    """
    used = np.flatnonzero(weight)
    weight, x, centres = weight[used], x[:, used] / scale[used], centres[:, used] / scale[used]
    known, there = ~np.isnan(x), ~np.isnan(centres)
    x, centres = np.where(known, x, 0.0), np.where(there, centres, 0.0)
    some, every = known.any(axis=0), known.all(axis=0)
    everywhere, mixed = there.all(axis=0), some & ~every
    of_known = weight * (centres**2 + MISSING * ~there - MISSING * there)  # beside MISSING * there, of all rows
    varying = some & ~everywhere
    terms = np.concatenate([x[:, some], x[:, varying] ** 2, known[:, mixed]], axis=1)
    factors = np.concatenate(
        [(-2 * weight * centres)[:, some], (weight * there)[:, varying], of_known[:, mixed]], axis=1
    )
    found = terms @ factors.T
    found += (x[:, everywhere] ** 2 @ weight[everywhere])[:, None]
    found += MISSING * (there @ weight) + of_known[:, every].sum(axis=1)
    return np.asarray(np.maximum(found, 0.0, out=found))


def fit_support(
    x: Floats, importance: Floats, machine: Sequence[str], reach: float, kinds: Sequence[bool] | None = None
) -> Support:
    """Centres at random rows, as many of each machine as its part of the root of its rows; each row belongs to the
    nearest. `kinds` (F,) says of which columns another value than the only one in training makes a row unlike."""
    known = ~np.isnan(x)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, x, 0.0).sum(axis=0) / count
    spread = np.sqrt(np.where(known, (x - mean) ** 2, 0.0).sum(axis=0) / count)
    even = np.full(x.shape[1], 1 / x.shape[1])
    weight = importance if importance.sum() > 0 else even
    looked_at = weight * known.mean(axis=0)
    untried = known.any(axis=0) & (spread < UNVARIED) & (False if kinds is None else np.array(kinds))
    scale = np.where(untried, UNTRIED_SPREAD, np.maximum(spread, LEAST_SPREAD))
    weight = np.where(untried, UNTRIED_WEIGHT, weight)
    which = np.minimum(np.unique(np.array(machine), return_inverse=True)[1], MOST_MACHINES - 1)
    rows = x[_chosen(which)]
    parts = np.array_split(x, len(x) // 50_000 + 1)
    nearest = np.concatenate([squares(part, rows, scale, weight).argmin(axis=1) for part in parts])
    around = np.zeros((len(rows), int(which.max(initial=0)) + 1))
    np.add.at(around, (nearest, which), 1.0)
    return Support(rows, scale, weight, around, reach, looked_at / max(float(looked_at.sum()), 1e-12))


def _chosen(machine: Ints) -> Ints:
    """The rows that become centres, sorted; the same for the same rows."""
    random = np.random.default_rng(0)
    count = np.bincount(machine)
    share = np.sqrt(count) / np.sqrt(count).sum()
    most = np.minimum(np.ceil(share * MOST_CENTRES), count).astype(int)
    drawn = [random.permutation(np.flatnonzero(machine == one))[:few] for one, few in enumerate(most.tolist())]
    return np.sort(np.concatenate(drawn))
