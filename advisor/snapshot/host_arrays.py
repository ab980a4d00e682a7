"""HostArrays: hosts and residents as arrays, in which single rows can be replaced."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.domain import Instance
from models.arrays import Bools, Floats, Ints, axis_fields, over
from models.data.scene import EMPTY_SLOT, SCENE_FIELDS, SLOT_FIELDS, SceneBatch

Bytes = NDArray[np.bytes_]


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


def _with_slot_count(values: NDArray[Any], slots: int, filler: Any) -> NDArray[Any]:
    """The same with that many slots, (H, slots, ...); cut-off slots are empty."""
    missing = slots - values.shape[1]
    if missing <= 0:
        return values[:, :slots]
    return np.concatenate(
        [values, np.full((len(values), missing, *values.shape[2:]), filler, dtype=values.dtype)], axis=1
    )
