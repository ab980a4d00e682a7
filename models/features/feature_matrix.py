"""`build_matrix` turns scenes into feature rows. Training and serving both use it; nothing is learned here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.arrays import Floats, Ints
from models.data.scene import CPU_DEMAND, HOST_NUMBERS, PROBED, SceneBatch
from models.data.topology import cores_of, cpu_overlap, group_overlap
from models.features.sensitivity_curves import curve_columns, families
from models.physics.prior import RESOURCES, PriorResult, solve
from profiler.observed import NET_MODES

_OWN = ("load", "vcpus", "cap", "weight_share", "cpu_set", "net_rate", "disk_limit")
LIMITS = ("cap", "net_rate", "disk_limit")  # settings that hold an instance back; inf = not set
PLATFORM = "platform."  # before a platform's own number among the metrics
WANTED = PLATFORM + "wanted"  # among the metrics where rows are windows: what everybody wants of the CPUs
SOCKETS = PLATFORM + "numa_nodes"  # among the metrics where training saw hosts of several nodes
CORES = PLATFORM + "threads_per_core"  # where it saw hosts with hyperthreads
VCPUS = PLATFORM + "vcpus"  # where it saw instances of different sizes
# Metrics whose growth never helps a neighbour. Others (blocked time, pages per execution, solo run time) may come with
# less pressure, so they get no monotone constraint.
PRESSING = frozenset(
    [
        "cpu",
        "driver_domain.cpu",
        "pages_exchanged",
        "event",
        "switch",
        "net_mbit",
        "disk_mb_s",
        "mem_bw_mb_s",
        "llc_misses",
    ]
)
_FLAGS = frozenset({WANTED, SOCKETS, CORES, VCPUS})  # among the metrics, and no numbers of a platform
_NEVER_HELPS = frozenset(
    {
        "neighbours",
        "near",
        "cpu_crowd",
        *(f"{where} {metric}" for where in ("near", "core", "socket", "host") for metric in PRESSING),
    }
)
_AROUND = ("neighbours", "near", "cpu_crowd", "pcpus_per_instance", "driver_cpus")


@dataclass(frozen=True, slots=True)
class FeatureMatrix:
    """One row per present slot.

    `x` (R, F) holds the features `names` (F,); nan = unknown, inf = a limit that is not set. `scene` and `slot` (R,)
    say which instance a row describes. `monotone` (F,) is the sign of the constraint on T/B: -1 for features that never
    help, 1 for those that never hurt, else 0. `log_prior` (R,) is the log of the prior's T/B.
    """

    x: Floats
    names: tuple[str, ...]
    monotone: NDArray[np.int8]
    scene: Ints
    slot: Ints
    log_prior: Floats
    prior: PriorResult

    def prior_of(self, target: str) -> Floats:
        """The prior's throughput, latency, jitter or share of each row; (R,)."""
        values: Floats = getattr(self.prior, target)
        return values[self.scene, self.slot]


def build_matrix(scenes: SceneBatch, metrics: Sequence[str], prior: PriorResult | None = None) -> FeatureMatrix:
    """Describe every instance of every scene by its own profile, its neighbours' pressure and the prior.

    Each of `metrics` (keys of the profile table) gives three features: the instance's own value, the sum over
    neighbours that may use the same pCPUs (weighted by the overlap), and the sum over all neighbours on the host. A
    neighbour's value is multiplied by its load. The sums work for any number of neighbours in any order. A metric that
    the table does not have is nan. Levels of bubble sweeps are not summed: a neighbour's sensitivity is no pressure.
    Keys that begin with PLATFORM are numbers of the scene's platform. With SOCKETS there is also a sum over neighbours
    on the same NUMA nodes, weighted by the share of their pCPUs there, with CORES one over those on the same cores, and
    with VCPUS how many vCPUs neighbours have, on the same pCPUs and in all. With WANTED there are features of the
    demand for CPUs over time, and the last one is the mean burst. `prior` is what `solve` says of these scenes, if it
    is known.
    """
    prior = solve(scenes) if prior is None else prior
    present = scenes.present
    numbers = [key for key in metrics if key.startswith(PLATFORM) and key not in _FLAGS]
    metrics_given, metrics = metrics, [key for key in metrics if not key.startswith(PLATFORM)]
    levels = {column for family in families(metrics).values() for _, column in family}
    sums = [at for at, key in enumerate(metrics) if key not in levels and not key.startswith(PROBED)]
    known = len(scenes.table.values)
    values = np.stack([scenes.table.column(key) for key in metrics], axis=1) if metrics else np.zeros((known, 0))
    active = np.where(present, np.minimum(scenes.load, 1.0), 0.0)
    pressure = np.nan_to_num(values[:, sums])[scenes.profile] * active[:, :, None]
    overlap = cpu_overlap(scenes)
    beside = np.where(np.eye(scenes.slots, dtype=bool)[None], 0.0, present[:, None, :] * 1.0)
    weights = {"near": overlap * beside, "host": beside}
    if SOCKETS in metrics_given:
        weights["socket"] = group_overlap(scenes, scenes.node) * beside
    if CORES in metrics_given:
        weights["core"] = group_overlap(scenes, cores_of(scenes)) * beside
    pressed = {where: np.einsum("snm,smk->snk", weight, pressure) for where, weight in weights.items()}
    own = _own(scenes)
    around = _around(scenes, prior, weights["near"], beside)
    log_limits = np.log(prior.limits)
    log_prior = np.log(prior.throughput)
    of_host = [*scenes.host_numbers.T, scenes.kind, scenes.disk_kind]
    of_host += [scenes.platform_number(key.removeprefix(PLATFORM)) for key in numbers]
    curve_names, curves = curve_columns(scenes)
    wanted_names: tuple[str, ...] = ()
    burst_names: tuple[str, ...] = ()
    wanted = burst = around[:, :, :0]
    vcpus_names = ("near vcpus", "host vcpus") if VCPUS in metrics_given else ()
    vcpus = [(weights[name.split(" ")[0]] @ scenes.vcpus[:, :, None]) for name in vcpus_names]
    if WANTED in metrics_given:
        wanted_names, wanted = _wanted(scenes, weights["near"])
        burst_names, burst = ("burst",), _burst(scenes)
    names = (
        *(f"own {key}" for key in metrics),
        *(f"{where} {metrics[at]}" for where in pressed for at in sums),
        *_OWN,
        *_AROUND,
        *vcpus_names,
        *curve_names,
        *wanted_names,
        *(f"prior {resource}" for resource in RESOURCES),
        "prior",
        *HOST_NUMBERS,
        "kind",
        "disk_kind",
        *numbers,
        *burst_names,
    )
    scene, slot = np.nonzero(present)
    by_slot = (*pressed.values(), own, around, *vcpus, curves, wanted, log_limits, log_prior[:, :, None])
    blocks = (values[scenes.profile[scene, slot]], *(one[scene, slot] for one in by_slot))
    return FeatureMatrix(
        x=np.concatenate([*blocks, np.stack(of_host, axis=1)[scene], burst[scene, slot]], axis=1),
        names=names,
        monotone=np.array([_direction(name) for name in names], dtype=np.int8),
        scene=scene,
        slot=slot,
        log_prior=log_prior[scene, slot],
        prior=prior,
    )


