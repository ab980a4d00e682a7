"""How much CPU an instance asks for: by what was measured of it lately, else by the profile of its workload."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from advisor.domain import Host, Instance, Usage
from advisor.snapshot import ClusterSnapshot

FULL = 0.95  # of what it may use: who uses as much is held by it
LEAST_WINDOWS = 360  # an hour at the agent's ten seconds
Measured = Callable[[Sequence[str]], Mapping[str, Usage]]  # instances → those of which something was measured


def asked(snapshot: ClusterSnapshot, host: Host, one: Instance, used: Usage | None) -> tuple[float, str] | None:
    """CPUs that an instance asks for, and by what that is known; None = too little is."""
    table = snapshot.scenes.table
    row = table.row(one.workload, host.platform)
    alone = float(table.column("cpu")[row]) if row else math.nan
    profiled = alone / 100 * min(one.load, 1.0)
    if used is not None and used.windows >= LEAST_WINDOWS:
        if math.isfinite(profiled) and profiled > used.cpus and used.cpus >= FULL * most_of(one):
            return profiled, f"asks for {profiled:.2f} CPUs by its profile and is held at {used.cpus:.2f}"
        return used.cpus, f"used up to {used.cpus:.2f} CPUs in 95 % of {used.windows} windows"
    if math.isfinite(profiled):
        return profiled, f"asks for {profiled:.2f} CPUs by its profile"
    return None


def most_of(one: Instance) -> float:
    """CPUs that it can use."""
    cap = one.settings.cap_percent
    return one.vcpus if cap is None else min(one.vcpus, cap / 100)
