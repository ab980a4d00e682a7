"""Demand of instances without measurements: widened from one number, or taken from instances that are alike."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from profiler.demand import Demand, Resource
from profiler.observed import Instance

_STEM = re.compile(r"[-_.]?[0-9]+$")  # what numbers the copies of one service: `web-12`
ENOUGH = 12  # windows, an hour of them, from which on the spread of an instance is its own
LEAST_FACTOR = 0.1  # of the mean: in calmer hours an instance says little of the others
WORTH = 4.0  # instances: what a wider level counts for beside the instances of a narrower one
GIVEN_WINDOWS = 72.0  # six hours: a judgement of what one number of unknown age is worth, not a measurement
# Of the hours of a day that an instance was seen for some days: windows of a day without hours that count beside those
# of each hour. One day so drawn predicts the next ones as well as three do (decision 80).
PRIOR_HOURS = 24.0
# So much of one day's hours comes again on the next days, and such a variance does not (Bitbrains,
# 2026-11-25, decision 80): another instance of its kind cannot tell more.
REPEATS, DAY_NOISE = 0.46, 0.46
LOG_UNIT = 1e-6
HOUR_UNIT = 1e-3
Hours = tuple[int, ...]
STEP = 0.05  # of a logarithm: five per cent
Trait = tuple[str, str]
_LABELS = (
    ("project", "project"),
    ("flavor", "flavor_name"),
    ("flavor", "flavor"),
    ("image", "image"),
    ("class", "class"),
)
LEAST = 1e-3  # of a CPU per vCPU: below it an instance sleeps, and a logarithm says nothing more
Amount = TypeVar("Amount", float, NDArray[np.float64])


@dataclass(frozen=True, slots=True)
class MachineClass:
    """What virtual machines of a kind have in common; ratios are medians over machines, to a machine's own mean.

    `mean` is the mean use of a vCPU over machines and `log_deviation` the standard deviation of its logarithm. Demand
    varies between windows by `widest` times its mean where a machine uses next to nothing; where it uses more, its
    variance is the part `varies` of the largest that is possible between nothing and all vCPUs (`spread_of`). `common`
    is the mean correlation of two machines, `lag_one` the correlation of successive windows of `window_s`, `days` the
    deviation of one day's mean over the mean of all days.
    """

    mean: float
    log_deviation: float
    widest: float
    varies: float
    p50: float
    p95: float
    p99: float
    lag_one: float
    common: float
    days: float
    window_s: float = 300.0


# On the first day. How busy machines are is that of the business machines of a hoster, which are nearer to a private
# cloud than a research testbed is: Bitbrains, 49 machines awake of 50, 269,000 windows in August and September 2013
# (OpenDC's sample of fastStorage; Shen et al., CCGrid 2015; research/demand_classes.py, 2026-11-23). How demand varies
# about its mean (`widest`, `varies`, `common`) is the geometric mean of that trace's, 2.19, 0.595 and 0.0343, and those
# of PlanetLab's day of 2011-03-03, 1.53, 0.085 and 0.0061 (1,052 machines, 303,000 windows by CoMon; Beloglazov's
# planetlab-workload-traces; research/demand_classes.py, 2026-11-28; decision 164).
DAY_ONE = MachineClass(
    0.112, 1.93, widest=1.83, varies=0.225, p50=0.84, p95=1.95, p99=2.18, lag_one=0.61, common=0.0144, days=0.11
)


def spread_of(mean: Amount, most: Amount) -> Amount:
    """Standard deviation between windows of a demand for CPUs of which only the mean is known, where the vCPUs are
    `most`; both in CPUs, numbers or arrays."""
    wide, room = DAY_ONE.widest**2, DAY_ONE.varies * (most - mean)
    return mean * (wide * room / (room + wide * mean)) ** 0.5  # type: ignore[no-any-return]


def from_mean(mean: float, vcpus: int, resource: Resource = "cpu") -> Demand:
    """Widen a mean that a user gave, in CPUs (or the resource's unit), to a distribution like those of its class.

    It is as doubtful as GIVEN_WINDOWS windows of the class would leave it. ValueError when the mean is no demand or
    above `vcpus`.
    """
    if resource == "cpu" and mean > vcpus:
        raise ValueError(f"demand for cpu: mean {mean:g} is above {vcpus} vCPUs")
    most = float(vcpus) if resource == "cpu" else math.inf
    unsure = max(doubt_of_mean(mean, usual_spread(mean, most)), LEAST)
    return _like(Demand(mean, resource, doubt=unsure, origin="given"), most)


@lru_cache(maxsize=16_384)  # scenes of a plan are built of the same instances again and again
def completed(given: Demand, vcpus: int) -> Demand:
    """A given demand with what it leaves out put in from its class: spread and quantiles, doubt, common share.

    A high quantile shows the spread better than the class does.
    """
    wide = from_mean(given.mean, vcpus, given.resource)
    quantiles = (given.p50, given.p95, given.p99)
    keep = any(one is not None for one in quantiles)
    p50, p95, p99 = _grown(given, wide) if keep else (wide.p50, wide.p95, wide.p99)
    return replace(
        given,
        spread=given.spread or _spread_by_quantile(given) or wide.spread,
        p50=p50,
        p95=p95,
        p99=p99,
        autocorrelation_s=wide.autocorrelation_s if given.autocorrelation_s is None else given.autocorrelation_s,
        common=wide.common if given.common is None else given.common,
        doubt=given.doubt or wide.doubt,
    )


def _spread_by_quantile(given: Demand) -> float:
    """The spread of a normal distribution with this mean and p95, or p99 where that is unknown; 0 = none known."""
    normal = NormalDist()
    for share, value in ((0.95, given.p95), (0.99, given.p99)):
        if value is not None and value > given.mean:
            return (value - given.mean) / normal.inv_cdf(share)
    return 0.0


def day_one(vcpus: int) -> Demand:
    """CPU demand of an instance of which only the size is known, on a cloud without measurements yet."""
    return from_class(vcpus, ())


@dataclass(frozen=True, slots=True)
class LogSums:
    """Sums over instances of the logarithm of their mean demand per vCPU, exact in units of LOG_UNIT, and over those
    whose day is known of the factors of its 24 hours, exact in units of HOUR_UNIT, and of all their squares.

    Whole numbers, so that sums do not depend on the order in which instances came.
    """

    n: int = 0
    first: int = 0
    second: int = 0
    shaped: int = 0
    hours: Hours = ()
    squares: int = 0

    def plus(self, log: int, times: int = 1, hours: Hours = ()) -> LogSums:
        """With one more instance, or with `times` -1 one less."""
        shaped, sums, squares = self.shaped, self.hours, self.squares
        if hours:
            shaped += times
            mine = self.hours or (0,) * len(hours)
            sums = tuple(one + times * other for one, other in zip(mine, hours, strict=True)) if shaped else ()
            squares += times * sum(one * one for one in hours)
        first, second = self.first + times * log, self.second + times * log * log
        return LogSums(self.n + times, first, second, shaped, sums, squares)


def log_of(mean: float, vcpus: float) -> int:
    """The logarithm of a mean demand per vCPU in units of LOG_UNIT."""
    return round(math.log(max(mean / vcpus, LEAST)) / LOG_UNIT)


def own_part(demand: Demand) -> float:
    """What part of a demand's hours is its own; the rest is a day without hours."""
    if not demand.windows or not demand.hours:
        return 1.0
    in_each = demand.windows / len(demand.hours)
    return in_each / (in_each + PRIOR_HOURS)


def hours_of(demand: Demand) -> Hours:
    """Factors of the hours of the day as they were seen, whichever the day, in units of HOUR_UNIT; empty = unknown."""
    count, own = len(demand.hours) // 24, own_part(demand)
    if not count:
        return ()
    hourly = (sum(demand.hours[hour::24]) / count for hour in range(24))
    return tuple(round(max(1 + (one - 1) / own, 0.0) / HOUR_UNIT) for one in hourly)


def day_of(levels: Sequence[LogSums]) -> tuple[float, ...]:
    """Factors of the hours of the day, mean about 1, from wide to narrow levels; empty where no instance's day is
    known.

    Factors are rounded to STEP, so that one more instance seldom changes what is said of all others.
    """
    known = any(level.shaped for level in levels)
    return tuple(round(round(one / STEP) * STEP, 9) for one in _shape_of(levels)[0].tolist()) if known else ()


def _shape_of(levels: Sequence[LogSums]) -> tuple[NDArray[np.float64], float]:
    """The hours that are expected of one more instance, (24,), and the variance of its own about them.

    By empirical Bayes (James and Stein, 1961): each level is drawn towards the next wider one, the widest towards a day
    without hours, by how much its mean differs from it beyond what the differences between its instances let expect;
    it counts at most as much as so many days that were seen do for the next ones. The variance is that of an instance
    about its level, and of what is not known of the level.
    """
    shape, noise, unsure = np.ones(24), DAY_NOISE, 0.0
    for level in levels:
        n = level.shaped
        if not n:
            continue
        mean = np.array(level.hours) * (HOUR_UNIT / n)
        within = max(level.squares * HOUR_UNIT**2 / 24 - n * float((mean**2).mean()), 0.0)
        noise = (WORTH * noise + within) / (WORTH + n - 1)
        differs = float(((mean - shape) ** 2).mean())
        signal = max(differs - noise / n, 0.0)
        weight = min(signal / differs, n / (n + 1 / REPEATS - 1)) if signal else 0.0
        unsure = (1 - weight) ** 2 * signal + weight**2 * noise / n
        shape = shape + weight * (mean - shape)
    return shape, noise + unsure


def with_day_of(seen: Demand, levels: Sequence[LogSums]) -> Demand:
    """A demand whose hours were seen for some days, or not at all, the rest of its day as that of its class."""
    day, rest = day_of(levels), 1 - own_part(seen)
    if not day:
        return seen
    if not seen.hours:
        return replace(seen, hours=day)
    hours = [max(one + rest * (day[at % 24] - 1), 0.0) for at, one in enumerate(seen.hours)]
    scale = len(hours) / sum(hours)
    return replace(seen, hours=tuple(round(scale * one, 9) for one in hours))


def from_class(vcpus: int, levels: Sequence[LogSums]) -> Demand:
    """CPU demand of a new VM from instances that are alike, by empirical Bayes.

    `levels` are from wide to narrow. The logarithm of the mean per vCPU is taken as normal; a level's centre and
    variance are shrunk towards the next wider one's, which counts as WORTH instances, and the widest towards the class.
    What the centre itself is unsure of adds to the doubt. Centre and deviation are rounded to STEP, so that one more
    instance seldom changes what is said of all others.
    """
    centre, deviation = centre_of(levels)
    taught = any(level.n for level in levels)
    if taught:
        centre, deviation = rounded(centre, deviation)
    demand = _from_centre(vcpus, centre, deviation, taught)
    hours = day_of(levels)
    return replace(demand, hours=hours) if hours else demand


def centre_of(levels: Sequence[LogSums]) -> tuple[float, float]:
    """Centre and deviation of the logarithm of what is expected of a new VM, see `from_class`."""
    centre, variance, known = math.log(DAY_ONE.mean) - DAY_ONE.log_deviation**2 / 2, DAY_ONE.log_deviation**2, WORTH
    for level in levels:
        if not level.n:
            continue
        average = level.first * LOG_UNIT / level.n
        within = max(level.second * LOG_UNIT**2 - level.n * average**2, 0.0)
        variance = (WORTH * variance + within) / (WORTH + level.n)
        centre = (WORTH * centre + level.n * average) / (WORTH + level.n)
        known = WORTH + level.n
    return centre, math.sqrt(variance * (1 + 1 / known))


def rounded(centre: float, deviation: float) -> tuple[float, float]:
    """Both to a whole number of STEPs, the deviation upwards and not to nothing."""
    return round(centre / STEP) * STEP, max(math.ceil(deviation / STEP), 1) * STEP


def drawn(seen: Demand, vcpus: int, levels: Sequence[LogSums]) -> Demand:
    """CPU demand of which no whole day was measured, drawn towards that of its class, with the day of the class.

    Its mean is that of a day in which the class's hours are as they were when it was seen. Both logarithms of the mean
    count by their precision; that of the windows is what the class's spread, their resemblance (see `doubt`) and the
    hours that were not seen leave of it. Its shape is that of the class until it was seen for an hour.
    """
    centre, deviation = rounded(*centre_of(levels))
    day = day_of(levels)
    then, unseen = _hours_seen(seen, day, _shape_of(levels)[1])
    mean = min(max(seen.mean / then, LEAST * vcpus), float(vcpus))
    unsure = doubt(seen.windows, usual_spread(mean, float(vcpus)), mean, DAY_ONE.lag_one, 0.0) / mean
    if seen.windows >= ENOUGH and seen.doubt:  # its own spread is known
        unsure = seen.doubt / max(seen.mean, LEAST * vcpus)
    variance = math.log1p(unsure**2 + unseen)
    weight = deviation**2 / (deviation**2 + variance)
    expected = weight * math.log(mean) + (1 - weight) * (centre + math.log(vcpus)) + weight * variance / 2
    drawn_mean = min(math.exp(expected), float(vcpus))
    left = drawn_mean * math.sqrt(math.expm1(weight * variance))
    if seen.windows < ENOUGH:
        return _like(replace(seen, mean=drawn_mean, doubt=left, hours=seen.hours or day), float(vcpus))
    scale = drawn_mean / max(seen.mean, LEAST * vcpus)
    p50, p95, p99 = (None if one is None else one * scale for one in (seen.p50, seen.p95, seen.p99))
    spread = _within(seen.spread * scale, drawn_mean, float(vcpus))
    hours = seen.hours or day
    return replace(seen, mean=drawn_mean, spread=spread, p50=p50, p95=p95, p99=p99, doubt=left, hours=hours).within(
        vcpus
    )


def _hours_seen(seen: Demand, day: Sequence[float], own: float) -> tuple[float, float]:
    """By which factor of its mean an instance with this day is expected to be busy in the hours that were seen of it,
    and the relative variance of that, where each hour of its own varies about the day by `own`; 1 and 0 where they are
    not known."""
    total = sum(seen.seen_hours)
    if not total:
        return 1.0, 0.0
    shares = [count / total for count in seen.seen_hours]
    then = sum(share * factor for share, factor in zip(shares, day, strict=True)) if day else 1.0
    then = max(then, LEAST_FACTOR)
    return then, own * max(sum(share**2 for share in shares) - 1 / 24, 0.0) / then**2


@lru_cache(maxsize=1 << 12)
def _from_centre(vcpus: int, centre: float, deviation: float, taught: bool) -> Demand:
    return replace(_new_vm(vcpus, centre, deviation), origin="class" if taught else "assumed")


def doubt(windows: float, spread: float, mean: float, lag: float, days: float) -> float:
    """Standard deviation of what is not known of a mean: windows resemble each other, and other days were not seen.

    n windows with a lag-1 correlation r are worth n (1 - r) / (1 + r) independent ones, at least one (Bartlett). The
    mean of whole days varies by the class's `days`.
    """
    r = min(max(lag, 0.0), 0.99)
    independent = max(windows * (1 - r) / (1 + r), 1.0)
    return math.sqrt(spread**2 / independent + (DAY_ONE.days * mean) ** 2 / (1 + days))


def doubt_of_mean(mean: Amount, spread: Amount) -> Amount:
    """The doubt about a mean that a user gave: that of GIVEN_WINDOWS windows of the class."""
    independent = GIVEN_WINDOWS * (1 - DAY_ONE.lag_one) / (1 + DAY_ONE.lag_one)
    return (spread**2 / independent + (DAY_ONE.days * mean) ** 2) ** 0.5  # type: ignore[no-any-return]


def stem_of(instance: Instance) -> str:
    """Its name without the number at its end, empty = there is none: `web` of `web-12`."""
    full = instance.labels.get("name") or instance.id
    stem = _STEM.sub("", full)
    return stem if stem != full else ""


def traits(instance: Instance) -> tuple[Trait, ...]:
    """What an instance may share with others, from the widest trait to the narrowest: a name and a value each.

    Labels say project, flavor, image and class; the stem is its name without the number at its end.
    """
    named = [(name, instance.labels.get(label, "")) for name, label in _LABELS]
    found = [*named, ("name", stem_of(instance)), ("workload", instance.workload or "")]
    return tuple((name, value) for name, value in found if value)


def _new_vm(vcpus: int, centre: float, deviation: float) -> Demand:
    """A logarithmic normal of the mean per vCPU, of which what is above a whole vCPU counts as one, as a demand."""
    normal = NormalDist()
    full = normal.cdf(centre / deviation)
    first, second = (
        math.exp(power * centre + (power * deviation) ** 2 / 2) * normal.cdf(-centre / deviation - power * deviation)
        + full
        for power in (1, 2)
    )
    unsure = math.sqrt(max(second - first**2, 0.0))
    return _like(Demand(vcpus * first, doubt=vcpus * max(unsure, LEAST)), float(vcpus))


def _like(one: Demand, most: float) -> Demand:
    """Its spread, quantiles and resemblance over time as those of the class, none above `most`."""
    spread = usual_spread(one.mean, most)
    normal = NormalDist(one.mean, spread or LEAST)
    p50 = min(DAY_ONE.p50 * one.mean, most)
    p95, p99 = (min(normal.inv_cdf(share), most) for share in (0.95, 0.99))
    return replace(
        one,
        spread=spread,
        p50=p50,
        p95=p95,
        p99=p99,
        window_s=DAY_ONE.window_s,
        autocorrelation_s=DAY_ONE.window_s / -math.log(DAY_ONE.lag_one),
        common=DAY_ONE.common,
    )


def usual_spread(mean: float, most: float) -> float:
    """`spread_of` any resource; of one whose size is unknown, `most` = inf, as of a machine as busy as most are."""
    return spread_of(min(mean, most), most if math.isfinite(most) else max(mean, LEAST) / DAY_ONE.mean)


def _within(spread: float, mean: float, most: float) -> float:
    """The spread, at most what a value between 0 and `most` with this mean can have."""
    return min(spread, math.sqrt(mean * max(most - mean, 0.0))) if math.isfinite(most) else spread


def _grown(given: Demand, wide: Demand) -> tuple[float | None, float | None, float | None]:
    """The given quantiles with the class's where one is missing and fits between its neighbours."""
    p95 = given.p95
    p50 = given.p50 if given.p50 is not None else _between(wide.p50, 0.0, p95 if p95 is not None else given.p99)
    p95 = p95 if p95 is not None else _between(wide.p95, p50 or 0.0, given.p99)
    p99 = given.p99 if given.p99 is not None else _between(wide.p99, p95 or p50 or 0.0, None)
    return p50, p95, p99


def _between(value: float | None, low: float, high: float | None) -> float | None:
    if value is None:
        return None
    return max(low, value) if high is None else min(max(low, value), high)
