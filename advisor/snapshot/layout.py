"""Lays out hosts and residents as HostArrays, in which single rows can be replaced, with fingerprints of equal ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b
from itertools import chain, islice
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.domain import MEMORY_SHORT, Host, Instance
from models.arrays import Bools, Floats, Ints, axis_fields, over
from models.data.scene import (
    CPU_DEMAND,
    DEVICE_DEMAND,
    DEVICES,
    EMPTY_SLOT,
    SCENE_FIELDS,
    SETTING_FIELDS,
    SLOT_FIELDS,
    ProfileTable,
    SceneBatch,
    build_batch,
    cpu_demand,
    device_demand,
)
from models.data.topology import given_own_cpus
from models.features.feature_matrix import REPORTER, families
from models.physics.demands import demands, guessed_capacity
from models.physics.peak_demand import demand_sums, rooms
from profiler.observed import DEFAULT_WEIGHT

# Digests of everything that a prediction for a host depends on, without ids, so that equal hosts are recognized.

Bytes = NDArray[np.bytes_]
Bytes8 = NDArray[np.uint8]

SIZE = 16  # bytes; the chance of a collision among 10,000 hosts is 10^-30


def digest(*parts: object) -> bytes:
    """A digest of plain values: text, numbers, bytes, and tuples of them."""
    return blake2b(repr(parts).encode(), digest_size=SIZE).digest()


def profile_fingerprint(table: ProfileTable, row: int) -> bytes:
    """A digest of a workload: its name, by which a model may know it, its values, and whether they were measured."""
    known = np.flatnonzero(~np.isnan(table.values[row]))
    columns = [table.columns[column] for column in known]
    return digest(table.names[row], columns, table.values[row, known].tobytes(), row in table.means)


def table_fingerprint(table: ProfileTable) -> bytes:
    """A digest of what a profile table contributes to every scene: fastest device and link, and sweeps.

    Platforms that a learned model brings are covered by its version.
    """
    guessed = [guessed_capacity(table, key) for key in ("disk_mb_s", "mem_bw_mb_s")]
    fastest = float(np.nan_to_num(table.column("net_mbit")).max(initial=0.0))
    reporters = [profile_fingerprint(table, row) for row, name in enumerate(table.names) if name == REPORTER]
    return digest(guessed, fastest, reporters, sorted(families(table.columns).items()), sorted(table.platforms.items()))


def fingerprints_of_hosts(hosts: Sequence[bytes], kinds: Bytes8, numbers: Floats, counts: Ints, table: bytes) -> Bytes:
    """The fingerprints of H hosts, (H,) S16: of the host and of its residents in slot order.

    `hosts` (H,) are digests; `kinds` (H, N, 16) are digests of the residents except for their `numbers` (H, N, K); only
    the first `counts` (H,) slots count.
    """
    rows = np.concatenate([kinds, np.ascontiguousarray(numbers).view(np.uint8)], axis=2)
    digests_by_host = [
        blake2b(host + table + row[:count].tobytes(), digest_size=SIZE).digest()
        for host, row, count in zip(hosts, rows, counts.tolist(), strict=True)
    ]
    return np.array(digests_by_host, dtype=f"S{SIZE}")


# HostArrays: hosts and residents as arrays, in which single rows can be replaced.


@dataclass(frozen=True, slots=True)
class HostArrays:
    """H hosts with up to N residents each.

    `residents[h]` are in the slot order of scene h: by workload, profile, vCPUs, load, settings and limits, then by id,
    so that equal hosts have equal arrays. `used_*` (H,) is what residents hold, `room_*` (H,) what may be promised, inf
    = unknown; `own` are pCPUs of dedicated vCPUs, which count among the vCPUs only where the host sets no pCPUs apart
    for them (`shared_pcpus` (H,) are the others). `driver_asked` (H, N) is each resident's demand on the driver domain
    alone, in CPUs, 0 = none or unknown. `demand_sums` (H, 4, 16) is what all together ask for
    (models.physics.peak_demand), and `rooms` (H, 4) the capacity. `node_cpus` and `node_memory_mb` (H,) are of
    the largest NUMA node, inf where there is only one. `restrained` (H,) = an instance has a cap, pins or a weight of
    its own. `min_ratio`, `max_latency` and `max_short` (H, N) are limits, nan = none. Equal `fingerprints` (H,) mean
    equal predictions.
    """

    residents: tuple[tuple[Instance, ...], ...]
    scenes: SceneBatch
    used_vcpus: Floats = field(metadata=over("host"))
    used_own: Floats = field(metadata=over("host"))
    shared_pcpus: Floats = field(metadata=over("host"))
    used_memory_mb: Floats = field(metadata=over("host"))
    used_disk_gb: Floats = field(metadata=over("host"))
    room_vcpus: Floats = field(metadata=over("host"))
    room_own: Floats = field(metadata=over("host"))
    room_memory_mb: Floats = field(metadata=over("host"))
    room_disk_gb: Floats = field(metadata=over("host"))
    room_driver_cpus: Floats = field(metadata=over("host"))
    driver_asked: Floats = field(metadata=over("slot", empty=0.0))
    demand_sums: Floats = field(metadata=over("host"))
    rooms: Floats = field(metadata=over("host"))
    node_cpus: Floats = field(metadata=over("host"))
    node_memory_mb: Floats = field(metadata=over("host"))
    restrained: Bools = field(metadata=over("host"))
    enabled: Bools = field(metadata=over("host"))
    exclusive: Bools = field(metadata=over("host"))
    min_ratio: Floats = field(metadata=over("slot", empty=np.nan))
    max_latency: Floats = field(metadata=over("slot", empty=np.nan))
    max_short: Floats = field(metadata=over("slot", empty=np.nan))
    fingerprints: Bytes = field(metadata=over("host"))


def with_replaced_rows(old: HostArrays, source: Ints, new: HostArrays, positions: Ints) -> HostArrays:
    """Rows `source` (H,) of `old`, -1 = none, with those at `positions` taken from `new`; equal to laying out all anew.

    Both have the same profiles (in the table of `new`) and scenes of the same width.
    """
    stays = np.ones(len(source), dtype=bool)
    stays[positions] = False
    kept = old.scenes.present[source[stays]].sum(axis=1)
    slots = max(int(kept.max(initial=0)), new.scenes.slots)
    in_place = len(source) == len(old.residents) and bool((source == np.arange(len(source))).all())

    def exchange(before: NDArray[Any], after: NDArray[Any]) -> NDArray[Any]:
        kind = np.promote_types(before.dtype, after.dtype)  # a longer name of a platform needs more room
        if in_place and kind == before.dtype and _are_equal(before[positions], after):
            return before  # arrays of snapshots never change: news of demand copy no settings
        out = before.astype(kind) if in_place else before[source].astype(kind, copy=False)
        out[positions] = after
        return out

    def exchange_slots(before: NDArray[Any], after: NDArray[Any], filler: Any) -> NDArray[Any]:
        return exchange(_with_slot_count(before, slots, filler), _with_slot_count(after, slots, filler))

    scenes = SceneBatch(
        table=new.scenes.table,
        **{name: exchange(getattr(old.scenes, name), getattr(new.scenes, name)) for name in SCENE_FIELDS},
        **{
            name: exchange_slots(getattr(old.scenes, name), getattr(new.scenes, name), EMPTY_SLOT[name])
            for name in SLOT_FIELDS
        },
    )
    residents = [old.residents[row] if row >= 0 else () for row in source.tolist()]
    for place, new_residents in zip(positions.tolist(), new.residents, strict=True):
        residents[place] = new_residents
    return HostArrays(
        residents=tuple(residents),
        scenes=scenes,
        **{name: exchange(getattr(old, name), getattr(new, name)) for name in axis_fields(HostArrays, "host")},
        **{
            one.name: exchange_slots(getattr(old, one.name), getattr(new, one.name), one.metadata["empty"])
            for one in fields(HostArrays)
            if one.name in axis_fields(HostArrays, "slot")
        },
    )


def _are_equal(before: NDArray[Any], after: NDArray[Any]) -> bool:
    """Whether all values are the same, and nan in the same places."""
    same = before == after
    return bool((same if before.dtype.kind != "f" else same | (np.isnan(before) & np.isnan(after))).all())


def _with_slot_count(values: NDArray[Any], slots: int, filler: Any) -> NDArray[Any]:
    """The same with that many slots, (H, slots, ...); cut-off slots are empty."""
    missing = slots - values.shape[1]
    if missing <= 0:
        return values[:, :slots] if missing else values
    return np.concatenate(
        [values, np.full((len(values), missing, *values.shape[2:]), filler, dtype=values.dtype)], axis=1
    )


_MIN_NODES = 2  # with fewer, everything is on one

_ADMINISTERED = frozenset(  # fields that restrict placement but do not affect performance
    {"id", "labels", "enabled", "disk_gb", "cpu_overcommit", "memory_overcommit", "driver_overcommit", "probed"}
)
_host_kind = attrgetter(*(field.name for field in fields(Host) if field.name not in _ADMINISTERED), "probed_key")
# Not vcpus, load and demand: they differ too often to be part of a template.
_instance_kind = attrgetter("workload", "settings", "service", "dedicated_vcpus")


def lay_out(
    hosts: Sequence[Host], residents: Sequence[Sequence[Instance]], table: ProfileTable, width: int
) -> HostArrays:
    """Arrays of these hosts with scenes of `width` pCPUs, the most that any host has.

    ValueError when an instance is pinned to a pCPU that its host lacks.
    """
    by_id = [sorted(residents_here, key=attrgetter("id")) for residents_here in residents]
    all_residents = list(chain.from_iterable(by_id))
    counts = np.array([len(residents_here) for residents_here in by_id], dtype=np.int64)
    host = np.repeat(np.arange(len(hosts)), counts)
    templates = _Templates.of(hosts, by_id, table, width)

    def of_all(name: str) -> Floats:  # None becomes nan
        return np.array([getattr(instance, name) for instance in all_residents], dtype=np.float64)

    vcpus, load = of_all("vcpus"), of_all("load")
    own = of_all("dedicated_vcpus")
    apart = np.array([bool(host.dedicated_cpus) for host in hosts], dtype=bool)
    min_ratio, max_latency = of_all("min_throughput_ratio"), of_all("max_latency_ratio")
    max_short = of_all("max_time_short")
    demand = np.array([cpu_demand(instance) for instance in all_residents]).reshape(-1, len(CPU_DEMAND))
    of_devices = np.array([device_demand(instance) for instance in all_residents])
    of_devices = of_devices.reshape(len(all_residents), len(DEVICES) * len(DEVICE_DEMAND))
    known = [column for column in (*of_devices.T, *demand.T) if not np.isnan(column).all()]
    order = np.lexsort((max_short, max_latency, min_ratio, *known, load, vcpus, templates.rank[templates.slot], host))
    slot = np.arange(len(all_residents)) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = (len(hosts), int(counts.max(initial=0)))

    def spread(values: NDArray[Any], filler: float) -> NDArray[Any]:
        grid = np.full((*shape, *values.shape[1:]), filler, dtype=values.dtype)
        grid[host, slot] = values[order]
        return grid

    def held(values: Floats) -> Floats:
        return np.bincount(host, weights=values[order], minlength=len(hosts)).astype(np.float64)

    def of_hosts(values: list[float]) -> Floats:
        return np.array(values, dtype=np.float64)

    templates_by_slot = spread(templates.slot, -1)
    scenes = given_own_cpus(
        replace(
            templates.scenes(templates_by_slot),
            vcpus=spread(vcpus, 0.0),
            load=spread(load, 0.0),
            cpu_demand=spread(demand, np.nan),
            device_demand=spread(of_devices.reshape(len(all_residents), len(DEVICES), len(DEVICE_DEMAND)), np.nan),
        )
    )
    demanded = demands(scenes)
    used_memory_mb = held(of_all("ordinary_memory_mb"))
    in_slot_order = iter([all_residents[position] for position in order.tolist()])
    return HostArrays(
        residents=tuple(tuple(islice(in_slot_order, count)) for count in counts.tolist()),
        scenes=scenes,
        used_vcpus=held(np.where(apart[host], vcpus - own, vcpus)),
        used_own=held(own),
        shared_pcpus=of_hosts([shared_pcpus_of(host) for host in hosts]),
        used_memory_mb=used_memory_mb,
        used_disk_gb=held(of_all("disk_gb")),
        room_vcpus=of_hosts([_room_vcpus(host, there) for host, there in zip(hosts, by_id, strict=True)]),
        room_own=of_hosts([room_own_of(host) for host in hosts]),
        room_memory_mb=_room_memory(hosts, used_memory_mb),
        room_disk_gb=of_hosts([np.inf if host.disk_gb is None else host.disk_gb for host in hosts]),
        room_driver_cpus=scenes.driver_cpus.sum(axis=1) * of_hosts([host.driver_overcommit for host in hosts]),
        driver_asked=demanded.driver,
        demand_sums=demand_sums(scenes, demanded),
        rooms=rooms(scenes),
        node_cpus=of_hosts([_node_cpus(host) for host in hosts]),
        node_memory_mb=of_hosts([_node_memory_mb(host) for host in hosts]),
        restrained=_restrained(scenes),
        enabled=np.array([host.enabled for host in hosts], dtype=bool),
        exclusive=held(of_all("exclusive")) > 0,
        min_ratio=spread(min_ratio, np.nan),
        max_latency=spread(max_latency, np.nan),
        max_short=spread(max_short, np.nan),
        fingerprints=fingerprints_of_hosts(
            templates.host_digests(),
            templates.digests[templates_by_slot],
            np.concatenate(
                [
                    np.stack([scenes.vcpus, scenes.load], axis=2),
                    scenes.cpu_demand,
                    scenes.device_demand.reshape(*scenes.present.shape, len(DEVICES) * len(DEVICE_DEMAND)),
                ],
                axis=2,
            ),
            counts,
            templates.table_digest,
        ),
    )


def _node_cpus(host: Host) -> float:
    """The shared pCPUs of the NUMA node that has most of them, inf where there is only one node."""
    if len(host.numa) < _MIN_NODES:
        return np.inf
    shared = frozenset(host.shared_cpus)
    return max(len(shared.intersection(node)) for node in host.numa)


def _node_memory_mb(host: Host) -> float:
    """The memory of one NUMA node but for huge pages, inf where there is only one node."""
    return np.inf if len(host.numa) < _MIN_NODES else host.ordinary_memory_mb / len(host.numa)


def shared_pcpus_of(host: Host) -> int:
    """How many pCPUs serve shared vCPUs; all where every one is isolated, for something runs there."""
    return len(host.shared_cpus) or (0 if host.dedicated_cpus else host.pcpus)


def room_own_of(host: Host) -> int:
    """How many dedicated vCPUs it has room for: those that it sets apart, else all that shared ones run on."""
    return len(host.dedicated_cpus) or shared_pcpus_of(host)


def _room_memory(hosts: Sequence[Host], used_mb: Floats) -> Floats:
    """Memory that may be promised, MB, (H,): a host that stalls for memory or swaps has room for what is there."""
    room = np.array([host.ordinary_memory_mb * host.memory_overcommit for host in hosts], dtype=np.float64)
    short = np.array([MEMORY_SHORT in host.labels for host in hosts], dtype=bool)
    return np.where(short, np.minimum(room, used_mb), room)


def _room_vcpus(host: Host, residents: Sequence[Instance]) -> float:
    """The vCPUs that may be promised: those on shared pCPUs, and what is pinned to isolated ones already."""
    if not host.isolated_cpus and not host.dedicated_cpus:
        return host.pcpus * host.cpu_overcommit
    apart = sum(promised_vcpus(host, one) for one in residents if host.isolates(one.settings.pinning))
    return len(host.shared_cpus) * host.cpu_overcommit + apart


def promised_vcpus(host: Host, instance: Instance) -> int:
    """What an instance takes of the vCPUs that a host promises: dedicated ones nothing where the host sets pCPUs apart
    for them."""
    return instance.shared_vcpus if host.dedicated_cpus else instance.vcpus


def share_promised(host: Host, instances: Sequence[Instance]) -> float:
    """vCPUs promised over pCPUs, both without isolated pCPUs and what is pinned there."""
    apart = [one for one in instances if host.isolated_cpus and host.isolates(one.settings.pinning)]
    promised = sum(one.vcpus for one in instances) - sum(one.vcpus for one in apart)
    return promised / ((host.pcpus - len(host.isolated_cpus)) or host.pcpus)


def _restrained(scenes: SceneBatch) -> Bools:
    """Where an instance has a cap, pins or a weight of its own, (H,)."""
    one = scenes.pinned | np.isfinite(scenes.cap) | (scenes.weight != DEFAULT_WEIGHT)
    return np.asarray((scenes.present & one).any(axis=1))


@dataclass(frozen=True, slots=True)
class _Templates:
    """The distinct hosts and residents, each laid out once as a scene of `batch`.

    `host` (H,) and `slot` (I,) are the template of each host and each resident. Resident templates are scenes with one
    slot; the last scene is empty. `rank` and `digests` (K, 16) belong to resident templates.
    """

    batch: SceneBatch
    host: Ints
    slot: Ints
    first: int  # position of the first resident template in `batch`
    rank: Ints
    digests: NDArray[np.uint8]
    hosts: tuple[Host, ...]  # one per template
    table_digest: bytes

    @classmethod
    def of(
        cls, hosts: Sequence[Host], residents: Sequence[Sequence[Instance]], table: ProfileTable, width: int
    ) -> _Templates:
        of_hosts: dict[tuple[Any, ...], int] = {}
        of_slots: dict[tuple[Any, ...], int] = {}
        empty: list[tuple[Host, Sequence[Instance]]] = []
        alone: list[tuple[Host, Sequence[Instance]]] = []
        host_at: list[int] = []
        slot_at: list[int] = []
        for host, residents_here in zip(hosts, residents, strict=True):
            kind = _host_kind(host)
            if kind not in of_hosts:
                of_hosts[kind] = len(empty)
                empty.append((host, ()))
            host_at.append(of_hosts[kind])
            where = (host.cpu_key, host.platform)
            for instance in residents_here:
                key = (where, _instance_kind(instance), table.subject(instance))
                template = of_slots.get(key)
                if template is None:
                    template = of_slots[key] = len(alone)
                    alone.append((host, (instance,)))
                slot_at.append(template)
        wide = Host("wide", "lxc", pcpus=width, memory_mb=1.0)
        batch = build_batch([*empty, *alone, (wide, ())], table)
        content = _contents(batch, len(empty), [host.pcpus for host, _ in alone])
        ranks = {description: number for number, description in enumerate(sorted(set(content)))}
        return cls(
            batch=batch,
            host=np.array(host_at, dtype=np.int64),
            slot=np.array(slot_at, dtype=np.int64),
            first=len(empty),
            rank=np.array([ranks[description] for description in content], dtype=np.int64),
            digests=np.array([list(digest(description)) for description in content], dtype=np.uint8).reshape(-1, SIZE),
            hosts=tuple(host for host, _ in empty),
            table_digest=table_fingerprint(table),
        )

    def scenes(self, at: Ints) -> SceneBatch:
        """One scene per host; `at` (H, N) is the template in each slot, -1 = empty."""
        filler = len(self.batch) - 1
        scene = np.where(at >= 0, at + self.first, filler)
        columns: dict[str, Any] = {name: getattr(self.batch, name)[self.host] for name in SCENE_FIELDS}
        for name in SLOT_FIELDS:
            values = getattr(self.batch, name)
            columns[name] = values[scene, 0] if self.batch.slots else values[self.host]
        return SceneBatch(table=self.batch.table, **columns)

    def host_digests(self) -> list[bytes]:
        kinds = [
            [float(value) if isinstance(value, int) else value for value in _host_kind(host)] for host in self.hosts
        ]
        digests = [digest(kind) for kind in kinds]  # so that 4 and 4.0 GB have one digest
        return [digests[template] for template in self.host.tolist()]


def _contents(batch: SceneBatch, first: int, pcpus: Sequence[int]) -> list[tuple[Any, ...]]:
    """A sortable description of each resident template: workload, profile, results that were posted of it, settings,
    pCPUs."""
    profiles: dict[int, bytes] = {}
    descriptions = []
    for scene, cpus in enumerate(pcpus, start=first):
        row = int(batch.profile[scene, 0])
        if row not in profiles:
            profiles[row] = profile_fingerprint(batch.table, row)
        numbers = [float(getattr(batch, name)[scene, 0]) for name in SETTING_FIELDS]
        affinity = np.packbits(batch.affinity[scene, 0, :cpus]).tobytes()
        subject = int(batch.subject[scene, 0])
        descriptions.append((batch.table.names[row], profiles[row], subject, *numbers, affinity))
    return descriptions
