"""Contention for CPUs and devices over time: the mean over moments of demand, and what happens within each moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.arrays import Bools, Floats, Ints
from models.data.demand_classes import doubt_of_mean, spread_of
from models.data.scene import CPU_DEMAND, DAY_PARTS, DEVICE_DEMAND, DEVICES, SceneBatch
from models.physics import cpu_contention
from models.physics.cpu_bursts import CLOSED, HOG, OPEN
from models.physics.cpu_contention import LATE
from models.physics.demands import ASSUMED, guessed, mean_only, open_loop, over_time, trait, weights
from models.physics.normal import density_at
from models.prediction import CpuPressure, DevicePressure
from profiler.demand import Resource
from profiler.observed import DEFAULT_WEIGHT

# Bounds of the moments in probability: demand below its mean rarely hurts, its last 5 % do most. The last two
# make up the worst twentieth of the time. How many are enough was measured (decision 70).
MOMENT_BOUNDS: tuple[float, ...] = (0.0, 0.3, 0.5, 0.7, 0.85, 0.95, 0.99, 1.0)
HOST_CAP = "host_cap_percent"  # of a platform: what its instances may use together, 100 = one CPU
SERVED = 0.995  # of its work that an open loop is served as it arrives; with less it is overloaded at busy times
ALWAYS_BUSY = 0.97  # of its vCPUs: an instance that uses as much alone always demands them
SURE = 1.645  # standard deviations of a 90 % interval


@dataclass(frozen=True, slots=True)
class CpuContention:
    """What S scenes of N slots make of their demand for CPUs: the `pressure`; `fair` (S, N), the CPUs that each gets if
    all are as busy as on average; `driver` (S,), the CPUs that the driver domain gets then; and `driver_run` (S,), the
    CPUs that it gets beside closed loops, which ask for less while they wait."""

    pressure: CpuPressure
    fair: Floats
    driver: Floats
    driver_run: Floats


def cpu_contention_of(
    scenes: SceneBatch,
    cpu: Floats,
    driver_domain: tuple[Floats, Floats, Floats],
    sensitive: Bools,
    deviations: Floats | float = 0.0,
    *,
    fluid: bool = False,
) -> CpuContention:
    """Share the CPUs of each scene among its instances and its driver domain.

    `cpu` (S, N) is what each uses alone on average, in CPUs; `driver_domain` what one with CPUs of its own does for
    each (S, N), which moves as its demand does, what it uses in all and its weight, both (S,); `sensitive` (S, N) who
    asks for more when it is served: closed loops. At `deviations` standard deviations, of all scenes or (S,), every
    instance demands that much more than expected, as far as each one's mean is not known. `fluid`: by a scheduler that
    gives every burst its weighted part at every moment, on any CPU that idles, as simulations do.
    """
    all_consumers = _consumers(scenes, cpu, driver_domain, sensitive, deviations, fluid)
    if scenes.own_cpus.any():
        all_consumers = _beside_own_work(scenes, all_consumers, fluid)
    there = all_consumers.size > 0
    flat = tuple(np.zeros(int(there.sum())) for _ in range(5))
    worst, crowded = np.ones(len(flat[0])), np.zeros(len(scenes))
    z, chance = moments()
    cpu_contention.fastest(
        together(scenes), there.sum(axis=1), all_consumers.size[there], all_consumers.demand[there],
        all_consumers.growth[there], all_consumers.day[there], all_consumers.most[there], all_consumers.loop[there],
        all_consumers.weight[there], all_consumers.brief[there], all_consumers.astray, all_consumers.allowed[there],
        all_consumers.places[there], z, chance, *flat, worst, crowded,
    )  # fmt: skip
    run, want, short, fair, asked = (_in_slots(there, one) for one in flat)
    share = np.divide(run, want, out=np.ones(there.shape), where=want > 1e-12)
    slots = scenes.slots
    may_pile_up = all_consumers.loop == OPEN
    unsaid = over_time(scenes) & np.isnan(open_loop(scenes))
    may_pile_up[:, :slots] |= (all_consumers.loop[:, :slots] == CLOSED) & unsaid
    pressure = CpuPressure(
        share=np.clip(share[:, :slots], 1e-3, 1.0),
        worst=_in_slots(there, worst, 1.0)[:, :slots],
        short=short[:, :slots],
        overloaded=(may_pile_up & (fair < SERVED * asked))[:, :slots],
        crowded=crowded,
    )
    held = _within_pins(scenes, cpu, all_consumers, pressure)
    return CpuContention(held, fair[:, :slots], fair[:, slots], run[:, slots])


def together(scenes: SceneBatch) -> Floats:
    """The CPUs that all instances of a host may use at a time, (S,): all that it has, or those of HOST_CAP."""
    cap = scenes.platform_number(HOST_CAP) / 100
    return np.where(cap > 0, np.minimum(cap, scenes.pcpus), scenes.pcpus).astype(np.float64)


def _within_pins(scenes: SceneBatch, cpu: Floats, all_consumers: _Consumers, pressure: CpuPressure) -> CpuPressure:
    """The pressure where pins leave an instance fewer pCPUs than its demand over time needs at some moments: its own
    vCPUs wait for each other there, as in run / (run + wait) of a host."""
    slots = scenes.slots
    size = all_consumers.size[:, :slots]
    whole = np.minimum(np.maximum(scenes.vcpus, np.ceil(cpu)), np.maximum(scenes.shared.sum(axis=1), 1)[:, None])
    rows = np.flatnonzero((scenes.present & over_time(scenes) & (size < whole)).any(axis=1))
    if not len(rows):
        return pressure
    z, chance = moments()
    factor = np.exp(all_consumers.growth[rows, :slots, None] * z)
    asked = np.minimum(cpu[rows, :, None] * factor / (factor @ chance)[:, :, None], whole[rows, :, None])
    ran = np.minimum(asked, size[rows, :, None])
    late = np.cumsum(chance) > cpu_contention.LATE
    held = (over_time(scenes) & (size < whole))[rows]
    share, worst, short = pressure.share.copy(), pressure.worst.copy(), pressure.short.copy()
    share[rows] *= np.where(held, _over(ran @ chance, asked @ chance, 1.0), 1.0)
    worst[rows] *= np.where(held, _over(ran[:, :, late] @ chance[late], asked[:, :, late] @ chance[late], 1.0), 1.0)
    some = (ran < asked * (1 - 1e-9)) @ chance
    short[rows] = np.where(held, 1 - (1 - short[rows]) * (1 - some), short[rows])
    return replace(pressure, share=np.maximum(share, 1e-3), worst=worst, short=short)


def _in_slots(there: Bools, values: Floats, empty: float = 0.0) -> Floats:
    """Values of all consumers in a row where they are `there`, (S, N)."""
    found = np.full(there.shape, empty)
    found[there] = values
    return found


def doubted(scenes: SceneBatch) -> bool:
    """Whether any mean demand is in doubt."""
    of_devices = (scenes.device_demand[:, :, :, DEVICE_DEMAND.index("doubt")] > 0).any(axis=2)
    of_cpus = guessed(scenes) | mean_only(scenes) | (_known(scenes, "doubt", np.zeros(scenes.load.shape)) > 0)
    return bool((scenes.present & (of_cpus | of_devices)).any())


def moments() -> tuple[Floats, Floats]:
    """Standard normal moments, each the mean of its part of the distribution, and their parts of the time; (M,)."""
    chance = np.diff(np.array(MOMENT_BOUNDS))
    return np.asarray(-np.diff(density_at(MOMENT_BOUNDS)) / chance), chance


@dataclass(frozen=True, slots=True)
class _Consumers:
    """Instances, then the driver domain, then hosts' own work where any has some; (S, N + 1) or (S, N + 2), `day` with
    D and `allowed` with P more, of which `places` are as many."""

    size: Floats
    demand: Floats
    growth: Floats
    day: Floats
    most: Floats
    loop: Ints
    weight: Floats
    brief: Floats
    astray: Floats
    allowed: Bools
    places: Floats


def _consumers(
    scenes: SceneBatch,
    cpu: Floats,
    driver_domain: tuple[Floats, Floats, Floats],
    sensitive: Bools,
    deviations: Floats | float,
    fluid: bool,
) -> _Consumers:
    present = scenes.present
    own_cpus = np.maximum(scenes.allowed, 1)
    size = np.where(present, np.minimum(np.maximum(scenes.vcpus, np.ceil(cpu)), own_cpus), 0.0)
    demand = np.where(present, cpu, 0.0)
    spread, common, doubt = variation(scenes, demand)
    demand = shifted(demand, doubt, deviations)
    day = day_factors(scenes)
    moves = growth(demand, *beside_the_day(demand, spread, common, day), undecided(doubt, deviations))
    # A quota is used up at full speed and then waited for: work arrives, as it were, at the rate of the cap.
    capped = present & (demand >= scenes.cap) & (scenes.cap < size)
    most = np.minimum(size, scenes.cap)
    hog = present & (demand >= ALWAYS_BUSY * size) & ~capped
    loop = np.where(hog, HOG, np.where(sensitive & ~capped, CLOSED, OPEN))
    parts, driver, of_driver = driver_domain
    driver_size = np.where(driver > 0, scenes.driver_cpus.sum(axis=1), 0.0)
    weight = np.concatenate([np.where(present, scenes.weight, 1.0), of_driver[:, None]], axis=1)
    weight = weights(scenes, weight / DEFAULT_WEIGHT)
    return _Consumers(
        size=np.concatenate([size, driver_size[:, None]], axis=1),
        demand=np.concatenate([demand, np.minimum(driver, driver_size)[:, None]], axis=1),
        most=np.concatenate([most, driver_size[:, None]], axis=1),
        growth=np.concatenate([moves, _over((moves * parts).sum(axis=1), parts.sum(axis=1))[:, None]], axis=1),
        day=np.concatenate([day, _day_of_driver(day, parts)[:, None]], axis=1),
        loop=np.concatenate([loop, np.full((len(scenes), 1), OPEN)], axis=1),
        weight=weight,
        brief=weight if fluid else np.where(weight > 0, weight, 1.0) ** trait(scenes.kind, "brief_exponent")[:, None],
        astray=np.zeros(len(scenes)) if fluid else trait(scenes.kind, "work_astray"),
        allowed=np.concatenate([scenes.affinity, scenes.driver_cpus[:, None, :]], axis=1),
        places=np.concatenate([scenes.allowed, scenes.driver_cpus.sum(axis=1)[:, None]], axis=1),
    )


def _beside_own_work(scenes: SceneBatch, consumers: _Consumers, fluid: bool) -> _Consumers:
    """With the work of the hosts themselves as one more consumer, which is as busy all the time and runs where
    unpinned instances do.

    It weighs as much as all instances together: Linux shares between the slices of services and of machines first.
    """
    own = scenes.own_cpus
    size = np.where(own > 0, np.clip(np.ceil(own), 1.0, scenes.shared.sum(axis=1)), 0.0)
    of_all = np.maximum(np.where(scenes.present, scenes.weight, 0.0).sum(axis=1), DEFAULT_WEIGHT) / DEFAULT_WEIGHT
    weight = weights(scenes, of_all[:, None])[:, 0]
    added = {
        "size": size, "demand": np.minimum(own, size), "most": size, "growth": np.zeros(len(own)),
        "loop": np.full(len(own), OPEN), "weight": weight, "allowed": scenes.shared,
        "places": scenes.shared.sum(axis=1),
        "brief": weight if fluid else weight ** trait(scenes.kind, "brief_exponent"),
        "day": np.ones((len(own), consumers.day.shape[2])),
    }  # fmt: skip
    return replace(
        consumers,
        **{name: np.concatenate([getattr(consumers, name), value[:, None]], axis=1) for name, value in added.items()},
    )


def _day_of_driver(day: Floats, parts: Floats) -> Floats:
    """The day (S, D) of a driver domain, that of which it works for; `parts` (S, N) as in `cpu_contention_of`."""
    if not parts.any():
        return np.ones((len(day), day.shape[2]))
    works = parts.sum(axis=1)[:, None]
    of_all = (day * parts[:, :, None]).sum(axis=1)
    return np.asarray(np.divide(of_all, works, out=np.ones_like(of_all), where=works > 1e-12))


def _known(scenes: SceneBatch, name: str, otherwise: NDArray[np.floating[Any]]) -> Floats:
    """A column of CPU_DEMAND, and something else where it is unknown; (S, N)."""
    value = scenes.cpu_demand[:, :, CPU_DEMAND.index(name)]
    return np.where(np.isnan(value), otherwise, value)


def variation(scenes: SceneBatch, demand: Floats) -> tuple[Floats, Floats, Floats]:
    """Spread between windows, the share of its square that all have in common, and doubt of each slot's `demand` for
    CPUs; (S, N), in CPUs."""
    present = scenes.present
    unknown = present & guessed(scenes)
    per_vcpu = np.where(unknown, np.divide(demand, ASSUMED.mean), 0.0)  # vCPUs of the class that use as much
    only = mean_only(scenes)
    widened, unsure = _of_means(scenes, only, demand)
    spread = np.where(present, _known(scenes, "spread", per_vcpu * ASSUMED.spread + widened), 0.0)
    common = np.where(present, _known(scenes, "common", (unknown | only) * (ASSUMED.common or 0.0)), 0.0)
    doubt = np.where(present, _known(scenes, "doubt", per_vcpu * ASSUMED.doubt + unsure), 0.0)
    return spread, common, doubt


def _of_means(scenes: SceneBatch, only: Bools, demand: Floats) -> tuple[Floats, Floats]:
    """Spread and doubt, (S, N), where `only` the mean of a demand is known, 0 elsewhere."""
    if not only.any():
        return np.zeros(demand.shape), np.zeros(demand.shape)
    size = np.maximum(scenes.vcpus, 1.0)
    mean = np.where(only, np.minimum(demand, size), 0.0)
    spread = spread_of(mean, size)
    return spread, doubt_of_mean(mean, spread)


def day_factors(scenes: SceneBatch) -> Floats:
    """Factors of each slot's mean demand for CPUs in the order of DAY_PARTS, 1 where no day is known; (S, N, 12)."""
    known = np.nan_to_num(scenes.cpu_demand[:, :, -len(DAY_PARTS) :], nan=1.0)
    return np.where(scenes.present[:, :, None], known, 1.0)