def _direction(name: str) -> int:
    """The sign of the monotone constraint on T/B: a higher limit or curve never hurts, more pressure never helps.

    The prior's columns have no constraint: the residual must be able to correct a prior that is too pessimistic.
    """
    if name in _NEVER_HELPS or name.startswith("press "):
        return -1
    return int(name in LIMITS or name.startswith("curve "))


def _wanted(scenes: SceneBatch, near: Floats) -> tuple[tuple[str, ...], Floats]:
    """What an instance and those beside it want of the CPUs, nan = unknown; names, and (S, N, 6).

    Per vCPU it is how much of its own work is parallel; the demand of others is that on the CPUs that it may use, and
    `scarce` the whole of it per CPU, of which what is above 1 cannot be had.
    """
    mean = scenes.cpu_demand[:, :, CPU_DEMAND.index("mean")]
    known = np.nan_to_num(mean)
    cpus = np.maximum(scenes.affinity.sum(axis=2), 1)
    others = np.einsum("snm,sm->sn", near, known)
    most = np.max(near * known[:, None, :], axis=2, initial=0.0)
    runners = np.einsum("snm,sm->sn", near, np.minimum(scenes.vcpus, scenes.cap))
    columns = (
        mean, mean / scenes.vcpus, others / cpus, (others + known) / cpus, most, runners / cpus,
    )  # fmt: skip
    names = ("wanted", "wanted per vcpu", "others want", "scarce", "most wanted", "others vcpus")
    return names, np.stack(columns, axis=2)


def _burst(scenes: SceneBatch) -> Floats:
    """The log of each one's mean burst in ms, nan = unknown; (S, N, 1)."""
    burst_ms = scenes.cpu_demand[:, :, CPU_DEMAND.index("burst_ms"), None]
    return np.asarray(np.log(np.where(burst_ms > 0, burst_ms, np.nan)))


def _own(scenes: SceneBatch) -> Floats:
    together = (scenes.weight * scenes.present).sum(axis=1, keepdims=True)
    dedicated = np.where(scenes.net_mode == NET_MODES.index("dedicated"), scenes.net_ceil, np.inf)
    share = np.divide(scenes.weight, together, out=np.ones_like(scenes.weight), where=together > 0)
    columns = (
        scenes.load, scenes.vcpus, scenes.cap, share, scenes.affinity.sum(axis=2), dedicated, scenes.disk_limit,
    )  # fmt: skip
    return np.stack([np.asarray(column, dtype=float) for column in columns], axis=2)


def _around(scenes: SceneBatch, prior: PriorResult, near: Floats, beside: Floats) -> Floats:
    count = beside.sum(axis=2)
    kinds = np.broadcast_to(scenes.driver_cpus.sum(axis=1)[:, None], count.shape)
    per_instance = scenes.pcpus[:, None] / np.maximum(scenes.present.sum(axis=1), 1)[:, None]
    columns = (count, near.sum(axis=2), prior.crowd, np.broadcast_to(per_instance, count.shape), kinds)
    return np.stack([np.asarray(column, dtype=float) for column in columns], axis=2)
