"""How much of what was measured is like a question: one continuous number in place of rules for what is outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.arrays import Floats, Ints

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
