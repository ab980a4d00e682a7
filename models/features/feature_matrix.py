"""`build_matrix` turns scenes into feature rows. Training and serving both use it; nothing is learned here.

All columns are dimensionless and do not grow with a host: shares, ratios, and counts times the scheduler's slice. So
what was learned on two CPUs may be asked about of sixty-four.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.arrays import Floats, Ints
from models.data.scene import CPU_DEMAND, SceneBatch
from models.data.topology import cpu_overlap
from models.features.sensitivity_curves import curve_columns, families
from models.physics.demands import burst_ms, driver_apart, first_known, link, profile_column
from models.physics.prior import RESOURCES, PriorResult, solve

SLICE_S = 0.003  # that a scheduler gives at a time: 3 ms by EEVDF's and CFS's default; a unit for rates, no more
PAGE_S = 5e-6  # of CPU time that a page of the I/O channel costs; a unit for rates, no more
PLATFORM = "platform."  # before what probes found on a host among the metrics
LEAST = 1e-3  # shares and rates below it are all alike
# Of the neighbours, what presses: its growth never helps on the ratio itself, at the same analytic result.
_PRESSING = frozenset({"cpu", "disk", "net", "memory", "pages", "switches", "events", "cache"})


@dataclass(frozen=True, slots=True)
class FeatureMatrix:
    """One row per present slot.

    `x` (R, F) holds the features `names` (F,), nan = unknown. `scene` and `slot` (R,) say which instance a row
    describes. `monotone` (F,) is the sign of the constraint on the ratio: -1 for features that never help, 1 for those
    that never hurt, else 0. `log_prior` (R,) is the log of the analytic T/B.
    """

    x: Floats
    names: tuple[str, ...]
    monotone: NDArray[np.int8]
    scene: Ints
    slot: Ints
    log_prior: Floats
    prior: PriorResult

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
    columns = _analytic(prior) | _demands(scenes, prior) | _settings(scenes) | _further(scenes, further)
    curve_names, curves = curve_columns(scenes)
    scene, slot = np.nonzero(scenes.present)
    names = (*columns, *curve_names)
    x = np.stack([np.broadcast_to(one, scenes.present.shape)[scene, slot] for one in columns.values()], axis=1)
    return FeatureMatrix(
        x=np.concatenate([x, curves[scene, slot]], axis=1),
        names=names,
        monotone=np.array([_direction(name) for name in names], dtype=np.int8),
        scene=scene,
        slot=slot,
        log_prior=np.log(prior.throughput)[scene, slot],
        prior=prior,
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


def _demands(scenes: SceneBatch, prior: PriorResult) -> dict[str, Floats]:
    """What an instance and those beside it ask for, relative to what there is; (S, N) each."""
    want, here = prior.demands, scenes.present
    own_cpus = np.maximum(scenes.affinity.sum(axis=2), 1)
    size = np.maximum(np.minimum(scenes.vcpus, own_cpus), 1)
    beside = cpu_overlap(scenes) * (here[:, None, :] & ~np.eye(scenes.slots, dtype=bool)[None])
    load = np.minimum(scenes.load, 1.0)
    line = link(scenes)[:, None]
    net = np.where(np.isfinite(line), want.net / line, np.nan)

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
    columns: dict[str, Floats] = {"own busy": busy}
    for name, value in on_cpus.items():
        columns[f"own {name}"] = _log(value / own_cpus)
        columns[f"beside {name}"] = _log(_sum(beside, value) / own_cpus)
    others = here[:, None, :] & ~np.eye(scenes.slots, dtype=bool)[None]
    for name, value in of_host.items():
        columns[f"own {name}"] = value
        columns[f"host {name}"] = _sum(others * 1.0, value)
    many = beside.sum(axis=2)
    columns |= {
        "beside cpu": _sum(beside, want.cpu) / own_cpus,
        "host cpu": _sum(others * 1.0, want.cpu) / scenes.pcpus[:, None],
        "most cpu": np.max(
            np.where(beside > 0, np.minimum(beside * want.cpu[:, None, :], 1.0), 0.0), axis=2, initial=0.0
        ),
        "beside busy": _mean(beside, busy),
        "beside runners": _sum(beside, np.minimum(scenes.vcpus, scenes.cap)) / own_cpus,
        "overlap": many / np.maximum(others.sum(axis=2), 1),
        "own burst": np.log(np.maximum(burst / (SLICE_S * 1000), LEAST)),
        "beside burst": _mean(beside * want.cpu[:, None, :], np.log(np.maximum(burst / (SLICE_S * 1000), LEAST))),
        "own waiting": waiting / whole,
        "own block": block / whole,
        "beside block": _mean(beside, block / whole),
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


def _settings(scenes: SceneBatch) -> dict[str, Floats]:
    """How an instance is isolated, relative to what it could have and to those beside it; (S, N) each."""
    own_cpus = np.maximum(scenes.affinity.sum(axis=2), 1)
    size = np.maximum(np.minimum(scenes.vcpus, own_cpus), 1)
    beside = cpu_overlap(scenes) * (scenes.present[:, None, :] & ~np.eye(scenes.slots, dtype=bool)[None])
    usual = np.where(beside.sum(axis=2) > 0, _mean(beside, scenes.weight), scenes.weight)
    return {
        "cap": np.log(np.clip(scenes.cap / size, LEAST, 1.0)),
        "weight": np.log(np.maximum(scenes.weight, 1e-9) / np.maximum(usual, 1e-9)),
        "beside cap": _mean(beside, np.log(np.clip(scenes.cap / np.maximum(scenes.vcpus, 1), LEAST, 1.0))),
        "choice": np.log(np.minimum(own_cpus / np.maximum(scenes.vcpus, 1), 8.0)),
        "load": np.minimum(scenes.load, 2.0),
    }


def _further(scenes: SceneBatch, metrics: Sequence[str]) -> dict[str, Floats]:
    """Metrics that only this dataset has, as they are, and over the neighbours on the same CPUs and on the host."""
    levels = {column for family in families(metrics).values() for _, column in family}
    others = scenes.present[:, None, :] & ~np.eye(scenes.slots, dtype=bool)[None]
    beside = cpu_overlap(scenes) * others if metrics else others
    found: dict[str, Floats] = {}
    for key in metrics:
        if key.startswith(PLATFORM):
            found[key] = scenes.platform_number(key.removeprefix(PLATFORM))[:, None]
            continue
        value = profile_column(scenes, key)
        found[f"own {key}"] = value
        if key not in levels:
            active = value * np.minimum(scenes.load, 1.0)
            found[f"beside {key}"], found[f"host {key}"] = _sum(beside, active), _sum(others * 1.0, active)
    return found


def _log(value: Floats) -> Floats:
    """The logarithm of a share or rate above LEAST, nan where it is unknown."""
    return np.asarray(np.log(np.maximum(value, LEAST)))


def _sum(weight: NDArray[Any], value: NDArray[Any]) -> Floats:
    """The weighted sum over the neighbours of whom the value is known, (S, N); nan where it is of none of several."""
    known = ~np.isnan(value)
    total = np.einsum("snm,sm->sn", weight, np.where(known, value, 0.0))
    if known.all():
        return np.asarray(total)
    there = np.einsum("snm,sm->sn", weight, known * 1.0)
    return np.asarray(np.where((there > 0) | (weight.sum(axis=2) <= 0), total, np.nan))


def _mean(weight: NDArray[Any], value: NDArray[Any]) -> Floats:
    """The weighted mean over the neighbours of whom the value is known, nan where there is none; (S, N)."""
    known = ~np.isnan(value)
    total = np.einsum("snm,sm->sn", weight, np.where(known, value, 0.0))
    there = np.einsum("snm,sm->sn", weight, known * 1.0)
    return np.asarray(np.divide(total, there, out=np.full(total.shape, np.nan), where=there > 1e-12))
