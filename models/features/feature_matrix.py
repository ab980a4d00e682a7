"""`build_matrix` turns scenes into feature rows. Training and serving both use it; nothing is learned here.

All columns are dimensionless and do not grow with a host: shares, ratios, and counts times the scheduler's slice. So
what was learned on two CPUs may be asked about of sixty-four.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from models.arrays import Floats, Ints
from models.data.dataset import Dataset
from models.data.profile import WorkloadProfile
from models.data.scene import CPU_DEMAND, PROBED, ProfileTable, SceneBatch
from models.data.topology import cpu_overlap
from models.physics.contention import variation
from models.physics.demands import burst_ms, driver_apart, first_known, link, profile_column
from models.physics.prior import RESOURCES, PriorResult, solve
from profiler.observed import PROBED_VALUES

# Sensitivity and pressure curves from bubble sweeps (Bubble-Up, Mars et al., MICRO 2011).
#
# A bubble is a program whose pressure can be set. A dataset holds a sweep as metrics with these names:
# `FAMILY_<level><unit>` (`bubble_32mb`) is the T/B of a workload beside a bubble of that level, and `FAMILY_reporter`
# is the T/B of a fixed reporter program beside the workload. The profile of the workload `reporter` holds the
# reporter's own curve. Inverting this curve gives a workload's pressure: the bubble level that slows the reporter as
# much.

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
        falling = -curve + np.arange(len(curve)) * 1e-12  # np.interp needs it to rise
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


# Solo ratio: what an instance's own cap, rate and disk limit cost it when it runs alone.


def solo_ratio(scenes: SceneBatch, target: str) -> Floats:
    """Throughput, latency or jitter of every instance alone with its limits, over alone without them, by the prior.

    Shape (S, N); 1 where no cap, rate or disk limit is set.
    """
    ratio = np.ones(scenes.present.shape)
    limited = np.isfinite(scenes.cap) | np.isfinite(scenes.net_ceil) | np.isfinite(scenes.disk_limit)
    scene, slot = np.nonzero(scenes.present & limited)
    if not len(scene):
        return ratio
    ratio[scene, slot] = getattr(solve(scenes.each_alone(scene, slot)), target)[:, 0]
    return ratio


# What probes found on hosts, as numbers of their platforms: features where a dataset has them (decision 91).


def with_probe_features(dataset: Dataset) -> Dataset:
    """The dataset with what its probes found on a host as numbers of the platform, each in the probe's unit; the same
    dataset where it has none of PROBED_VALUES."""
    found = {platform: _chosen(values) for (platform, workload), values in dataset.probes.items() if not workload}
    if not any(found.values()):
        return dataset
    numbers = {
        name: {**dataset.platform_numbers.get(name, {}), **found.get(name, {})}
        for name in {**dataset.platform_numbers, **dataset.platforms}
    }
    return replace(dataset, platform_numbers=numbers)


def usual_host(datasets: Sequence[Dataset]) -> dict[str, float]:
    """What a host without probes counts as having: the median over all platforms, of values that each has.

    A value that some platform lacks is left out: what is unknown was seen in training, then.
    """
    hosts = [one.platform_numbers.get(name, {}) for one in datasets for name in _measured(one)]
    common = [PROBED + name for name in PROBED_VALUES if hosts and all(PROBED + name in host for host in hosts)]
    return {key: median(host[key] for host in hosts) for key in common}


def probes_needed(metrics: Sequence[str]) -> list[str]:
    """The probed values among a model's metrics, as PROBE.NAME, sorted."""
    return sorted(key.removeprefix(PLATFORM + PROBED) for key in metrics if key.startswith(PLATFORM + PROBED))


def _measured(dataset: Dataset) -> list[str]:
    """Platforms that co-locations were measured on."""
    return sorted({one.platform for one in dataset.colocations if not one.ends_s})


def _chosen(found: Mapping[str, float]) -> dict[str, float]:
    return {PROBED + key: found[key] for key in PROBED_VALUES if key in found}


# Which of many metrics become features: not more than are enough.

MOST_METRICS = 64  # as features they stand three times in a row; assumed to be enough to tell workloads apart


