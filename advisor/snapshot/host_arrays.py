"""HostArrays: hosts and residents as arrays, in which single rows can be replaced."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.domain import Host, Instance
from models.arrays import Bools, Floats, Ints
from models.data.scene import ProfileTable, SceneBatch, build_batch, slot_values

Bytes = NDArray[np.bytes_]

SLOT_FIELDS = tuple(slot_values(Instance("any"), 0, 1, 1))
HOST_FIELDS = tuple(field.name for field in fields(SceneBatch) if field.name not in {"table", *SLOT_FIELDS})
_SLOT_FILL = {  # field: value of an empty slot
    "driver_asked": 0.0,
    "min_ratio": np.nan,
    "max_latency": np.nan,
    "max_short": np.nan,
}


@dataclass(frozen=True, slots=True)
class HostArrays:
    """H hosts with up to N residents each.

    `residents[h]` are in the slot order of scene h: by workload, profile, vCPUs, load, settings and limits, then by
    id, so that equal hosts have equal arrays. `used_*` (H,) is what residents hold, `room_*` (H,) what may be
    promised, inf = unknown. `driver_asked` (H, N) is each resident's demand on the driver domain alone, in CPUs, 0 =
    none or unknown. `demand_sums` (H, 4, 16) is what all together ask for (models.physics.peak_demand), and
    `rooms` (H, 4) what there is of it. `node_cpus` and `node_memory_mb` (H,) are of the largest NUMA node, inf where
    there is only one. `restrained` (H,) = somebody has a cap, pins or a weight of its own. `min_ratio`,
    `max_latency` and `max_short` (H, N) are limits, nan = none. Equal `fingerprints` (H,) mean equal predictions.
    """

    residents: tuple[tuple[Instance, ...], ...]
    scenes: SceneBatch
    used_vcpus: Floats
    used_memory_mb: Floats
    used_disk_gb: Floats
    room_vcpus: Floats
    room_memory_mb: Floats
    room_disk_gb: Floats
    room_driver_cpus: Floats
    driver_asked: Floats
    demand_sums: Floats
    rooms: Floats
    node_cpus: Floats
    node_memory_mb: Floats
    restrained: Bools
    enabled: Bools
    exclusive: Bools
    min_ratio: Floats
    max_latency: Floats
    max_short: Floats
    fingerprints: Bytes


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

    def exchange_slots(before: NDArray[Any], after: NDArray[Any], nobody: Any) -> NDArray[Any]:
        return exchange(_with_slot_count(before, slots, nobody), _with_slot_count(after, slots, nobody))

    nobody = _empty_slot_scene(new.scenes.table, new.scenes.driver_cpus.shape[1])
    scenes = SceneBatch(
        table=new.scenes.table,
        **{name: exchange(getattr(old.scenes, name), getattr(new.scenes, name)) for name in HOST_FIELDS},
        **{
            name: exchange_slots(getattr(old.scenes, name), getattr(new.scenes, name), getattr(nobody, name)[0, 0])
            for name in SLOT_FIELDS
        },
    )
    residents = [old.residents[row] if row >= 0 else () for row in source.tolist()]
    for place, new_residents in zip(positions.tolist(), new.residents, strict=True):
        residents[place] = new_residents
    arrays = {}
    for name in (field.name for field in fields(HostArrays) if field.name not in {"residents", "scenes"}):
        before, after = getattr(old, name), getattr(new, name)
        arrays[name] = (
            exchange_slots(before, after, _SLOT_FILL[name]) if name in _SLOT_FILL else exchange(before, after)
        )
    return HostArrays(residents=tuple(residents), scenes=scenes, **arrays)


def _empty_slot_scene(table: ProfileTable, width: int) -> SceneBatch:
    """A scene with one empty slot; the second scene only gives the batch a slot."""
    host = Host("any", "lxc", pcpus=width, memory_mb=1.0)
    return build_batch([(host, ()), (host, (Instance("any"),))], table)


def _with_slot_count(values: NDArray[Any], slots: int, nobody: Any) -> NDArray[Any]:
    """The same with that many slots, (H, slots, ...); cut-off slots are empty."""
    missing = slots - values.shape[1]
    if missing <= 0:
        return values[:, :slots]
    return np.concatenate(
        [values, np.full((len(values), missing, *values.shape[2:]), nobody, dtype=values.dtype)], axis=1
    )
