"""The CPU demand of an instance: by recent measurements, else as given, else by the profile of its workload."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from advisor.domain import Host, Instance, Usage
from advisor.snapshot import ClusterSnapshot
from profiler.demand import Demand, Resource

SATURATED = 0.95  # share of the usable CPUs above which an instance is held back
MIN_WINDOWS = 360  # an hour at the agent's ten seconds
Measured = Callable[[Sequence[str]], Mapping[str, Usage]]  # instance ids → usage of those that were measured


def cpu_demand(
    snapshot: ClusterSnapshot, host: Host, instance: Instance, used: Usage | None
) -> tuple[float, str] | None:
    """The CPUs that an instance demands and the source in words; None where too little is known."""
    alone, source = _alone(snapshot, host, instance)
    if used is not None and used.windows >= MIN_WINDOWS:
        if alone > used.cpus >= SATURATED * usable_cpus(instance):
            return alone, f"{source} and is held at {used.cpus:.2f}"
        return used.cpus, f"used up to {used.cpus:.2f} CPUs in 95 % of {used.windows} windows"
    return (alone, source) if math.isfinite(alone) else None


def _alone(snapshot: ClusterSnapshot, host: Host, instance: Instance) -> tuple[float, str]:
    """The CPUs that it would use alone and the source in words, nan where too little is known.

    A mean alone says nothing of the peaks that a size is for, so a given demand counts only with its `p95`.
    """
    given = instance.demand.get("cpu")
    if given is not None:
        if given.p95 is None:
            return math.nan, ""
        cpus = given.p95 * min(instance.load, 1.0)
        return cpus, f"asks for up to {cpus:.2f} CPUs in 95 % of the time by the demand that is known of it"
    table = snapshot.scenes.table
    row = table.row(instance.workload, host.platform)
    cpus = float(table.column("cpu")[row]) / 100 * min(instance.load, 1.0) if row else math.nan
    return cpus, f"asks for {cpus:.2f} CPUs by its profile"


def usable_cpus(instance: Instance) -> float:
    """The CPUs that it may use under its cap."""
    cap = instance.settings.cap_percent
    return instance.vcpus if cap is None else min(instance.vcpus, cap / 100)


def demand_scaled(instance: Instance, factor: float, vcpus: int) -> Mapping[Resource, Demand]:
    """Its demand with that for CPUs multiplied, none of it above `vcpus`; what is not known stays so."""
    cpu = instance.demand.get("cpu")
    if cpu is None or cpu.mean == 0:
        return instance.demand
    mean = min(factor * cpu.mean, vcpus)
    grown = mean / cpu.mean
    p50, p95, p99 = (None if one is None else min(factor * one, vcpus) for one in (cpu.p50, cpu.p95, cpu.p99))
    scaled = replace(cpu, mean=mean, spread=grown * cpu.spread, doubt=grown * cpu.doubt, p50=p50, p95=p95, p99=p99)
    return {**instance.demand, "cpu": scaled}