def select_metrics(
    profiles: Sequence[WorkloadProfile], metrics: Collection[str], most: int = MOST_METRICS
) -> tuple[str, ...]:
    """At most `most` of the metrics, sorted: those that best tell the profiles apart.

    Pivoted QR on the standardised logarithms picks columns one by one, each time the one that the columns before
    explain least (Golub and Van Loan, Matrix Computations, 5.4.2). Of collinear metrics one is kept. The selection
    ignores outcomes, so it cannot leak them into a test.
    """
    names = sorted(metrics)
    if len(names) <= most:
        return tuple(names)
    at = {name: column for column, name in enumerate(names)}
    values = np.full((len(profiles), len(names)), np.nan)
    for row, profile in enumerate(profiles):
        for key in profile.metrics.keys() & at.keys():
            values[row, at[key]] = np.log1p(profile.metrics[key])
    known = np.isfinite(values)
    count = np.maximum(known.sum(axis=0), 1)
    centre = np.where(known, values, 0.0).sum(axis=0) / count
    off = np.where(known, values - centre, 0.0)
    spread = np.sqrt((off**2).sum(axis=0) / count)
    scaled = off / np.maximum(spread, 1e-9)
    from scipy.linalg import qr  # which every command would wait for, and few datasets need

    _, _, order = qr(scaled, mode="economic", pivoting=True)
    return tuple(sorted(names[column] for column in order[:most]))


SLICE_S = 0.003  # that a scheduler gives at a time: 3 ms by EEVDF's and CFS's default; a unit for rates, no more
PAGE_S = 5e-6  # of CPU time that a page of the I/O channel costs; a unit for rates, no more
PLATFORM = "platform."  # before what probes found on a host among the metrics
LEAST = 1e-3  # shares and rates below it are all alike
LITTLE = 0.05  # CPUs that neighbours ask for together, about which it does not matter whether they are known
# Of the neighbours, what presses: its growth never helps on the ratio itself, at the same analytic result.
_PRESSING = frozenset({"cpu", "disk", "net", "memory", "pages", "switches", "events", "cache"})
# What holds an instance back, and how it is isolated. Where training had one value of such a column, another one is
# another kind of question; that of a count or a demand is not.
KINDS = frozenset(
    {
        "cap",
        "weight",
        "beside cap",
        "choice",
        "driver apart",
        "own net",
        "own rate",
        *(f"analytic {name}" for name in RESOURCES),
    }
)


@dataclass(frozen=True, slots=True)
class FeatureMatrix:
    """One row per present slot.

    `x` (R, F) holds the features `names` (F,), nan = unknown. `scene` and `slot` (R,) say which instance a row
    describes. `monotone` (F,) is the sign of the constraint on the ratio: -1 for features that never help, 1 for those
    that never hurt, else 0. `log_prior` (R,) is the log of the analytic T/B. `known` (R,), 0-1, is how well the demands
    for CPUs are known of a row's instance and of those beside it.
    """

    x: Floats
    names: tuple[str, ...]
    monotone: NDArray[np.int8]
    scene: Ints
    slot: Ints
    log_prior: Floats
    prior: PriorResult
    known: Floats

    def prior_of(self, target: str) -> Floats:
        """The analytic throughput, latency, jitter or share of each row; (R,)."""
        values: Floats = getattr(self.prior, target)
        return values[self.scene, self.slot]


def build_matrix(scenes: SceneBatch, further: Sequence[str] = (), prior: PriorResult | None = None) -> FeatureMatrix:
    """Describe every instance of every scene by the analytic model's result and its parts, by its own demand, and by
    that of its neighbours: the sum, the largest and the mean over those on the same CPUs, and the sum over the host.

    `further` are metrics of an operator's own tables that no agent measures: each as it is, and summed over neighbours
    on the same CPUs and over all. `prior` is what `solve` says of these scenes, if it is known.
    """
    prior = solve(scenes) if prior is None else prior
    others = np.asarray(scenes.present[:, None, :] & ~np.eye(scenes.slots, dtype=bool)[None], dtype=np.float64)
    beside = cpu_overlap(scenes) * others
    columns = _analytic(prior) | _demands(scenes, prior, beside, others) | _settings(scenes, beside)
    columns |= _further(scenes, further, beside, others)
    curve_names, curves = curve_columns(scenes)
    scene, slot = np.nonzero(scenes.present)
    names = (*columns, *curve_names)
    flat, x = np.flatnonzero(scenes.present), np.empty((len(columns), len(scene)))
    for row, one in zip(x, columns.values(), strict=True):
        np.broadcast_to(one, scenes.present.shape).take(flat, out=row)
    return FeatureMatrix(
        x=np.concatenate([x.T, curves[scene, slot]], axis=1),
        names=names,
        monotone=np.array([_direction(name) for name in names], dtype=np.int8),
        scene=scene,
        slot=slot,
        log_prior=np.log(prior.throughput)[scene, slot],
        prior=prior,
        known=_known(scenes, prior, beside)[scene, slot],
    )


def _direction(name: str) -> int:
    """The sign of the monotone constraint on the ratio: more room never hurts, more pressure never helps.

    The analytic model's columns have none: what it counted too much must be possible to take back.
    """
    where, _, what = name.partition(" ")
    if (where in {"beside", "host", "most"} and what in _PRESSING) or where == "press":
        return -1
    return int(name in {"cap", "weight"} or where == "curve")


