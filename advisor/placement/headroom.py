"""What would be left on hosts in their busy moments; it decides between hosts that are equal in what was asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import Headroom, Host, Instance
from advisor.placement.host_classes import PlacementQuestion, base_with
from advisor.scheduling.newcomer import without_newcomer
from models.arrays import Bools, Floats, Ints
from models.physics.demands import demands, link
from models.physics.peak_demand import demand_sums, p95


@dataclass(frozen=True, slots=True)
class HostHeadroom:
    """Headroom of H hosts with the newcomer, as in Headroom; (H,) arrays."""

    cpu: Floats
    memory: Floats
    nic: Floats
    one_node: Bools

    @property
    def least(self) -> Floats:
        """The part that is left of the scarcest resource, (H,)."""
        return np.minimum(np.minimum(self.cpu, self.memory), self.nic)

    def of(self, at: int) -> Headroom:
        """That of one of the H hosts."""
        cpu, memory, nic = (float(part[at]) for part in (self.cpu, self.memory, self.nic))
        return Headroom(cpu, memory, nic, one_node=bool(self.one_node[at]))


def headroom_of(question: PlacementQuestion, hosts: Ints) -> HostHeadroom:
    """The headroom of hosts at these positions, (H,), at least one."""
    snapshot, newcomer = question.snapshot, question.request.instance
    sums, memory = snapshot.demand_sums[hosts], snapshot.used_memory_mb[hosts]
    for host, slot in snapshot.where(newcomer.id):  # it is asked about where it runs already
        alone = without_newcomer(snapshot, question.request, np.array([host]), question.table)
        sums[hosts == host] = demand_sums(alone, demands(alone))
        memory[hosts == host] -= snapshot.residents[host][slot].memory_mb
    peak = p95(sums + _of_newcomer(question, hosts[:1]))
    return HostHeadroom(
        cpu=_left(peak[:, 0], snapshot.scenes.pcpus[hosts]),
        memory=_left(memory + newcomer.memory_mb, snapshot.room_memory_mb[hosts]),
        nic=_left(peak[:, 1], link(snapshot.scenes)[hosts]),
        one_node=np.array([_fits_one_node(newcomer, snapshot.hosts[host]) for host in hosts.tolist()]),
    )


def _of_newcomer(question: PlacementQuestion, host: Ints) -> Floats:
    """What the newcomer adds to the sums of hosts, by its demand on this one, (1,); (1, 2, 3)."""
    scenes = base_with(question, host)[1]
    alone = replace(scenes, present=np.arange(scenes.slots)[None] == scenes.slots - 1)
    return demand_sums(alone, demands(alone))


def _left(used: Floats, room: Floats) -> Floats:
    known = np.isfinite(room) & (room > 0)
    return np.where(known, 1 - np.divide(used, room, out=np.zeros_like(used), where=known), 1.0)


def _fits_one_node(newcomer: Instance, host: Host) -> bool:
    """Whether one node has as many CPUs as the newcomer vCPUs, and as much memory if all nodes have the same."""
    if len(host.numa) < 2:
        return True
    return newcomer.vcpus <= max(map(len, host.numa)) and newcomer.memory_mb <= host.memory_mb / len(host.numa)