def shifted(demand: Floats, doubt: Floats, deviations: Floats | float) -> Floats:
    """Demand (S, N) where all of a host together want so many standard deviations of their doubt more than expected."""
    if not np.any(deviations):
        return demand
    together = np.sqrt((doubt**2).sum(axis=1, keepdims=True))
    return np.maximum(demand + np.reshape(deviations, (-1, 1)) * _over(doubt**2, together), 0.0)


def undecided(doubt: Floats, deviations: Floats | float) -> Floats:
    """The doubt (S, N) that is left where it was not decided by so many deviations how much all want."""
    return np.where(np.reshape(deviations, (-1, 1)) == 0, doubt, 0.0)


def beside_the_day(demand: Floats, spread: Floats, common: Floats, day: Floats) -> tuple[Floats, Floats]:
    """Spread and its common share (S, N) that the hours of the day do not explain; `day` (S, N, D) as DAY_PARTS.

    What is left varies in proportion to the mean of the hour. What is common to every instance is the day first of all.
    """
    varies = np.zeros(demand.shape) if (day == 1).all() else day.var(axis=2)
    explained = demand**2 * varies
    left = np.maximum(spread**2 - explained, 0.0)
    shared = np.minimum(np.maximum(common * spread**2 - explained, 0.0), left)
    return np.sqrt(left / (1 + varies)), _over(shared, left)


