"""Rows of whole runs as a SceneBatch and their measured ratios, without a Python object per row."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from models.arrays import Bools, Floats, Hashes, Ints
from models.data.dataset import HIGHER_IS_BETTER
from models.data.scene import CPU_DEMAND, DEVICE_DEMAND, DEVICES, ProfileTable, SceneBatch, build_batch
from models.features.examples import HIGHEST_RATIO, LOWEST_RATIO
from models.scale.run_rows import RunRows
from profiler.observed import DEFAULT_WEIGHT, NET_MODES, Host, Pinning

# For each target the outcomes that tell it, the one that wins last; and whether it is colocated over solo for them.
TOLD_BY = {"throughput": ("runtime_s", "throughput"), "latency": ("latency_mean_ms",)}


def ratios(rows: RunRows, target: str) -> Floats:
    """The measured ratio of every entry, nan where there is none; (E,). `examples.measured` for whole tables."""
    found = np.full(len(rows.first), np.nan)
    for outcome in TOLD_BY[target]:
        here = rows.outcome.pick([word == outcome for word in rows.outcome.words], bool)
        rising = target == "latency" or outcome in HIGHER_IS_BETTER
        top, bottom = (rows.colocated, rows.solo) if rising else (rows.solo, rows.colocated)
        measured = here & (bottom > 0) & ~np.isnan(top)
        if target == "latency":
            measured &= top > 0
        found[rows.entry[measured]] = np.clip(top[measured] / bottom[measured], LOWEST_RATIO, HIGHEST_RATIO)
    return found


def pairs(rows: RunRows) -> Hashes:
    """A number per run that is equal for the same set of workloads, in whatever order; (K,)."""
    names = [int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest()) for word in rows.workload.words]
    total = np.zeros(int(rows.run.max(initial=-1)) + 1, dtype=np.uint64)
    np.add.at(total, rows.run[rows.first], rows.workload.pick(names, np.uint64)[rows.first])
    return total


def highest_cpus(rows: RunRows) -> dict[str, int]:
    """The highest pCPU that an instance or the driver domain is pinned to, by platform; -1 = none."""
    pinned = rows.pinning.pick([max(pin.union, default=-1) if pin else -1 for pin in rows.pins])
    driver = rows.driver_cpus.pick([max(cpus, default=-1) if cpus else -1 for cpus in rows.driver])
    most = np.full(len(rows.platform.words), -1)
    np.maximum.at(most, rows.platform.code, np.maximum(pinned, driver))
    return {name: int(cpu) for name, cpu in zip(rows.platform.words, most, strict=True)}


def build_scenes(rows: RunRows, platforms: Mapping[str, Host], table: ProfileTable) -> SceneBatch:
    """The K runs as scenes, an entry's slot being its place in its run; `scene.build_batch` for whole tables."""
    first, scene = rows.first, rows.run[rows.first]
    opening = np.flatnonzero(np.diff(rows.run, prepend=-1))
    kinds = rows.platform.code * max(len(rows.driver_cpus.words), 1) + rows.driver_cpus.code
    some, host = np.unique(kinds[opening], return_inverse=True)
    hosts = [_host(rows, int(kind), platforms) for kind in some]
    bare = build_batch([(one, ()) for one in hosts], table).take(host)
    shape = (len(opening), int(rows.slot.max(initial=-1)) + 1)

    def spread(values: NDArray[np.generic], empty: object) -> NDArray[np.generic]:
        grid = np.full((*shape, *values.shape[1:]), empty, dtype=values.dtype)
        grid[scene, rows.slot] = values
        return grid

    slots = _slots(rows, platforms, table, bare.driver_cpus.shape[1])
    return replace(bare, **{name: spread(values[first], empty) for name, (values, empty) in slots.items()})  # type: ignore[arg-type]


def _host(rows: RunRows, kind: int, platforms: Mapping[str, Host]) -> Host:
    platform, driver = divmod(kind, max(len(rows.driver_cpus.words), 1))
    return replace(platforms[rows.platform.words[platform]], driver_cpus=rows.driver[driver] or ())


def _slots(
    rows: RunRows, platforms: Mapping[str, Host], table: ProfileTable, width: int
) -> dict[str, tuple[NDArray[np.generic], object]]:
    """Every per-slot field of a SceneBatch as one value per row, with its value in empty slots."""
    mode = rows.net_mode.pick([NET_MODES.index(word or "none") for word in rows.net_mode.words])
    limited = (mode != NET_MODES.index("none")) & (rows.net_rate_mbit > 0)
    dedicated = limited & (mode == NET_MODES.index("dedicated"))
    return {
        "present": (np.ones(len(rows.run), dtype=bool), False),
        "profile": (_profiles(rows, table), 0),
        "load": (rows.load, 0.0),
        "vcpus": (rows.vcpus, 0.0),
        "cap": (_limit(rows.cap_percent) / 100, np.inf),
        "prompt": (np.zeros(len(rows.run), dtype=bool), False),  # a dataset does not say who minds latency
        "weight": (np.where(np.isnan(rows.weight), float(DEFAULT_WEIGHT), rows.weight), 1.0),
        "net_mode": (np.where(limited, mode, NET_MODES.index("none")), 0),
        "net_rate": (np.where(limited, rows.net_rate_mbit, np.inf), np.inf),
        "net_ceil": (np.where(dedicated, rows.net_rate_mbit, np.inf), np.inf),
        "disk_limit": (_limit(rows.disk_limit_mb_s), np.inf),
        "affinity": (_affinity(rows, platforms, width), False),
        "cpu_demand": (np.full((len(rows.run), len(CPU_DEMAND)), np.nan), np.nan),
        "device_demand": (np.full((len(rows.run), len(DEVICES), len(DEVICE_DEMAND)), np.nan), np.nan),
    }


def _limit(values: Floats) -> Floats:
    """A limit: inf where the cell is empty or 0, which both mean that it is not set."""
    return np.where(np.nan_to_num(values) > 0, values, np.inf)


def _profiles(rows: RunRows, table: ProfileTable) -> Ints:
    """The row of the profile table for every row; (R,)."""
    known = [[table.row(name, platform) for name in rows.workload.words] for platform in rows.platform.words]
    return np.array(known, dtype=np.int64).reshape(len(rows.platform.words), -1)[rows.platform.code, rows.workload.code]


def _affinity(rows: RunRows, platforms: Mapping[str, Host], width: int) -> Bools:
    """The pCPUs that any vCPU may use, all of the platform's where it is not pinned; (R, P)."""
    pcpus = [platforms[name].pcpus for name in rows.platform.words]
    free = np.arange(width)[None, :] < np.array(pcpus)[:, None]
    pinned = np.zeros((len(rows.pins), width), dtype=bool)
    for at, pin in enumerate(rows.pins):
        pinned[at, sorted(_union(pin))] = True
    unpinned = rows.pinning.pick([not _union(pin) for pin in rows.pins], bool)
    return np.where(unpinned[:, None], free[rows.platform.code], pinned[rows.pinning.code])


def _union(pin: Pinning | None) -> frozenset[int]:
    return pin.union if pin else frozenset()
