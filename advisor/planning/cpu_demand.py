"""The CPU demand of an instance: by recent measurements, else by the profile of its workload."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from advisor.domain import Host, Instance, Usage
from advisor.snapshot import ClusterSnapshot

SATURATED = 0.95  # share of the usable CPUs above which an instance is held back
MIN_WINDOWS = 360  # an hour at the agent's ten seconds
Measured = Callable[[Sequence[str]], Mapping[str, Usage]]  # instance ids → usage of those that were measured


def cpu_demand(
    snapshot: ClusterSnapshot, host: Host, instance: Instance, used: Usage | None
) -> tuple[float, str] | None:
    """The CPUs that an instance demands and the source in words; None where too little is known."""
    table = snapshot.scenes.table
    row = table.row(instance.workload, host.platform)
    profile_percent = float(table.column("cpu")[row]) if row else math.nan
    profiled = profile_percent / 100 * min(instance.load, 1.0)
    if used is not None and used.windows >= MIN_WINDOWS:
        if math.isfinite(profiled) and profiled > used.cpus and used.cpus >= SATURATED * usable_cpus(instance):
            return profiled, f"asks for {profiled:.2f} CPUs by its profile and is held at {used.cpus:.2f}"
        return used.cpus, f"used up to {used.cpus:.2f} CPUs in 95 % of {used.windows} windows"
    if math.isfinite(profiled):
        return profiled, f"asks for {profiled:.2f} CPUs by its profile"
    return None


def usable_cpus(instance: Instance) -> float:
    """The CPUs that it may use under its cap."""
    cap = instance.settings.cap_percent
    return instance.vcpus if cap is None else min(instance.vcpus, cap / 100)
