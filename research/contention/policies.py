"""Placement policies of schedulers and papers: each looks at the past of the VMs of a host, and gives it a risk.

A policy sees, of each host, what is there with the newcomer. Lower is better. Policies differ in nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from models.arrays import Bools, Floats
from research.contention.policy_world import World

MOST_PAST = 600  # windows that the simple policies look at


@dataclass(slots=True)
class Hosts:
    """H hosts of `cpus` CPUs each with VMs of a world; `most` is how many vCPUs one may promise.

    `past` (T, N) are at most MOST_PAST windows of it, `total` (H, T) is the demand of all on a host in each of them,
    `p95` (H,) the sum of their own 95th percentiles, `promised` (H,) their vCPUs, `future` (H, F) what they will ask
    for, `there` who is on each host.
    """

    world: World
    past: Floats
    cpus: float
    most: float
    total: Floats
    p95: Floats
    promised: Floats
    future: Floats
    there: list[list[int]]
    each_p95: Floats = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def empty(cls, world: World, count: int, cpus: float, most: float) -> Hosts:
        past = world.past[:: math.ceil(len(world.past) / MOST_PAST)]
        return cls(
            world,
            past,
            cpus,
            most,
            np.zeros((count, len(past))),
            np.zeros(count),
            np.zeros(count),
            np.zeros((count, len(world.future))),
            [[] for _ in range(count)],
            np.quantile(world.past, 0.95, axis=0),
        )

    def put(self, vm: int, host: int) -> None:
        """Place a VM."""
        self.total[host] += self.past[:, vm]
        self.p95[host] += self.each_p95[vm]
        self.promised[host] += self.world.vcpus[vm]
        self.future[host] += self.world.future[:, vm]
        self.there[host].append(vm)

    def fits(self, vm: int) -> Bools:
        """Hosts that may promise the vCPUs of a VM; (H,)."""
        return np.asarray(self.promised + self.world.vcpus[vm] <= self.most + 1e-9)


Risk = Callable[[Hosts, int], Floats]
"""Of each host with a VM, (H,), relative to its CPUs; comparable among hosts, lower is better."""


def sum_of_means(hosts: Hosts, vm: int) -> Floats:
    return np.asarray((hosts.total.mean(axis=1) + hosts.past[:, vm].mean()) / hosts.cpus)


def sum_of_p95(hosts: Hosts, vm: int) -> Floats:
    return np.asarray((hosts.p95 + hosts.each_p95[vm]) / hosts.cpus)


def n_sigma(n: float) -> Risk:
    """Mean and n standard deviations of all that a host's VMs used together (Bashir et al., EuroSys 2021)."""

    def risk(hosts: Hosts, vm: int) -> Floats:
        together = hosts.total + hosts.past[:, vm]
        return np.asarray((together.mean(axis=1) + n * together.std(axis=1)) / hosts.cpus)

    return risk


def max_of_peaks(n: float) -> Risk:
    """The larger one of n-sigma and the sum of 95th percentiles (the same paper's maximum of predictors)."""
    of_sums = n_sigma(n)
    return lambda hosts, vm: np.maximum(of_sums(hosts, vm), sum_of_p95(hosts, vm))


def mean_and_sigma(margin: float) -> Risk:
    """Trimaran's LoadVariationRiskBalancing: (mean + margin * sigma) / 2 of what is there, and the newcomer's request.

    It knows the newcomer by its request only. Its past utilisation stands for that here, which favours it.
    """

    def risk(hosts: Hosts, vm: int) -> Floats:
        mean = hosts.total.mean(axis=1) + hosts.past[:, vm].mean()
        return np.asarray((mean + margin * hosts.total.std(axis=1)) / (2 * hosts.cpus))

    return risk


def nova(hosts: Hosts, vm: int) -> Floats:
    """Nova's CPU weigher: the host with most free vCPUs; memory is in proportion here."""
    return np.asarray((hosts.promised + hosts.world.vcpus[vm]) / hosts.cpus)


def pressure(hosts: Hosts) -> Floats:
    """Pressure stall information of the past, in per cent of the time; (H,). No host has seen the newcomer yet."""
    over = np.maximum(hosts.total / hosts.cpus - 1, 0.0)
    return np.asarray(100 * (over > 0).mean(axis=1) + over.mean(axis=1))


def proxlb(hosts: Hosts, vm: int) -> Floats:
    """ProxLB's PSI mode: least pressure first; of hosts without any, the least used."""
    return np.asarray(pressure(hosts) + 0.01 * sum_of_means(hosts, vm))


def free_idle_psi(hosts: Hosts, _vm: int) -> Floats:
    """An operator's weigher for Nova: free vCPUs times idle CPUs, less pressure; all as parts, and 1 less that.

    1 keeps it above 0, as levels are; it changes no order.
    """
    free = 1 - hosts.promised / hosts.most
    idle = 1 - hosts.total.mean(axis=1) / hosts.cpus
    return np.asarray(1 + pressure(hosts) / 100 - free * idle)


def peak_oracle(hosts: Hosts, vm: int) -> Floats:
    """Knows the future: the highest demand of all together that will come."""
    return np.asarray((hosts.future + hosts.world.future[:, vm]).max(axis=1) / hosts.cpus)


BASELINES: Mapping[str, Mapping[str, Risk]] = {
    "sum of means": {"": sum_of_means},
    "sum of p95": {"": sum_of_p95},
    "N-sigma": {f"N={n:g}": n_sigma(n) for n in (1, 2, 3, 5)},
    "max of peaks": {f"N={n:g}": max_of_peaks(n) for n in (2, 3, 5)},
    "mean + k sigma": {f"k={k:g}": mean_and_sigma(k) for k in (1, 2)},
    "Nova's weighers": {"": nova},
    "free * idle - PSI": {"": free_idle_psi},
    "ProxLB, PSI": {"": proxlb},
    "peak oracle": {"": peak_oracle},
}
"""Each policy under the values of its parameter; which is used is chosen on other orders of arrival."""
