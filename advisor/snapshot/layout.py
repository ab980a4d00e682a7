"""Laying out: hosts with who is on them as Rows, each kind of host and of resident made once and then copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, islice
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.domain import Host, Instance
from advisor.snapshot import fingerprints
from advisor.snapshot.rows import HOST_FIELDS, SLOT_FIELDS, Rows
from models.arrays import Floats, Ints
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.physics.demands import demands

Bytes = NDArray[np.bytes_]

_ADMINISTERED = frozenset(  # what admits instances to a host and changes nothing of how they run
    {"id", "labels", "enabled", "disk_gb", "cpu_overcommit", "memory_overcommit", "driver_overcommit"}
)
_host_kind = attrgetter(*(field.name for field in fields(Host) if field.name not in _ADMINISTERED))
_instance_kind = attrgetter("workload", "settings", "service")  # vcpus and load differ too often to be part of a kind


def lay_out(hosts: Sequence[Host], residents: Sequence[Sequence[Instance]], table: ProfileTable, width: int) -> Rows:
    """Rows of these hosts with scenes of `width` pCPUs, none of them having more.

    ValueError when an instance is pinned beyond its host's pCPUs.
    """
    by_id = [sorted(there, key=attrgetter("id")) for there in residents]
    everybody = list(chain.from_iterable(by_id))
    counts = np.array([len(there) for there in by_id], dtype=np.int64)
    host = np.repeat(np.arange(len(hosts)), counts)
    kinds = _Kinds.of(hosts, by_id, table, width)

    def of_everybody(name: str) -> Floats:  # None becomes nan
        return np.array([getattr(one, name) for one in everybody], dtype=np.float64)

    vcpus, load = of_everybody("vcpus"), of_everybody("load")
    min_ratio, max_latency = of_everybody("min_throughput_ratio"), of_everybody("max_latency_ratio")
    order = np.lexsort((max_latency, min_ratio, load, vcpus, kinds.rank[kinds.slot], host))
    slot = np.arange(len(everybody)) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = (len(hosts), int(counts.max(initial=0)))

    def spread(values: NDArray[Any], nobody: float) -> NDArray[Any]:
        grid = np.full(shape, nobody, dtype=values.dtype)
        grid[host, slot] = values[order]
        return grid

    def held(values: Floats) -> Floats:
        return np.bincount(host, weights=values[order], minlength=len(hosts)).astype(np.float64)

    def of_hosts(values: list[float]) -> Floats:
        return np.array(values, dtype=np.float64)

    at = spread(kinds.slot, -1)
    scenes = replace(kinds.scenes(at), vcpus=spread(vcpus, 0.0), load=spread(load, 0.0))
    ordered = iter([everybody[one] for one in order.tolist()])
    return Rows(
        residents=tuple(tuple(islice(ordered, count)) for count in counts.tolist()),
        scenes=scenes,
        used_vcpus=held(vcpus),
        used_memory_mb=held(of_everybody("memory_mb")),
        used_disk_gb=held(of_everybody("disk_gb")),
        room_vcpus=of_hosts([one.pcpus * one.cpu_overcommit for one in hosts]),
        room_memory_mb=of_hosts([one.memory_mb * one.memory_overcommit for one in hosts]),
        room_disk_gb=of_hosts([np.inf if one.disk_gb is None else one.disk_gb for one in hosts]),
        room_driver_cpus=scenes.driver_cpus.sum(axis=1) * of_hosts([one.driver_overcommit for one in hosts]),
        driver_asked=demands(scenes).driver,
        enabled=np.array([one.enabled for one in hosts], dtype=bool),
        exclusive=held(of_everybody("exclusive")) > 0,
        min_ratio=spread(min_ratio, np.nan),
        max_latency=spread(max_latency, np.nan),
        fingerprints=fingerprints.of_hosts(
            kinds.host_digests(), kinds.digests[at], scenes.vcpus, scenes.load, counts, kinds.table_digest
        ),
    )


@dataclass(frozen=True, slots=True)
class _Kinds:
    """The few kinds that hosts and residents are of, each laid out once as a scene of `batch`.

    `host` (H,) and `slot` (I,) say of which kind each host and each resident is; kinds of residents are scenes with
    one slot, the last scene has nobody. `rank` and `digests` (K, 16) are of the kinds of residents.
    """

    batch: SceneBatch
    host: Ints
    slot: Ints
    first: int  # where kinds of residents begin in `batch`
    rank: Ints
    digests: NDArray[np.uint8]
    hosts: tuple[Host, ...]  # one of each kind
    table_digest: bytes

    @classmethod
    def of(
        cls, hosts: Sequence[Host], residents: Sequence[Sequence[Instance]], table: ProfileTable, width: int
    ) -> _Kinds:
        of_hosts: dict[tuple[Any, ...], int] = {}
        of_slots: dict[tuple[Any, ...], int] = {}
        empty: list[tuple[Host, Sequence[Instance]]] = []
        alone: list[tuple[Host, Sequence[Instance]]] = []
        host_at: list[int] = []
        slot_at: list[int] = []
        for host, there in zip(hosts, residents, strict=True):
            kind = _host_kind(host)
            if kind not in of_hosts:
                of_hosts[kind] = len(empty)
                empty.append((host, ()))
            host_at.append(of_hosts[kind])
            where = (host.pcpus, host.platform)
            for one in there:
                who = (where, _instance_kind(one))
                found = of_slots.get(who)
                if found is None:
                    found = of_slots[who] = len(alone)
                    alone.append((host, (one,)))
                slot_at.append(found)
        wide = Host("wide", "lxc", pcpus=width, memory_mb=1.0)
        batch = build_batch([*empty, *alone, (wide, ())], table)
        content = _contents(batch, len(empty), [host.pcpus for host, _ in alone])
        ranks = {one: number for number, one in enumerate(sorted(set(content)))}
        return cls(
            batch=batch,
            host=np.array(host_at, dtype=np.int64),
            slot=np.array(slot_at, dtype=np.int64),
            first=len(empty),
            rank=np.array([ranks[one] for one in content], dtype=np.int64),
            digests=np.array([list(fingerprints.digest(one)) for one in content], dtype=np.uint8).reshape(
                -1, fingerprints.SIZE
            ),
            hosts=tuple(host for host, _ in empty),
            table_digest=fingerprints.of_table(table),
        )

    def scenes(self, at: Ints) -> SceneBatch:
        """One scene per host; `at` (H, N) is the kind of who sits there, -1 = nobody."""
        nobody = len(self.batch) - 1
        scene = np.where(at >= 0, at + self.first, nobody)
        columns: dict[str, Any] = {name: getattr(self.batch, name)[self.host] for name in HOST_FIELDS}
        for name in SLOT_FIELDS:
            values = getattr(self.batch, name)
            columns[name] = values[scene, 0] if self.batch.slots else values[self.host]
        return SceneBatch(table=self.batch.table, **columns)

    def host_digests(self) -> list[bytes]:
        kinds = [[float(it) if isinstance(it, int) else it for it in _host_kind(host)] for host in self.hosts]
        digests = [fingerprints.digest(kind) for kind in kinds]  # 4 GB are as much as 4.0 GB
        return [digests[one] for one in self.host.tolist()]


def _contents(batch: SceneBatch, first: int, pcpus: Sequence[int]) -> list[tuple[Any, ...]]:
    """What each kind of resident is, in a form that sorts: workload, profile, settings, pCPUs."""
    plain = [name for name in SLOT_FIELDS if name not in {"present", "profile", "vcpus", "load", "affinity"}]
    profiles: dict[int, bytes] = {}
    found = []
    for scene, cpus in enumerate(pcpus, start=first):
        row = int(batch.profile[scene, 0])
        if row not in profiles:
            profiles[row] = fingerprints.of_profile(batch.table, row)
        numbers = [float(getattr(batch, name)[scene, 0]) for name in plain]
        mine = np.packbits(batch.affinity[scene, 0, :cpus]).tobytes()
        found.append((batch.table.names[row], profiles[row], *numbers, mine))
    return found
