"""`build_matrix`: the one place where scenes become the rows that training and serving share; no learning here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.prior import RESOURCES, PriorResult, solve
from models.scene import HOST_NUMBERS, SceneBatch
from profiler.observed import NET_MODES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_OWN = ("load", "vcpus", "cap", "weight_share", "cpu_set", "net_rate", "disk_limit")
LIMITS = ("cap", "net_rate", "disk_limit")  # settings that hold an instance back; nan = not set
_AROUND = ("neighbours", "near", "cpu_crowd", "pcpus_per_instance", "driver_cpus")


@dataclass(frozen=True, slots=True)
class FeatureMatrix:
    """One row per present slot. `x` (R, F) with nan = unknown; `scene`, `slot` (R,) say whose row it is; `names` (F,);
    `pressure` (F,) marks what neighbours do; `log_prior` (R,) is the log of the T/B that `prior` gives."""

    x: Floats
    names: tuple[str, ...]
    pressure: NDArray[np.bool_]
    scene: Ints
    slot: Ints
    log_prior: Floats
    prior: PriorResult


def build_matrix(scenes: SceneBatch, metrics: Sequence[str]) -> FeatureMatrix:
    """Describe every instance of every scene by its own profile, its neighbours' pressure and the prior.

    For each of `metrics` (keys of the profile table): the own value, the sum over the neighbours that may use the same
    pCPUs (weighted by the overlap) and the sum over all neighbours on the host, each times its load. Sums do not
    depend on the order of neighbours and hold any number of them. Metrics the table has not are nan throughout.
    """
    prior = solve(scenes)
    here = scenes.present
    values = np.stack([scenes.table.column(key) for key in metrics], axis=1) if metrics else np.zeros((1, 0))
    rows = values[scenes.profile] if metrics else np.zeros((*here.shape, 0))
    active = np.where(here, np.minimum(scenes.load, 1.0), 0.0)
    pressure = np.where(here[:, :, None], np.nan_to_num(rows) * active[:, :, None], 0.0)
    overlap = cpu_overlap(scenes)
    beside = np.where(np.eye(scenes.slots, dtype=bool)[None], 0.0, here[:, None, :] * 1.0)
    near = np.einsum("snm,smk->snk", overlap * beside, pressure)
    host = np.einsum("snm,smk->snk", beside, pressure)
    own = _own(scenes)
    around = _around(scenes, prior, overlap * beside, beside)
    log_limits = np.log(prior.limits)
    log_prior = np.log(prior.throughput)
    platform = np.broadcast_to(
        np.concatenate([scenes.host_numbers, scenes.kind[:, None], scenes.disk_kind[:, None]], axis=1)[:, None, :],
        (*here.shape, len(HOST_NUMBERS) + 2),
    )
    blocks = (rows, near, host, own, around, log_limits, log_prior[:, :, None], platform)
    names = (
        *(f"own {key}" for key in metrics),
        *(f"near {key}" for key in metrics),
        *(f"host {key}" for key in metrics),
        *_OWN,
        *_AROUND,
        *(f"prior {resource}" for resource in RESOURCES),
        "prior",
        *HOST_NUMBERS,
        "kind",
        "disk_kind",
    )
    scene, slot = np.nonzero(here)
    return FeatureMatrix(
        x=np.concatenate(blocks, axis=2)[scene, slot],
        names=names,
        pressure=np.array([name.startswith(("near ", "host ")) for name in names]),
        scene=scene,
        slot=slot,
        log_prior=log_prior[scene, slot],
        prior=prior,
    )


def cpu_overlap(scenes: SceneBatch) -> Floats:
    """How much of slot j's pCPUs slot i may use too, 0-1; (S, N, N)."""
    common = np.einsum("snp,smp->snm", scenes.affinity * 1.0, scenes.affinity * 1.0)
    return np.asarray(common / np.maximum(scenes.affinity.sum(axis=2), 1)[:, None, :])


def _own(scenes: SceneBatch) -> Floats:
    together = (scenes.weight * scenes.present).sum(axis=1, keepdims=True)
    finite = (np.where(np.isfinite(value), value, np.nan) for value in (scenes.cap, scenes.net_ceil, scenes.disk_limit))
    cap, rate, disk = finite
    dedicated = np.where(scenes.net_mode == NET_MODES.index("dedicated"), rate, np.nan)
    share = np.divide(scenes.weight, together, out=np.ones_like(scenes.weight), where=together > 0)
    columns = (scenes.load, scenes.vcpus, cap, share, scenes.affinity.sum(axis=2), dedicated, disk)
    return np.stack([np.asarray(column, dtype=float) for column in columns], axis=2)


def _around(scenes: SceneBatch, prior: PriorResult, near: Floats, beside: Floats) -> Floats:
    count = beside.sum(axis=2)
    kinds = np.broadcast_to(scenes.driver_cpus.sum(axis=1)[:, None], count.shape)
    per_instance = scenes.pcpus[:, None] / np.maximum(scenes.present.sum(axis=1), 1)[:, None]
    columns = (count, near.sum(axis=2), prior.crowd, np.broadcast_to(per_instance, count.shape), kinds)
    return np.stack([np.asarray(column, dtype=float) for column in columns], axis=2)
