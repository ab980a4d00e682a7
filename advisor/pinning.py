"""The few pinnings worth asking about on each host, as arrays over hosts; never all subsets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.demands import cpu_spread
from models.scene import SceneBatch
from profiler.observed import Instance, Pinning

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PinningOption:
    """One way to pin the newcomer on every host: `affinity` (S, P); `usable` (S,) where it is a choice of its own;
    `pins` False = it needs no command; `given` is the newcomer's own pinning where that is the way."""

    name: str
    affinity: Bools
    usable: Bools
    pins: bool
    given: Pinning | None = None


def options(scenes: SceneBatch, newcomer: Instance) -> tuple[PinningOption, ...]:
    """Pinning options of the newcomer on each scene's host.

    An existing pin is honoured and is then the only option. Otherwise: `unpinned`; `quiet`: as many pCPUs as it has
    vCPUs, those with the least CPU demand and without the driver domain (LATENCY section 4, N11); `guests`: all
    pCPUs but the driver domain's, where that one has its own.
    """
    count, width = scenes.driver_cpus.shape
    exists = np.arange(width)[None, :] < scenes.pcpus[:, None]
    everywhere = np.ones(count, dtype=bool)
    pinning = newcomer.settings.pinning
    if pinning is not None and any(pinning.cpus):
        fixed = np.zeros((count, width), dtype=bool)
        fixed[:, [cpu for cpu in pinning.union or range(width) if cpu < width]] = True
        return (PinningOption("as asked", fixed & exists, everywhere, pins=True, given=pinning),)
    found = [PinningOption("unpinned", exists, everywhere, pins=False)]
    own_driver = scenes.driver_cpus & (scenes.driver_cpus.sum(axis=1) < scenes.pcpus)[:, None]
    free = exists & ~own_driver
    crowded = np.where(free, cpu_spread(scenes), np.inf)
    order = np.argsort(crowded, axis=1, kind="stable")
    quiet = np.zeros((count, width), dtype=bool)
    np.put_along_axis(quiet, order[:, : newcomer.vcpus], True, axis=1)
    quiet &= free
    enough = quiet.sum(axis=1) == newcomer.vcpus
    found.append(PinningOption("quiet CPUs", quiet, enough & (quiet != exists).any(axis=1), pins=True))
    apart = own_driver.any(axis=1) & (free.sum(axis=1) >= newcomer.vcpus) & (free != quiet).any(axis=1)
    found.append(PinningOption("guest CPUs", free, apart, pins=True))
    return tuple(found)


def as_pinning(option: PinningOption, scene: int, vcpus: int) -> Pinning | None:
    """The option on one host as a Pinning; one pCPU per vCPU where the counts match, else the whole set for each."""
    if option.given is not None:
        return option.given
    if not option.pins:
        return None
    cpus = tuple(int(cpu) for cpu in np.flatnonzero(option.affinity[scene]))
    if len(cpus) == vcpus:
        return Pinning(tuple((cpu,) for cpu in cpus))
    return Pinning.all_on(cpus, vcpus)
