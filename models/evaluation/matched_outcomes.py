"""How a group fared against others that are like it: matching within bounds, and a bootstrap over whole hosts.

Who is in the group was not drawn by lot, so a difference is what it is: that between those who are compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as students_t

from models.arrays import Bools, Floats, Ints

DEMAND = 1.5  # two demands within this factor are alike
APART_S = 86_400.0  # two that came within a day came at the same time
LEAST_DEMAND = 0.05  # CPUs: below it demands are alike
FEWEST, FEWEST_HOSTS = (
    20,
    8,
)  # matched ones in the group, and hosts that they and their like are on; research.advice_worth
LEVEL = 0.90
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class FaredUnit:
    """One that is compared: `stratum` is what must be equal (size, class, hosts alike), `demand` in CPUs, `time_s` when
    it came, and `outcome` how it fared. `followed` = it is in the group."""

    followed: bool
    stratum: str
    host: str
    demand: float
    time_s: float
    outcome: float


@dataclass(frozen=True, slots=True)
class MatchedDifference:
    """The group's mean outcome (`mine`) and that of its like (`theirs`), with the 90 % interval of the difference, None
    where too few are compared.

    `matched` of the `group` have somebody like them; `others` are those, on so many `hosts` together.
    """

    group: int
    matched: int
    others: int
    hosts: int
    mine: float = math.nan
    theirs: float = math.nan
    lower: float | None = None
    upper: float | None = None

    @property
    def difference(self) -> float:
        return self.mine - self.theirs


def matched_difference(units: Sequence[FaredUnit], *, seed: int = 0) -> MatchedDifference:
    """How those who followed fared, less the mean of all who are like each of them and did not.

    The interval is by a bootstrap that weighs whole hosts anew (exponential weights: Rubin 1981), since those on one
    host fare alike; with Student's t for the number of hosts, since few hosts tell their own spread badly. Each
    counterpart's mean takes all within the bounds and not the nearest ones: of those a bootstrap is wrong (Abadie and
    Imbens 2008).
    """
    alike = _alike(units)
    chosen = np.flatnonzero(alike.any(axis=1))
    group = sum(one.followed for one in units)
    used = np.flatnonzero(alike.any(axis=0))
    if not len(chosen):
        return MatchedDifference(group, 0, 0, 0)
    outcome = np.array([one.outcome for one in units])
    host = np.unique([one.host for one in units], return_inverse=True)[1]
    near = alike[np.ix_(chosen, used)].astype(float)
    mine, theirs = _means(near, outcome[chosen], outcome[used], np.ones((1, len(chosen))), np.ones((1, len(used))))
    number = len(set(host[chosen].tolist()) | set(host[used].tolist()))
    found = MatchedDifference(group, len(chosen), len(used), number, float(mine[0]), float(theirs[0]))
    if found.matched < FEWEST or found.others < FEWEST or number < FEWEST_HOSTS:
        return found
    half = _half_width(near, outcome, host, chosen, used, seed)
    edges = (found.difference - half, found.difference + half)
    return MatchedDifference(
        group, found.matched, found.others, number, found.mine, found.theirs, float(edges[0]), float(edges[1])
    )


def _alike(units: Sequence[FaredUnit]) -> Bools:
    """Whether the one in the row followed and the one in the column did not and is like it, (N, N)."""
    followed = np.array([one.followed for one in units], dtype=bool)
    stratum = np.unique([one.stratum for one in units], return_inverse=True)[1]
    demand = np.log(np.maximum([one.demand for one in units], LEAST_DEMAND))
    time_s = np.array([one.time_s for one in units])
    same = stratum[:, None] == stratum[None, :]
    near = np.abs(demand[:, None] - demand[None, :]) <= math.log(DEMAND)
    then = np.abs(time_s[:, None] - time_s[None, :]) <= APART_S
    return np.asarray(followed[:, None] & ~followed[None, :] & same & near & then)


def _means(near: Floats, mine: Floats, theirs: Floats, of_mine: Floats, of_theirs: Floats) -> tuple[Floats, Floats]:
    """Weighted means of the group and of its like, (W,), by W sets of weights."""
    like = (of_theirs * theirs) @ near.T / (of_theirs @ near.T)
    total = of_mine.sum(axis=1)
    return (of_mine @ mine) / total, (of_mine * like).sum(axis=1) / total


def _half_width(near: Floats, outcome: Floats, host: Ints, chosen: Ints, used: Ints, seed: int) -> float:
    weights = np.random.default_rng(seed).exponential(size=(RESAMPLES, int(host.max()) + 1))
    mine, theirs = _means(near, outcome[chosen], outcome[used], weights[:, host[chosen]], weights[:, host[used]])
    sides = min(len(np.unique(host[chosen])), len(np.unique(host[used])))
    return float(students_t.ppf(0.5 + LEVEL / 2, max(sides - 1, 1)) * (mine - theirs).std())
