"""Hosts with instances as a simulation or a measurement runs them, and what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Loop = Literal["open", "closed", "hog"]


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """One VM or container. `demand_cpus` is what it would use alone, its mean over time; `spread_cpus` the standard
    deviation of that between windows and `common` the share (0-1) of its square that all instances of the cloud have in
    common; `burst_ms` the mean CPU time of one burst on one vCPU. `cap_cpus` inf = none; `pin` empty = any CPU."""

    id: str
    vcpus: int
    demand_cpus: float
    loop: Loop
    burst_ms: float
    spread_cpus: float = 0.0
    common: float = 0.0
    weight: float = 256.0
    cap_cpus: float = float("inf")
    pin: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class HostSpec:
    id: str
    cpus: int
    instances: tuple[InstanceSpec, ...]
    window_s: float = 60.0


@dataclass(frozen=True, slots=True)
class InstanceOutcome:
    """`share` = run / (run + wait); `short` and `short_95` parts (0-1) of the wall time."""

    share: float
    short: float
    short_95: float
    run_s: float
    wait_s: float


@dataclass(frozen=True, slots=True)
class HostOutcome:
    instances: Mapping[str, InstanceOutcome]
    short: float
