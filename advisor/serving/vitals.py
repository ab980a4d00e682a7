"""Vitals: what the service tells of its own state to whoever watches it; read at the moment, nothing is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from advisor.domain import EVIDENCE_LEVELS, evidence_counts
from advisor.inventories.announced import DISAGREEMENT
from advisor.prediction.active import ActivePredictor
from advisor.serving.snapshot_cache import CloudView


@dataclass(frozen=True, slots=True)
class Vitals:
    """The cloud and the model that answer now.

    `hosts_without_data` were not seen for as long as is allowed and are rejected for that; `pending` answers hold their
    hosts; `demand` counts instances by what is known of their demand for CPUs (EVIDENCE_LEVELS); `found` and `missed`
    count what the model was to be asked and was remembered or not, since it answers; `alarms` counts those that stand
    by cause; `disagreements` are hosts on which sources differ, with one sentence each.
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
    alarms: Mapping[str, int]
    disagreements: Mapping[str, str]


def take(view: CloudView, chosen: ActivePredictor, *, now: datetime, fresh_s: float) -> Vitals:
    """The vitals of a view and a predictor at `now`."""
    found, missed = chosen.remembered.counts()
    return Vitals(
        generation=view.counts.inventory,
        hosts=len(view.inventory.hosts),
        hosts_without_data=int(np.count_nonzero(view.snapshot.is_silent(fresh_s))),
        snapshot_age_s=max((now - view.snapshot.taken_at).total_seconds(), 0.0),
        pending=len(view.pending),
        demand=_demand(view),
        model=chosen.predictor.version,
        origin=chosen.predictor.origin,
        degraded=chosen.degraded,
        found=found,
        missed=missed,
        alarms=Counter(alarm.cause for alarm in view.alarms),
        disagreements={
            host.id: host.labels[DISAGREEMENT] for host in view.inventory.hosts if DISAGREEMENT in host.labels
        },
    )


def _demand(view: CloudView) -> Mapping[str, int]:
    counts = evidence_counts(map(view.snapshot.with_class, view.inventory.instances), view.snapshot.names.profiled)
    return {level: counts.get(level, 0) for level in EVIDENCE_LEVELS}
