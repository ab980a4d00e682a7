"""Rows: hosts and who is on them as arrays, of which a few rows are exchanged without making the others again."""

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
_PER_SLOT = {"driver_asked": 0.0, "min_ratio": np.nan, "max_latency": np.nan}  # with what stands where nobody sits


@dataclass(frozen=True, slots=True)
class Rows:
    """H hosts with up to N residents each.

    `residents[h]` are in the order of the slots of scene h of `scenes`: by what they are (workload, profile, vCPUs,
    load, settings, limits) and only then by id, so that hosts alike are arrays alike. `used_*` (H,) is what residents
    hold, `room_*` (H,) how much of it may be promised there, inf = nobody knows. `driver_asked` (H, N) is what each
    asks of the driver domain when it has the host to itself, in CPUs, 0 = nothing or unknown. `min_ratio` and
    `max_latency` (H, N) are their limits, nan = none. Equal `fingerprints` (H,) mean equal predictions.
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
    enabled: Bools
    exclusive: Bools
    min_ratio: Floats
    max_latency: Floats
    fingerprints: Bytes


def exchanged(old: Rows, source: Ints, new: Rows, at: Ints) -> Rows:
    """Rows `source` (H,) of `old`, -1 = none, with those at `at` taken from `new`: the same as if all were new.

    Both have the same profiles, by the table of `new`, and scenes of the same width.
    """
    stays = np.ones(len(source), dtype=bool)
    stays[at] = False
    kept = old.scenes.present[source[stays]].sum(axis=1)
    slots = max(int(kept.max(initial=0)), new.scenes.slots)
    in_place = len(source) == len(old.residents) and bool((source == np.arange(len(source))).all())

    def exchange(before: NDArray[Any], after: NDArray[Any]) -> NDArray[Any]:
        kind = np.promote_types(before.dtype, after.dtype)  # a longer name of a platform needs more room
        out = before.astype(kind) if in_place else before[source].astype(kind, copy=False)
        out[at] = after
        return out

    def exchange_slots(before: NDArray[Any], after: NDArray[Any], nobody: Any) -> NDArray[Any]:
        return exchange(_fit(before, slots, nobody), _fit(after, slots, nobody))

    nobody = _nobody(new.scenes.table, new.scenes.driver_cpus.shape[1])
    scenes = SceneBatch(
        table=new.scenes.table,
        **{name: exchange(getattr(old.scenes, name), getattr(new.scenes, name)) for name in HOST_FIELDS},
        **{
            name: exchange_slots(getattr(old.scenes, name), getattr(new.scenes, name), getattr(nobody, name)[0, 0])
            for name in SLOT_FIELDS
        },
    )
    residents = [old.residents[one] if one >= 0 else () for one in source.tolist()]
    for place, there in zip(at.tolist(), new.residents, strict=True):
        residents[place] = there
    arrays = {}
    for name in (field.name for field in fields(Rows) if field.name not in {"residents", "scenes"}):
        before, after = getattr(old, name), getattr(new, name)
        arrays[name] = exchange_slots(before, after, _PER_SLOT[name]) if name in _PER_SLOT else exchange(before, after)
    return Rows(residents=tuple(residents), scenes=scenes, **arrays)


def _nobody(table: ProfileTable, width: int) -> SceneBatch:
    """A scene with one slot where nobody sits, the first of two: the other makes it have a slot at all."""
    host = Host("any", "lxc", pcpus=width, memory_mb=1.0)
    return build_batch([(host, ()), (host, (Instance("any"),))], table)


def _fit(values: NDArray[Any], slots: int, nobody: Any) -> NDArray[Any]:
    """The same with that many slots: (H, slots, ...); what is cut off is empty."""
    missing = slots - values.shape[1]
    if missing <= 0:
        return values[:, :slots]
    return np.concatenate(
        [values, np.full((len(values), missing, *values.shape[2:]), nobody, dtype=values.dtype)], axis=1
    )
