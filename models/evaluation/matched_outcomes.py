"""Comparisons on equal terms: paired errors of two models, and outcomes of matched instances.

The group was not drawn by lot, so a difference is what it is: that between those that are compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.evaluation.error_metrics import resampled_means
from models.learning.held_out import HeldOutPredictions

# Compares models by their held-out predictions: errors on common rows, and bootstrap bounds of their means.
#
# A module of its own: the service's gate needs it, and not the methods that an evaluation compares with.

FEWEST_PAIRS = 5  # among fewer, noise cannot be distinguished from a difference
SAME_MEASURED = 1e-5  # relative; a key with another measured value is another measurement


@dataclass(frozen=True, slots=True)
class ResampledMeans:
    """Means of a few columns over rows, and over resamples of pairs; (K,) and (RESAMPLES, K)."""

    rows: int
    pairs: int
    mean: Floats
    resampled: Floats

    def bounds(self, column: int, level: float) -> tuple[float, float] | None:
        """Lower and upper bound of one mean, each one-sided at `level`; None where pairs are too few to tell noise.

        The bootstrap's spread is too small for few pairs: it is widened by sqrt(n / (n - 1)), and by Student's quantile
        over the normal one (n - 1 degrees of freedom).
        """
        if self.pairs < FEWEST_PAIRS:
            return None
        from scipy.special import ndtri, stdtrit  # a fifth of a second, for which a service would start later

        n = self.pairs
        wide = np.sqrt(n / (n - 1)) * stdtrit(n - 1, 1 - level) / ndtri(1 - level)
        off = np.quantile(self.resampled[:, column], [level, 1 - level]) - self.mean[column]
        low, high = self.mean[column] + wide * off
        return float(low), float(high)


def beside(table: HeldOutPredictions, mine: Floats, other: HeldOutPredictions) -> ResampledMeans | None:
    """Errors on common keys with the same measured value; a key that occurs twice counts once, with its mean error."""
    ours = _by_key(table, mine)
    theirs = _by_key(other, errors_of(other, other.expected))
    common = [
        (pair, error, theirs[key][1])
        for key, (measured, error, pair) in ours.items()
        if key in theirs and abs(measured - theirs[key][0]) <= SAME_MEASURED * measured
    ]
    if not common:
        return None
    one, two = (np.array([row[at] for row in common]) for at in (1, 2))
    return means_of(np.column_stack([one, two, one - two]), [row[0] for row in common])


def _by_key(table: HeldOutPredictions, error: Floats) -> Mapping[str, tuple[float, float, str]]:
    """Measured value, mean error and pair by key."""
    keys, first, at = np.unique(np.array(table.key), return_index=True, return_inverse=True)
    mean = np.bincount(at, weights=error) / np.bincount(at)
    rows = zip(keys.tolist(), first.tolist(), mean.tolist(), strict=True)
    return {key: (float(table.measured[row]), value, table.pair[row]) for key, row, value in rows}


def errors_of(table: HeldOutPredictions, guess: Floats) -> Floats:
    """The absolute error of each row, (R,): of the ratio for throughput and share, else of its logarithm."""
    if table.target in {"throughput", "share"}:
        return np.abs(table.measured - guess)
    return np.abs(np.log(table.measured / guess))


def means_of(columns: Floats, pair: Sequence[str]) -> ResampledMeans:
    """Means of `columns` (R, K) with a bootstrap over `pair` (R,), whose rows are drawn together."""
    names, cluster = np.unique(np.array(pair), return_inverse=True)
    resampled = resampled_means(cluster, columns)
    return ResampledMeans(
        len(columns), len(names), columns.mean(axis=0), columns[:0] if resampled is None else resampled
    )


DEMAND = 1.5  # two demands within this factor are alike
DAY_S = 86_400.0
APART_S = DAY_S  # two that came within it came at the same time
LEAST_DEMAND = 0.05  # CPUs: below it demands are alike
# Matched ones in the group and as many like them, and of both together hosts and days on which they came.
FEWEST, FEWEST_HOSTS, FEWEST_DAYS = 20, 8, 5
LEVEL = 0.90
RESAMPLES = 1000


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

    `matched` of the `group` have an instance like them; `others` are those, on so many `hosts` together.
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
    """How those that followed fared, less the mean of all that are like each of them and did not.

    The interval is by a bootstrap that weighs hosts and days of arrival anew, each with exponential weights (Owen and
    Eckles 2012, who find it rather too wide than too narrow), since those on one host or of one day fare alike; with
    Student's t for the number of hosts, since few hosts tell their own spread badly. The mean is of all within the
    bounds and not of the nearest ones: of those a bootstrap is wrong (Abadie and Imbens 2008).
    """
    group = sum(one.followed for one in units)
    alike = alike_within_bounds(units)
    both = [np.flatnonzero(alike.any(axis=axis)) for axis in (1, 0)]
    chosen, used = both
    if not len(chosen):
        return MatchedDifference(group, 0, 0, 0)
    outcome = np.array([one.outcome for one in units])
    host, day = (
        np.unique(some, return_inverse=True)[1]
        for some in ([one.host for one in units], [one.time_s // DAY_S for one in units])
    )
    near = alike[np.ix_(chosen, used)].astype(float)
    every = np.ones((1, len(units)))
    mine, theirs = (float(one[0]) for one in _means(near, outcome, every, chosen, used))
    hosts, days = (len(np.unique(some[np.concatenate(both)])) for some in (host, day))
    counts = group, len(chosen), len(used), hosts
    if min(len(chosen), len(used)) < FEWEST or hosts < FEWEST_HOSTS or days < FEWEST_DAYS:
        return MatchedDifference(*counts, mine, theirs)
    random = np.random.default_rng(seed)
    drawn = np.subtract(*_means(near, outcome, _drawn(random, host) * _drawn(random, day), chosen, used))
    sides = min(len(np.unique(host[some])) for some in both)
    from scipy.special import stdtrit  # a fifth of a second, for which a service would start later

    half = float(stdtrit(max(sides - 1, 1), 0.5 + LEVEL / 2) * drawn.std())
    return MatchedDifference(*counts, mine, theirs, mine - theirs - half, mine - theirs + half)


def alike_within_bounds(units: Sequence[FaredUnit]) -> Bools:
    """Whether the one in the row followed and the one in the column did not and is like it, (N, N)."""
    followed = np.array([one.followed for one in units], dtype=bool)
    stratum = np.unique([one.stratum for one in units], return_inverse=True)[1]
    demand = np.log(np.maximum([one.demand for one in units], LEAST_DEMAND))
    time_s = np.array([one.time_s for one in units])
    same = stratum[:, None] == stratum[None, :]
    near = np.abs(demand[:, None] - demand[None, :]) <= math.log(DEMAND)
    then = np.abs(time_s[:, None] - time_s[None, :]) <= APART_S
    return np.asarray(followed[:, None] & ~followed[None, :] & same & near & then)


def _means(near: Floats, outcome: Floats, weights: Floats, chosen: Ints, used: Ints) -> tuple[Floats, Floats]:
    """Weighted means of the group and of its like, (W,), by W sets of weights (W, N); `near` is (chosen, used)."""
    mine, theirs = weights[:, chosen], weights[:, used]
    like = (theirs * outcome[used]) @ near.T / (theirs @ near.T)
    total = mine.sum(axis=1)
    return (mine @ outcome[chosen]) / total, (mine * like).sum(axis=1) / total


def _drawn(random: np.random.Generator, cluster: Ints) -> Floats:
    """Weights of each one's cluster, (RESAMPLES, N)."""
    return np.asarray(random.exponential(size=(RESAMPLES, int(cluster.max()) + 1))[:, cluster])
