"""ClusterSnapshot: a cloud at one moment as arrays, one scene per host; built whole and never changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from advisor.domain import Host, Instance, Inventory, WorkloadProfile
from models.scene import ProfileTable, SceneBatch, build_batch

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Hosts ordered by id with who is on them, and the same as arrays.

    `residents[h]` are the instances on host h in the order of the scene's slots, answers still pending included;
    `scenes` has one scene per host. `used_*` (H,) is what residents hold; `age_s` (H,) is how long ago the host was
    last seen, inf = never.
    """

    hosts: tuple[Host, ...]
    residents: tuple[tuple[Instance, ...], ...]
    scenes: SceneBatch
    workloads: tuple[WorkloadProfile, ...]
    used_vcpus: Floats
    used_memory_mb: Floats
    used_disk_gb: Floats
    age_s: Floats
    taken_at: datetime

    @classmethod
    def build(
        cls, inventory: Inventory, *, seen: Mapping[str, datetime], pending: Sequence[Instance], taken_at: datetime
    ) -> ClusterSnapshot:
        """Lay out a cloud. `seen` is when each host was last reported; `pending` are answers that count as placed."""
        hosts = tuple(sorted(inventory.hosts, key=lambda host: host.id))
        placed = {instance.id for instance in inventory.instances if instance.host}
        by_host: dict[str, list[Instance]] = {host.id: [] for host in hosts}
        for instance in (*inventory.instances, *(one for one in pending if one.id not in placed)):
            if instance.host in by_host:
                by_host[instance.host].append(instance)
        residents = tuple(tuple(sorted(by_host[host.id], key=lambda one: one.id)) for host in hosts)
        table = ProfileTable.build(inventory.workloads)
        return cls(
            hosts=hosts,
            residents=residents,
            scenes=build_batch(list(zip(hosts, residents, strict=True)), table),
            workloads=inventory.workloads,
            used_vcpus=np.array([float(sum(one.vcpus for one in there)) for there in residents]),
            used_memory_mb=np.array([float(sum(one.memory_mb for one in there)) for there in residents]),
            used_disk_gb=np.array([float(sum(one.disk_gb for one in there)) for there in residents]),
            age_s=np.array(
                [max((taken_at - seen[host.id]).total_seconds(), 0.0) if host.id in seen else np.inf for host in hosts]
            ),
            taken_at=taken_at,
        )

    def index(self, host_id: str) -> int | None:
        """Position of a host, None when it is not there."""
        return next((position for position, host in enumerate(self.hosts) if host.id == host_id), None)
