"""Clouds with rules for balancers: zones, VMs apart and together, and VMs that no plan may move, all kept at the start.

The VMs, their demand and the fuller hosts are drawn as in `clusters.made_up`. Each host of a zone has the label `zone`
and each VM requires that of its own. Groups are drawn among VMs of a zone as they are placed, so that no rule is broken
before the first move.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import Host, Instance, Inventory
from profiler.demand import Demand
from research.arena.clusters import (
    COMMON,
    MOST_BUSY,
    OVERCOMMIT,
    SHAPE_PARTS,
    SHAPES,
    SIGMA,
    SPREAD,
    UTILISATION,
)

UNKNOWN = 0.1  # of the vCPUs of a VM whose demand is not known
ZONES = 3
HOT_PART, HOT_WEIGHT = 0.25, 3.0  # of the hosts: chosen so many times as often as others
FULLEST = 0.97  # of what a host may promise: room for the groups that are formed
APART, TOGETHER, STAYING = 0.10, 0.04, 0.05  # parts of the VMs: in groups of three, in pairs, and never moved


@dataclass(frozen=True, slots=True)
class Size:
    """How many hosts and VMs, and of how many CPUs and MB each host is."""

    hosts: int
    instances: int
    cpus: int
    memory_mb: int


SIZES = {
    "12 x 150": Size(12, 150, 64, 524_288),
    "100 x 3,000": Size(100, 3_000, 128, 1_048_576),
    "1,000 x 30,000": Size(1_000, 30_000, 128, 1_048_576),
}


def ruled(seed: int, size: Size, busy: float = 1.0) -> Inventory:
    """Cloud number `seed`; `busy` multiplies every demand, up to MOST_BUSY of a VM's vCPUs."""
    rng = np.random.default_rng(seed)
    zones = [f"az{at % ZONES + 1}" for at in range(size.hosts)]
    hosts = tuple(
        Host(f"pve{at + 1:04}", "kvm", size.cpus, size.memory_mb, cpu_overcommit=OVERCOMMIT, labels={"zone": zone})
        for at, zone in enumerate(zones)
    )
    free = FULLEST * np.tile(np.array([OVERCOMMIT * size.cpus, size.memory_mb], float), (size.hosts, 1))
    wanted = rng.permutation(np.where(np.arange(size.hosts) < HOT_PART * size.hosts, HOT_WEIGHT, 1.0))
    instances = []
    for number in range(size.instances):
        vcpus, memory_mb = SHAPES[rng.choice(len(SHAPES), p=SHAPE_PARTS)]
        chance = wanted * (free >= (vcpus, memory_mb)).all(axis=1)
        at = int(rng.choice(size.hosts, p=chance / chance.sum()))
        free[at] -= (vcpus, memory_mb)
        mean = float(min(busy * rng.lognormal(UTILISATION, SIGMA), MOST_BUSY) * vcpus)
        labels = {"require.zone": zones[at]}
        name = f"vm-{number:05}"
        instances.append(
            Instance(name, vcpus, memory_mb, host=hosts[at].id, demand={"cpu": Demand(mean)}, labels=labels)
        )
    return Inventory(hosts, tuple(_with_rules(instances, rng)))


def means_of(cloud: Inventory) -> Inventory:
    """A cloud that was recorded (`cotenant snapshot`) as balancers see it: hosts, placed VMs with their rules, and the
    mean demand of each, a tenth of its vCPUs where none is known."""
    return Inventory(
        cloud.hosts,
        tuple(
            replace(one, demand={"cpu": Demand(one.demand["cpu"].mean if "cpu" in one.demand else UNKNOWN * one.vcpus)})
            for one in cloud.instances
            if one.host
        ),
    )


def metered(inventory: Inventory) -> Inventory:
    """The same as a service knows it that has metered it for days: not only means, but by how much demand varies."""
    return replace(
        inventory,
        instances=tuple(
            replace(one, demand={"cpu": replace(mean_alone, spread=SPREAD * mean_alone.mean, common=COMMON)})
            for one in inventory.instances
            for mean_alone in (one.demand["cpu"],)
        ),
    )


def _with_rules(instances: list[Instance], rng: np.random.Generator) -> Iterator[Instance]:
    """The same with groups and some on few hosts that never move; no VM has two of these rules."""
    more, by_host = dict[str, dict[str, str]](), dict[str, list[Instance]]()
    for at in rng.permutation(len(instances)):
        by_host.setdefault(str(instances[at].host), []).append(instances[at])
    for host in rng.permutation(sorted(by_host)):
        for _ in range(min(len(by_host[host]) // 2, round(STAYING * len(instances)) - len(more))):
            more[by_host[host].pop().id] = {"never_move": "true"}
    pairs = round(TOGETHER * len(instances) / 2)
    for number, host in enumerate(sorted(by_host, key=lambda name: -len(by_host[name])) * pairs):
        if number == pairs:
            break
        if len(by_host[host]) > 1:
            more |= {by_host[host].pop().id: {"affinity": f"pair-{number}"} for _ in range(2)}
    left = {zone: [] for zone in sorted({one.required_labels["zone"] for one in instances})}  # type: dict[str, list[Instance]]
    for there in by_host.values():
        for one in there:
            left[one.required_labels["zone"]].append(one)
    for number in range(round(APART * len(instances) / 3)):
        members = _apart(left[sorted(left)[number % len(left)]])
        more |= {one.id: {"anti_affinity": f"apart-{number}"} for one in members}
    for one in instances:
        yield replace(one, labels={**one.labels, **more.get(one.id, {})})


def _apart(left: list[Instance]) -> list[Instance]:
    """Three VMs on three hosts, taken from those that are left; fewer where there are no three."""
    members: list[Instance] = []
    for one in list(left):
        if len(members) < 3 and one.host not in {other.host for other in members}:
            members.append(one)
            left.remove(one)
        if len(members) == 3:
            break
    return members
