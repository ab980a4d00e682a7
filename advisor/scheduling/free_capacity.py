"""The rule that schedulers go by without advice: most is free."""

from __future__ import annotations

import numpy as np

from advisor.domain import PlacementRequest
from advisor.scheduling import filters
from advisor.snapshot import ClusterSnapshot
from models.arrays import Floats


def most_free(snapshot: ClusterSnapshot, request: PlacementRequest, *, fresh_s: float) -> str | None:
    """The host that Nova's default CPU and RAM weighers would choose of those that can take the instance, which does
    not count where it is already; None = none can.

    Free vCPUs and free memory, of what may be promised, are scaled to 0-1 over these hosts and weighted equally
    (nova/weights.py, nova/scheduler/weights/{cpu,ram}.py); of equals the first.
    """
    feasible, _ = filters.apply(snapshot, request, fresh_s=fresh_s)
    if not feasible:
        return None
    at, held = np.array(feasible), filters.FilterInput.of(snapshot, request, fresh_s)
    vcpus = snapshot.room_vcpus[at] - held.vcpus[at]
    memory_mb = snapshot.room_memory_mb[at] - held.memory_mb[at]
    weight = np.round(_scaled(vcpus) + _scaled(memory_mb), 9)
    return snapshot.hosts[int(at[weight.argmax()])].id


def _scaled(values: Floats) -> Floats:
    width = values.max() - values.min()
    return np.asarray((values - values.min()) / width if width else np.zeros(len(values)))
