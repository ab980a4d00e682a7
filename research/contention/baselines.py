"""Two simple predictions that a better one is shown beside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from research.contention.host_spec import HostOutcome, HostSpec, InstanceOutcome
from research.contention.simulator import as_arrays


def fluid_of_means(hosts: Sequence[HostSpec]) -> list[HostOutcome]:
    """Weighted max-min of the mean demands, with caps and CPU sets: every instance gets all or is short all the
    time."""
    return [_fluid(host) for host in hosts]


def single_queue(hosts: Sequence[HostSpec]) -> list[HostOutcome]:
    """Each host as one M/G/1-PS queue of its load: share 1 - load; short while another instance is there, too."""
    return [_queue(host) for host in hosts]


def _fluid(host: HostSpec) -> HostOutcome:
    from research.contention import fluid_loop  # numba's import takes half a second

    arrays = as_arrays(host, {})
    demand = np.array([one.demand_cpus for one in host.instances])
    rate = np.zeros(len(host.instances))
    fluid_loop.share_by_sets(
        np.minimum(demand, arrays.limit), arrays.weight, arrays.group, arrays.member, arrays.member_cpus, rate
    )
    outcomes = {}
    for one, demanded, got in zip(host.instances, demand, rate, strict=True):
        share = min(float(got / demanded), 1.0) if demanded > 0 else 1.0
        short, short_95 = float(share < 1.0 - 1e-6), float(share < 0.95)
        outcomes[one.id] = InstanceOutcome(share, short, short_95, float(got), float(demanded - got))
    return HostOutcome(outcomes, float(demand.sum() > host.cpus))


def _queue(host: HostSpec) -> HostOutcome:
    load = min(sum(one.demand_cpus for one in host.instances) / host.cpus, 1.0)
    share = max(1.0 - load, 0.01)
    outcomes = {}
    for one in host.instances:
        runnable = min(one.demand_cpus / share, float(one.vcpus))
        short = min(runnable, 1.0) * load
        outcomes[one.id] = InstanceOutcome(share, short, short, runnable * share, runnable * (1.0 - share))
    return HostOutcome(outcomes, load**2)