def growth(demand: Floats, spread: Floats, common: Floats, doubt: Floats) -> Floats:
    """How each demand moves with that of its whole host, as the exponent per standard deviation of the sum; (S, N).

    The sum's variance is that of the common part, which adds up, and that of every instance's own. Given the sum, a
    demand moves by its covariance with it (linear regression), here as a lognormal one of the same mean and deviation.
    """
    shared = np.sqrt(common) * spread
    own = (1 - common) * spread**2 + doubt**2
    shared_sum = shared.sum(axis=1, keepdims=True)
    together = np.sqrt(np.maximum(shared_sum**2 + own.sum(axis=1, keepdims=True), 0.0))
    moves = _over(shared * shared_sum + own, together)
    return np.asarray(np.sqrt(np.log1p(_over(moves, demand) ** 2)))


def _over(value: Floats, whole: Floats, otherwise: float = 0.0) -> Floats:
    return np.asarray(np.divide(value, whole, out=np.full_like(value, otherwise), where=whole > 1e-12))


# How NIC, disk and memory bandwidth are shared over time: at the same kind of moments as CPUs, each for itself.

ALL = 1 - 1e-9  # of what was asked

Share = Callable[[Floats], Floats]
"""What each instance gets of what all ask of a device; (S, N) both, in one unit."""


