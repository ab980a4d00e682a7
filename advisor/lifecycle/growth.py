"""How a cloud grew lately, by what was seen of it: instances that came and went, and how the demand of those that
stayed changed from one week to another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.domain import Growth
from advisor.domain.plans import DAYS_A_MONTH
from models.arrays import Floats

LEAST_DAYS = 7.0  # of looking at who comes and goes
LEAST_PAIRS = 10  # instances that stayed
_NINETY = 1.645  # standard deviations of a normal distribution to each side of 90 % of it
_RESAMPLES = 400


@dataclass(frozen=True, slots=True)
class LoadTrend:
    """How the demand for CPUs of `instances` that stayed grew, % a month, with the edges of its 90 % range; the weeks
    that show it are `days` apart."""

    percent: float
    lower: float
    upper: float
    instances: int
    days: float

    @property
    def is_growth(self) -> bool:
        """Whether it is above 0 beyond doubt."""
        return self.lower > 0


def load_trend(weeks: Sequence[tuple[float, float]], days: float) -> LoadTrend | None:
    """By the mean demand of each instance in a former and a later week, `days` apart; None where that says too little.

    The range is that of a bootstrap over instances (Efron, Annals of Statistics 7, 1979).
    """
    if len(weeks) < LEAST_PAIRS or days <= 0:
        return None
    pairs = np.array(weeks, dtype=np.float64)
    if pairs[:, 0].sum() <= 0:
        return None
    chosen = np.random.default_rng(0).integers(len(pairs), size=(_RESAMPLES, len(pairs)))
    resampled = pairs[chosen].sum(axis=1)
    ratios = np.divide(resampled[:, 1], resampled[:, 0], out=np.ones(_RESAMPLES), where=resampled[:, 0] > 0)
    lower, upper = np.quantile(_monthly(ratios, days), (0.05, 0.95)).tolist()
    former, later = pairs.sum(axis=0).tolist()
    return LoadTrend(float(_monthly(np.array([later / former]), days)[0]), lower, upper, len(pairs), days)


def _monthly(ratios: Floats, days: float) -> Floats:
    return np.asarray(100.0 * (np.power(np.maximum(ratios, 1e-9), DAYS_A_MONTH / days) - 1.0))


def measured(came: int, went: int, days: float, load: LoadTrend | None) -> tuple[Growth | None, tuple[str, ...]]:
    """The growth to look ahead with, None = none was seen beyond doubt, and what was seen, in sentences.

    Comings and goings vary as independent events do (Poisson), so their difference has the variance of their sum.
    """
    notes: list[str] = []
    monthly = spread = 0.0
    if days >= LEAST_DAYS:
        scale = DAYS_A_MONTH / days
        monthly, spread = (came - went) * scale, _NINETY * math.sqrt(came + went) * scale
        notes.append(f"In the last {days:.0f} days {came:,} instances came and {went:,} went.")
    if load is not None:
        notes.append(
            f"The demand for CPUs of {load.instances:,} instances that stayed changed by {load.percent:+.1f} % a month "
            f"({load.lower:+.1f} to {load.upper:+.1f} %), as two weeks {load.days:.0f} days apart show."
        )
    instances = max(monthly, 0.0) if monthly >= 1 else 0.0
    percent = load.percent if load is not None and load.is_growth else 0.0
    if not instances and not percent:
        return None, tuple(notes)
    doubts = [spread / instances] if instances else []
    if percent and load is not None:
        doubts.append((load.upper - load.lower) / 2 / percent)
    growth = Growth(round(instances, 1), round(percent, 2), uncertain_percent=round(100 * min(max(doubts), 1.0)))
    notes.append(
        f"The months ahead take that as growth: {growth.instances_per_month:g} instances and "
        f"{growth.load_percent_per_month:g} % more load a month, uncertain by {growth.uncertain_percent:g} %."
    )
    return growth, tuple(notes)
