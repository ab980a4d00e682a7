"""Vitals: what the service tells of its own state to whoever watches it; read at the moment, nothing is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from advisor.prediction.active import ActivePredictor
from advisor.serving.snapshot_cache import CloudView


@dataclass(frozen=True, slots=True)
class Vitals:
    """The cloud and the model that answer now.

    `hosts_without_data` were not seen for as long as `fresh_s` allows and are rejected for that; `pending` answers hold
    their hosts; `demand` counts instances by where their demand for CPUs is known from: measured, given, profile of
    their workload, unknown; `found` and `missed` count what the model was to be asked and was remembered or not, since
    it answers.
    """

    generation: int
    hosts: int
    hosts_without_data: int
    snapshot_age_s: float
    pending: int
    demand: Mapping[str, int]
    model: str
    origin: str
    degraded: bool
    found: int
    missed: int


def take(view: CloudView, chosen: ActivePredictor, *, now: datetime, fresh_s: float) -> Vitals:
    """The vitals of a view and a predictor at `now`."""
    found, missed = chosen.remembered.counts()
    return Vitals(
        generation=view.counts.inventory,
        hosts=len(view.inventory.hosts),
        hosts_without_data=int(np.count_nonzero(view.snapshot.silent_s > fresh_s)),
        snapshot_age_s=max((now - view.snapshot.taken_at).total_seconds(), 0.0),
        pending=len(view.pending),
        demand=_demand(view),
        model=chosen.predictor.version,
        origin=chosen.predictor.origin,
        degraded=chosen.degraded,
        found=found,
        missed=missed,
    )


def _demand(view: CloudView) -> Mapping[str, int]:
    profiled = {workload.name for workload in view.inventory.workloads}
    found = Counter({"measured": 0, "given": 0, "profile": 0, "unknown": 0})
    for one in view.inventory.instances:
        cpu = one.demand.get("cpu")
        if cpu is not None:
            found["measured" if cpu.origin == "measured" else "given"] += 1
        else:
            found["profile" if one.workload in profiled else "unknown"] += 1
    return found
