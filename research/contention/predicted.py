"""What the product's model says of hosts that were simulated or measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.physics.cpu_bursts import CLOSED, HOG, OPEN, state
from models.physics.prior import solve
from models.prediction import CpuPressure
from profiler.demand import Demand
from profiler.observed import Host, Instance, IsolationSettings, Pinning
from research.contention.host_spec import HostOutcome, HostSpec, InstanceOutcome, InstanceSpec


def predict(hosts: Sequence[HostSpec], fluid: bool = True) -> list[HostOutcome]:
    """The outcome of each host by the prior, which knows each instance's demand; `fluid`: of a simulation that
    shares CPUs at every moment and takes a cap for a rate, instead of a real scheduler."""
    return [_outcome(host, solve(scene(host, fluid), fluid=fluid).cpu, fluid) for host in hosts]


def scene(host: HostSpec, fluid: bool, capacity: float | None = None) -> SceneBatch:
    """A host as a scene; `capacity` in CPUs where that is not the number of its CPUs."""
    instances = [as_instance(one) for one in host.instances]
    batch = build_batch([(Host("h", "lxc", pcpus=host.cpus, memory_mb=1.0), instances)], ProfileTable.build(()))
    if fluid:  # a rate of at most so many CPUs is as many vCPUs; a quota would be used up at full speed
        batch = replace(batch, vcpus=np.minimum(batch.vcpus, batch.cap), cap=np.full(batch.cap.shape, np.inf))
    if capacity is not None:
        numbers = batch.host_numbers.copy()
        numbers[:, 0] = capacity
        batch = replace(batch, host_numbers=numbers)
    return batch


def as_instance(one: InstanceSpec) -> Instance:
    """An instance as the product knows it, with its demand over time and its settings."""
    demand = Demand(
        mean=one.vcpus if one.loop == "hog" else one.demand_cpus,
        spread=one.spread_cpus,
        common=one.common,
        open_loop=float(one.loop == "open"),
        burst_ms=one.burst_ms,
        windows=1.0,
    )
    settings = IsolationSettings(
        pinning=Pinning.all_on(one.pin, one.vcpus) if one.pin else None,
        cap_percent=100 * one.cap_cpus if np.isfinite(one.cap_cpus) else None,
        weight=round(one.weight),
    )
    return Instance(one.id, vcpus=one.vcpus, settings=settings, demand={"cpu": demand})


def _outcome(host: HostSpec, cpu: CpuPressure, fluid: bool) -> HostOutcome:
    nan = float("nan")
    instances = {}
    for at, one in enumerate(host.instances):
        under_cap, held_back = _alone(one) if fluid else (1.0, 0.0)
        share, short = float(cpu.share[0, at]) * under_cap, 1 - (1 - float(cpu.short[0, at])) * (1 - held_back)
        instances[one.id] = InstanceOutcome(share, short, nan, nan, nan)
    return HostOutcome(instances, float(cpu.crowded[0]))


def _alone(one: InstanceSpec) -> tuple[float, float]:
    """The share that an instance has alone under its own cap, and the part of the time in which that holds it back.

    The product separates the effect of the cap; a simulation counts it as waiting.
    """
    if one.cap_cpus >= one.vcpus:
        return 1.0, 0.0
    kind = {"open": OPEN, "closed": CLOSED, "hog": HOG}[one.loop]
    wants, gets, _, _, short = state(kind, float(one.vcpus), one.demand_cpus, 1.0, 1.0, one.cap_cpus)
    return gets / wants, short