def _analytic(prior: PriorResult) -> dict[str, Floats]:
    """The logarithms of the analytic result and of its parts, (S, N) each."""
    log_limits = np.log(prior.limits)
    return {
        "analytic": np.log(prior.throughput),
        **{f"analytic {name}": log_limits[:, :, at] for at, name in enumerate(RESOURCES)},
        "analytic share": np.log(np.maximum(prior.share, LEAST)),
        "analytic pressure": np.log(np.maximum(prior.cpu.share, LEAST)),
        "analytic worst": np.log(np.maximum(prior.cpu.worst, LEAST)),
        "analytic short": prior.cpu.short,
        "crowd": prior.crowd,
        "crowded": prior.cpu.crowded[:, None],
    }


def _known(scenes: SceneBatch, prior: PriorResult, beside: Floats) -> Floats:
    """How well demands for CPUs are known, 0-1: the part of the mean square that is not doubt, of each instance times
    that of those beside it, who count by what they ask for; (S, N). A measured one has no doubt, or little; one of
    which only the size is known has mostly doubt. So what was learned of known demands says little of it."""
    asked = prior.demands.cpu
    doubt = variation(scenes, asked)[2]
    sure = (asked**2 + LEAST**2) / (asked**2 + doubt**2 + LEAST**2)
    pressing = beside @ asked[:, :, None], beside @ (asked * sure)[:, :, None]
    return np.asarray(sure * (pressing[1][:, :, 0] + LITTLE) / (pressing[0][:, :, 0] + LITTLE))


def _demands(scenes: SceneBatch, prior: PriorResult, beside: Floats, others: Floats) -> dict[str, Floats]:
    """What an instance and those beside it ask for, relative to the capacity; (S, N) each."""
    want, here = prior.demands, scenes.present
    own_cpus = np.maximum(scenes.allowed, 1)
    size = np.maximum(np.minimum(scenes.vcpus, own_cpus), 1)
    load = np.minimum(scenes.load, 1.0)
    line = link(scenes)[:, None]
    net = want.net / line  # 0 where no line is known, as in the analytic model
    rate = np.minimum(want.net / np.maximum(scenes.net_ceil, LEAST), 2.0)  # of its own limit, 0 where it has none

    def metric(key: str) -> Floats:
        return profile_column(scenes, key) * load

    execution = metric("execution")
    burst = scenes.cpu_demand[:, :, CPU_DEMAND.index("burst_ms")]
    burst = np.where(burst > 0, burst, np.where(execution > 0, burst_ms(scenes), np.nan))
    bursts = np.where(execution > 0, execution, want.cpu * 1000 / burst) * SLICE_S
    waiting, block = profile_column(scenes, "waiting"), profile_column(scenes, "block")
    cpu = first_known(profile_column(scenes, "cpu"), np.full(here.shape, np.nan))
    whole = np.maximum(cpu + np.nan_to_num(waiting) + np.nan_to_num(block), 1e-9)
    pages, switches, events = metric("pages_exchanged") * PAGE_S, metric("switch") * SLICE_S, metric("event") * SLICE_S
    cache = metric("llc_mb") / scenes.host_numbers[:, 4][:, None]
    per_burst = np.maximum(np.where(execution > 0, execution, np.nan), LEAST)
    on_cpus = {"bursts": bursts, "pages": pages, "switches": switches, "events": events}
    of_host = {"net": net, "disk": want.disk, "memory": want.memory, "cache": cache}
    busy = want.cpu / size
    log_burst = np.log(np.maximum(burst / (SLICE_S * 1000), LEAST))
    runners = np.minimum(scenes.vcpus, scenes.cap)
    *of_each, cpu_beside, runners_beside = _sums(beside, [*on_cpus.values(), want.cpu, runners])
    *of_all, cpu_there = _sums(others, [*of_host.values(), want.cpu])
    busy_beside, block_beside = _means(beside, [busy, block / whole])
    (burst_beside,) = _means(beside * want.cpu[:, None, :], [log_burst])
    columns: dict[str, Floats] = {"own busy": busy}
    for (name, value), there in zip(on_cpus.items(), of_each, strict=True):
        columns[f"own {name}"] = _log(value / own_cpus)
        columns[f"beside {name}"] = _log(there / own_cpus)
    for (name, value), there in zip(of_host.items(), of_all, strict=True):
        columns[f"own {name}"] = value
        columns[f"host {name}"] = there
    many = beside @ np.ones(scenes.slots)
    columns |= {
        "own rate": rate,
        "beside cpu": cpu_beside / own_cpus,
        "host cpu": cpu_there / scenes.pcpus[:, None],
        "most cpu": np.minimum((beside * want.cpu[:, None, :]).max(axis=2, initial=0.0), 1.0),
        "beside busy": busy_beside,
        "beside runners": runners_beside / own_cpus,
        "overlap": many / np.maximum(here.sum(axis=1)[:, None] - here, 1),
        "own burst": log_burst,
        "beside burst": burst_beside,
        "own waiting": waiting / whole,
        "own block": block / whole,
        "beside block": block_beside,
        "own pages per burst": np.log(np.maximum(profile_column(scenes, "pages_per_execution"), LEAST)),
        "own switches per burst": np.log(np.maximum(profile_column(scenes, "switch") / per_burst, LEAST)),
        "own events per burst": np.log(np.maximum(profile_column(scenes, "event") / per_burst, LEAST)),
        "keen": want.keen,
        "own driver": want.driver / np.maximum(scenes.driver_cpus.sum(axis=1), 1)[:, None],
        "host driver": (want.driver.sum(axis=1) / np.maximum(scenes.driver_cpus.sum(axis=1), 1))[:, None],
        "driver apart": driver_apart(scenes)[:, None].astype(np.float64),
        "own varies": scenes.cpu_demand[:, :, 1] / np.maximum(scenes.cpu_demand[:, :, 0], LEAST),
    }
    return columns


