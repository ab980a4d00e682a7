"""VMs of public traces with their past and their future, and who of them is short of CPU on a host; for policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from models.arrays import Floats, Ints
from research.contention import trace_fit

SIZES, SIZE_PARTS = (1, 2, 4, 8), (0.4, 0.3, 0.2, 0.1)  # vCPUs of PlanetLab's VMs, which its trace does not tell
ENOUGH = 0.95  # of what it wants: who gets less in a window is short
WANTS = 1e-3  # CPUs: who asks for less in a window asks for nothing
DAY = 288  # windows of five minutes
MOST_FUTURE = 576  # windows that are judged, taken evenly from all
BITBRAINS_COPIES = 4  # of each VM, shifted by whole days, for the published part of the trace has 50 VMs


@dataclass(frozen=True, slots=True)
class World:
    """N VMs: `vcpus` (N,), and their demand in CPUs in windows of five minutes, `past` (T, N) and `future` (F, N)."""

    name: str
    vcpus: Ints
    past: Floats
    future: Floats

    def of(self, which: Ints) -> World:
        """The same of some VMs, in this order."""
        return World(self.name, self.vcpus[which], self.past[:, which], self.future[:, which])

    def __len__(self) -> int:
        return len(self.vcpus)


def planetlab(directory: Path) -> World:
    """One day of PlanetLab: the first half of it is the past. Sizes are drawn, as the trace does not tell them."""
    demand = trace_fit.planetlab(directory)
    vcpus = np.random.default_rng(7).choice(SIZES, demand.shape[1], p=SIZE_PARTS)
    half = len(demand) // 2
    cpus = demand * vcpus
    return World("PlanetLab", vcpus, cpus[:half], cpus[half:])


def bitbrains(directory: Path) -> World:
    """A month of 50 VMs of Bitbrains, each in several copies that are shifted by whole days: two weeks are the past."""
    meta = pq.read_table(directory / trace_fit.BITBRAINS_META, columns=["id", "cpu_count"]).to_pydict()
    count = dict(zip(meta["id"], meta["cpu_count"], strict=True))
    names = sorted(set(meta["id"]))
    demand = np.nan_to_num(trace_fit.bitbrains(directory))
    demand = demand[: len(demand) // DAY * DAY]
    vcpus = np.array([count[name] for name in names], dtype=np.int64)
    cpus = np.clip(demand, 0.0, 1.0) * vcpus
    days = len(cpus) // DAY
    shifts = [round(at * days / BITBRAINS_COPIES) * DAY for at in range(BITBRAINS_COPIES)]
    copies = np.concatenate([np.roll(cpus, shift, axis=0) for shift in shifts], axis=1)
    past = 14 * DAY
    step = max((len(copies) - past) // MOST_FUTURE, 1)
    return World("Bitbrains", np.tile(vcpus, BITBRAINS_COPIES), copies[:past], copies[past::step][:MOST_FUTURE])


def short(demand: Floats, cpus: float) -> Floats:
    """Whether each VM of a host is short in each window, as 0 or 1; (F, n) from its demand (F, n) in CPUs.

    CPUs are shared max-min fairly within a window, as if there were no bursts in it. A VM is short where it gets less
    than ENOUGH of what it wants.
    """
    lacking = np.zeros(demand.shape)
    for window in np.flatnonzero(demand.sum(axis=1) > cpus):
        level = fair_level(demand[window], cpus)
        lacking[window] = level < ENOUGH * demand[window]
    return lacking


def fair_level(demand: Floats, cpus: float) -> float:
    """The most that anybody gets where all together want more than there is (max-min fairness)."""
    rising = np.sort(demand)
    left, count = cpus, len(rising)
    for at, one in enumerate(rising):
        if one * (count - at) >= left:
            return float(left / (count - at))
        left -= one
    return float(rising[-1])


def short_time(world: World, host_of: Sequence[int] | Ints, cpus: float) -> float:
    """The part (0-1) of all instance-time, counting windows in which an instance wants something, spent short."""
    host_of = np.asarray(host_of)
    lacking = wanted = 0.0
    for host in np.unique(host_of):
        there = world.future[:, host_of == host]
        wants = there > WANTS
        wanted += float(wants.sum())
        lacking += float((short(there, cpus) * wants).sum())
    return lacking / max(wanted, 1.0)
