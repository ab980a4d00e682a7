"""Which instances press which, by windows alone: an instance waits more while a certain other one runs.

After CPI2 (Zhang et al., EuroSys 2013), which correlates a victim's cycles per instruction with the CPU use of each
suspect. Here the victim's symptom is the share of the CPU time that it wanted and did not get. What changes with its
own use, or with any other that shares its CPUs, is taken out first (partial correlation), since load moves
together. All pairs of a host are tested at once: the rate of false discoveries is held (Benjamini and Hochberg 1995).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from models.arrays import Floats

FALSE_DISCOVERIES = 0.05  # of the pairs that are named, at most so many are wrong, on average
FEWEST = 36  # windows beyond what is taken out: three hours of them
FEWEST_TOGETHER = 12  # windows in which a suspect was there too: an hour
LEAST_DEMAND = 1.0  # % of one CPU: the share of a smaller one says how one burst met another
_ALWAYS_READY = 0.8  # of the time of its vCPUs, in half of its windows
_RIDGE = 1e-9  # so that two that always run together are no error
_DISTINCT = 1e-3  # of the variance of a suspect's use that no other one explains
LEAST_LOSS = 0.01  # of the CPU time that the victim demands: less does not matter, however sure


@dataclass(frozen=True, slots=True)
class Antagonist:
    """`victim` waits more while `suspect` runs: by `loss` of the CPU time that it demands, at the suspect's mean use.

    `correlation` is partial; `chance` the p-value of one as large by chance.
    """

    victim: str
    suspect: str
    loss: float
    correlation: float
    chance: float


@dataclass(frozen=True, slots=True)
class UsedAndWaited:
    """CPU use and waiting of one instance, in % of one CPU, by window; NaN where it was not measured."""

    cpu: Floats
    waiting: Floats
    vcpus: float = 1.0


def antagonists(measured: Mapping[str, UsedAndWaited], together: Callable[[str, str], bool]) -> tuple[Antagonist, ...]:
    """Every pair of a host whose windows show it, the largest loss first; `together` says which share a CPU."""
    with threadpool_limits(1, "blas"):  # the matrices are small
        tested = [one for name in measured for one in _of_victim(name, measured, together)]
    found = [one for one in _discovered(tested) if one.loss >= LEAST_LOSS]
    return tuple(sorted(found, key=lambda one: (-one.loss, one.victim, one.suspect)))


def _of_victim(
    victim: str, measured: Mapping[str, UsedAndWaited], together: Callable[[str, str], bool]
) -> list[Antagonist]:
    """All that share a CPU with it and run at all, tested."""
    mine = measured[victim]
    demand = mine.cpu + mine.waiting
    known = demand >= LEAST_DEMAND  # NaN is not
    if not known.any():
        return []
    # one that is always ready demands the same all the time, and what it ran is what it did not wait
    own = [mine.cpu[known]] if np.median(demand[known]) < _ALWAYS_READY * 100 * mine.vcpus else []
    there = [name for name in measured if np.count_nonzero(~np.isnan(measured[name].cpu[known])) >= FEWEST_TOGETHER]
    suspects = [name for name in there if name != victim and together(victim, name)]
    if not suspects or np.count_nonzero(known) < FEWEST:
        return []
    use = np.nan_to_num(
        np.stack([measured[name].cpu[known] for name in suspects])
    )  # one that was not there did not run
    lost = mine.waiting[known] / demand[known]
    moving = use.std(axis=1) > 1e-9
    use, suspects = use[moving], [name for name, moves in zip(suspects, moving, strict=True) if moves]
    if not suspects or lost.std() <= 1e-9 or lost.size < len(suspects) + FEWEST:
        return []
    return [
        Antagonist(victim, name, *partial)
        for name, partial in zip(suspects, _partials(np.vstack([use, *own]), lost, len(suspects)), strict=True)
    ]


def _partials(causes: Floats, lost: Floats, suspects: int) -> list[tuple[float, float, float]]:
    """Loss, partial correlation of ranks and its chance of the first `suspects` rows of the causes (rows: use, own
    use). Ranks, because a few windows of a burst would make a chance of their own."""
    from scipy.stats import rankdata  # most of a second, for which a service would start later

    slopes, _ = _regressed(causes, lost)
    ranked, ranked_lost = rankdata(causes, axis=1), rankdata(lost)
    steps, precision = _regressed(ranked, ranked_lost)
    rows = _centred(ranked)
    residual = _centred(ranked_lost) - steps @ rows
    own = precision[:suspects] @ rows / np.diagonal(precision)[:suspects, None]  # what no other row explains of each
    left = residual + steps[:suspects, None] * own
    squares = (own**2).sum(axis=1)
    correlation = (own * left).sum(axis=1) / np.sqrt(np.maximum(squares * (left**2).sum(axis=1), 1e-30))
    loss = slopes[:suspects] * causes[:suspects].mean(axis=1)
    chance = _chance(correlation, effective_size(left, own) - len(rows) - 1)
    apart = squares >= _DISTINCT * (rows[:suspects] ** 2).sum(axis=1)
    return [
        (float(lost), float(one), float(by)) if is_apart else (0.0, 0.0, 1.0)
        for is_apart, lost, one, by in zip(apart, loss, correlation, chance, strict=True)
    ]


def _regressed(causes: Floats, symptom: Floats) -> tuple[Floats, Floats]:
    """Slope of each row by least squares, and the inverse of the matrix of their products."""
    scale = causes.std(axis=1)
    scale[scale <= 1e-12] = 1.0
    rows = _centred(causes) / scale[:, None]
    inverse = np.linalg.inv(rows @ rows.T / symptom.size + _RIDGE * np.eye(len(rows)))
    slopes = inverse @ (rows @ _centred(symptom)) / symptom.size
    return slopes / scale, inverse / np.outer(scale, scale)


def _centred(values: Floats) -> Floats:
    return np.asarray(values - values.mean(axis=-1, keepdims=True))


def _chance(correlation: Floats, freedom: Floats) -> Floats:
    tested = (freedom >= 1) & (correlation > 0)
    of, free = correlation[tested], freedom[tested]
    chance = np.ones(len(correlation))
    from scipy.special import stdtr  # a fifth of a second, for which a service would start later

    chance[tested] = stdtr(free, -of * np.sqrt(free / np.maximum(1 - of**2, 1e-12)))
    return chance


def effective_size(first: Floats, second: Floats) -> Floats:
    """How many independent pairs the rows of two tables (R, n) are worth each, since neighbouring windows are alike
    (Bartlett 1946): n over 1 + twice the sum of products of their autocorrelations, up to a tenth of n."""
    n = first.shape[1]
    most = max(n // 10, 1)
    product = _autocorrelation(first, most) * _autocorrelation(second, most)
    weights = 1 - np.arange(1, most + 1) / n
    return np.asarray(n / np.maximum(1 + 2 * product @ weights, 1.0))


def _autocorrelation(rows: Floats, most: int) -> Floats:
    """Of each row at lags 1 to `most`, (R, most), by its power spectrum, padded so that its ends do not meet."""
    power = np.abs(np.fft.rfft(_centred(rows), 2 * rows.shape[1], axis=1)) ** 2
    products = np.fft.irfft(power, axis=1)[:, : most + 1]
    return np.asarray(products[:, 1:] / np.maximum(products[:, :1], 1e-30))


def _discovered(tested: Sequence[Antagonist]) -> list[Antagonist]:
    """Those named when a share of FALSE_DISCOVERIES of all named may be wrong (Benjamini and Hochberg 1995)."""
    ranked = sorted(tested, key=lambda one: one.chance)
    passing = [at for at, one in enumerate(ranked, 1) if one.chance <= FALSE_DISCOVERIES * at / len(ranked)]
    return ranked[: passing[-1]] if passing else []