def _settings(scenes: SceneBatch, beside: Floats) -> dict[str, Floats]:
    """How an instance is isolated, relative to what it could have and to those beside it; (S, N) each."""
    own_cpus = np.maximum(scenes.allowed, 1)
    size = np.maximum(np.minimum(scenes.vcpus, own_cpus), 1)
    caps = np.log(np.clip(scenes.cap / np.maximum(scenes.vcpus, 1), LEAST, 1.0))
    weight_beside, cap_beside = _means(beside, [scenes.weight, caps])
    usual = np.where(np.isnan(weight_beside), scenes.weight, weight_beside)
    return {
        "cap": np.log(np.clip(scenes.cap / size, LEAST, 1.0)),
        "weight": np.log(np.maximum(scenes.weight, 1e-9) / np.maximum(usual, 1e-9)),
        "beside cap": cap_beside,
        "choice": np.log(np.minimum(own_cpus / np.maximum(scenes.vcpus, 1), 8.0)),
        "load": np.minimum(scenes.load, 2.0),
    }


def _further(scenes: SceneBatch, metrics: Sequence[str], beside: Floats, others: Floats) -> dict[str, Floats]:
    """Metrics that only this dataset has, as they are, and over the neighbours on the same CPUs and on the host."""
    levels = {column for family in families(metrics).values() for _, column in family}
    of_host = [key for key in metrics if key.startswith(PLATFORM)]
    found = {key: scenes.platform_number(key.removeprefix(PLATFORM))[:, None] for key in of_host}
    found |= {f"own {key}": profile_column(scenes, key) for key in metrics if key not in of_host}
    summed = [key for key in metrics if key not in levels and key not in of_host]
    if summed:
        active = [found[f"own {key}"] * np.minimum(scenes.load, 1.0) for key in summed]
        for where, weight in (("beside", beside), ("host", others)):
            found |= {f"{where} {key}": there for key, there in zip(summed, _sums(weight, active), strict=True)}
    return found


def _log(value: Floats) -> Floats:
    """The logarithm of a share or rate above LEAST, nan where it is unknown."""
    return np.asarray(np.log(np.maximum(value, LEAST)))


def _sums(weight: Floats, values: Sequence[Floats]) -> list[Floats]:
    """Weighted sums over neighbours of which each value is known, (S, N) each; nan where it is of none of several."""
    total, there = _weighed(weight, [*values, np.ones(weight.shape[:2])])
    total, lone, there = total[:, :, :-1], there[:, :, -1:] <= 0, there[:, :, :-1]
    return list(np.moveaxis(np.where((there > 0) | lone, total, np.nan), 2, 0))


def _means(weight: Floats, values: Sequence[Floats]) -> list[Floats]:
    """Weighted means over the neighbours of which each value is known, nan where there is none; (S, N) each."""
    total, there = _weighed(weight, values)
    return list(np.moveaxis(np.divide(total, there, out=np.full(total.shape, np.nan), where=there > 1e-12), 2, 0))


def _weighed(weight: Floats, values: Sequence[Floats]) -> tuple[Floats, Floats]:
    """For each of K values the weighted sum over the neighbours of which it is known, and their weight; (S, N, K)."""
    stacked = np.stack(values, axis=2)
    known = ~np.isnan(stacked)
    found = weight @ np.concatenate([np.where(known, stacked, 0.0), known], axis=2)
    return found[:, :, : len(values)], found[:, :, len(values) :]