def device_contention_of(
    scenes: SceneBatch, device: Resource, want: Floats, held: Floats, share: Share, deviations: Floats | float = 0.0
) -> DevicePressure:
    """Share one of DEVICES among instances that would ask for `want` (S, N) alone and on average, in any unit.

    `held` (S, N) is what the instance's own cap leaves of its speed. An instance of which no demand over time is known
    asks for the same at every moment. `deviations` as in `cpu_contention_of`. A share counts from full speed, and is 1
    where all came that was asked: what lets an instance ask for less counts itself.
    """
    if not want.any():
        return DevicePressure(np.ones_like(want), np.ones_like(want), np.zeros_like(want))
    spread, common, doubt = device_variation(scenes, device, want)
    want = shifted(want, doubt, deviations)
    moves = growth(want, spread, common, undecided(doubt, deviations))

    def reached(full: Floats) -> Floats:
        asked = full * held
        got = share(asked)
        part = np.divide(got, full, out=np.ones_like(full), where=full > 0)
        return np.where(got >= asked * ALL, 1.0, np.minimum(part, 1.0))

    if not moves.any():
        ratio = reached(want)
        return DevicePressure(ratio, ratio, (ratio < 1).astype(np.float64))
    z, chance = moments()
    factors = np.exp(moves[None] * z[:, None, None])
    factors /= (factors * chance[:, None, None]).sum(axis=0)
    busiest = reached(want * factors[-1])
    if (busiest >= 1).all():
        return DevicePressure(busiest, busiest, np.zeros_like(want))
    ratios = np.stack([*(reached(want * factor) for factor in factors[:-1]), busiest])
    part = factors * chance[:, None, None]  # of all that is wanted, in each moment
    late = np.cumsum(chance) > LATE
    worst = (part * ratios)[late].sum(axis=0) / part[late].sum(axis=0)
    short = ((ratios < ALL) * chance[:, None, None]).sum(axis=0)
    return DevicePressure((part * ratios).sum(axis=0), worst, short)


def device_variation(scenes: SceneBatch, device: Resource, want: Floats) -> tuple[Floats, Floats, Floats]:
    """Spread, common share and doubt of a demand for one of DEVICES, (S, N), in the unit of `want`; 0 = unknown."""
    mean, *rest = (scenes.device_demand[:, :, DEVICES.index(device), at] for at in range(len(DEVICE_DEMAND)))
    spread, common, doubt = (np.nan_to_num(column) for column in rest)
    unit = np.divide(want, mean, out=np.zeros_like(want), where=mean > 0)
    return spread * unit, common, doubt * unit
