"""The rung of the ladder that limits the culprit's disk, from the mildest limit to the strictest."""

from __future__ import annotations

import math
from dataclasses import replace

from advisor.mitigation.cpu import steps_down
from advisor.mitigation.limit_violation import Standing
from advisor.mitigation.shared_host import Trial
from models.physics.demands import capacity
from profiler.host_kinds import TRAITS

DISK_STEP = 5  # % of what the disk can do


def limits(standing: Standing) -> list[Trial]:
    """Limits of the culprit's reading plus writing, from below what it moves down to what its own limit needs.

    A container's control group limits each way by itself, so that who reads and writes at once may reach twice as much.

    A limit mitigates and does not remove: the disk still serves whose turn it is (finding L6). Xen's block backend has
    no such setting.
    """
    if standing.culprit is None or not TRAITS[standing.shared.host.kind].disk_limit:
        return []
    culprit, settings = standing.party(standing.culprit), standing.settings(standing.culprit)
    most = float(capacity(standing.shared.scenes([Trial()]), "disk_mb_s")[0])
    share = float(standing.want.disk[0, standing.culprit])
    if most <= 0 or share <= 0:
        return []
    top = min(share, (settings.disk_limit_mb_s or math.inf) / most)
    each = (
        ", reading and writing each," if TRAITS[standing.shared.host.kind].disk_limit_each_way else ""
    )  # as control groups count
    found = []
    for percent in steps_down(100 * top, 100 * share * (culprit.min_throughput_ratio or 0.0), DISK_STEP):
        limit = max(round(most * percent / 100, 1), 0.1)
        says = f"Limit the disk of {culprit.id} to {limit:g} MB/s{each} (it mitigates, turns still alternate, L6)"
        found.append(standing.trial(says, {standing.culprit: replace(settings, disk_limit_mb_s=limit)}))
    return found
