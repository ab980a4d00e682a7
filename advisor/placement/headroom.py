"""What would be left on hosts in their busy moments; it decides between hosts that are equal in what was asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import Headroom
from advisor.placement.host_classes import PlacementQuestion, base_with
from advisor.scheduling.newcomer import without_new_vm
from models.arrays import Bools, Floats, Ints
from models.physics.demands import demands
from models.physics.peak_demand import demand_sums, p95


@dataclass(frozen=True, slots=True)
class HostHeadroom:
    """Headroom of H hosts with the new VM, as in Headroom; (H,) arrays, `before` (3, H) of CPU, memory and NIC."""

    cpu: Floats
    memory: Floats
    nic: Floats
    one_node: Bools
    before: Floats

    @property
    def least(self) -> Floats:
        """The part that is left of the scarcest resource, (H,)."""
        return np.minimum(np.minimum(self.cpu, self.memory), self.nic)

    def of(self, at: int) -> Headroom:
        """That of one of the H hosts."""
        cpu, memory, nic = (float(part[at]) for part in (self.cpu, self.memory, self.nic))
        before = self.before[:, at].tolist()
        return Headroom(cpu, memory, nic, bool(self.one_node[at]), *before)


def headroom_of(question: PlacementQuestion, hosts: Ints) -> HostHeadroom:
    """The headroom of hosts at these positions, (H,), at least one."""
    snapshot, new_vm = question.snapshot, question.request.instance
    memory, needs_mb = snapshot.used_memory_mb[hosts], new_vm.ordinary_memory_mb
    for host, slot in snapshot.where(new_vm.id):  # it is asked about where it runs already
        memory[hosts == host] -= snapshot.residents[host][slot].ordinary_memory_mb
    rooms = (snapshot.rooms[hosts, 0], snapshot.room_memory_mb[hosts], snapshot.rooms[hosts, 1])

    def left(sums: Floats, memory: Floats) -> Floats:
        used = (p95(sums[:, 0]), memory, p95(sums[:, 1]))
        return np.stack([_left(part, room) for part, room in zip(used, rooms, strict=True)])

    cpu, memory_left, nic = left(sums_with(question, hosts), memory + needs_mb)
    return HostHeadroom(
        cpu=cpu,
        memory=memory_left,
        nic=nic,
        before=left(sums_without(question, hosts), memory),
        one_node=(new_vm.vcpus <= snapshot.node_cpus[hosts]) & (needs_mb <= snapshot.node_memory_mb[hosts]),
    )


def sums_without(question: PlacementQuestion, hosts: Ints) -> Floats:
    """What all but the new VM ask of these hosts, as `demand_sums`; (H, 4, 16)."""
    snapshot = question.snapshot
    sums = snapshot.demand_sums[hosts]
    for host, _ in snapshot.where(question.request.instance.id):  # it is asked about where it runs already
        alone = without_new_vm(snapshot, question.request, np.array([host]), question.table)
        sums[hosts == host] = demand_sums(alone, demands(alone))
    return np.asarray(sums)


def sums_with(question: PlacementQuestion, hosts: Ints) -> Floats:
    """The same with the new VM."""
    return sums_without(question, hosts) + new_vm_sums(question, hosts)


def new_vm_sums(question: PlacementQuestion, hosts: Ints) -> Floats:
    """What the new VM adds to the sums of hosts, by its demand on the first one; (1, 4, 16)."""
    return question.once("new_vm", lambda: _of_new_vm(question, hosts[:1]))


def _of_new_vm(question: PlacementQuestion, host: Ints) -> Floats:
    """What the new VM adds to the sums of hosts, by its demand on this one, (1,); (1, 4, 16)."""
    scenes = base_with(question, host)[1]
    alone = replace(scenes, present=np.arange(scenes.slots)[None] == scenes.slots - 1, own_cpus=np.zeros(len(scenes)))
    return demand_sums(alone, demands(alone))


def _left(used: Floats, room: Floats) -> Floats:
    known = np.isfinite(room) & (room > 0)
    return np.where(known, 1 - np.divide(used, room, out=np.zeros_like(used), where=known), 1.0)
