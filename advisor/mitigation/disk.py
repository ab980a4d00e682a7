"""The mitigation step that limits the antagonist's disk, from the mildest limit to the strictest."""

from __future__ import annotations

import math
from dataclasses import replace

from advisor.mitigation.cpu import steps_down
from advisor.mitigation.limit_violation import LimitViolation
from advisor.mitigation.shared_host import Trial
from models.physics.demands import capacity
from profiler.host_kinds import TRAITS

DISK_STEP = 5  # % of what the disk can do


def limits(violation: LimitViolation) -> list[Trial]:
    """Limits of the antagonist's reading plus writing, from below its use down to what its own limit needs.

    A container's control group limits each direction separately, so simultaneous reads and writes may reach twice as
    much. A limit mitigates but does not remove interference, because the disk still serves requests in turn (finding
    L6). Xen's block backend has no such setting.
    """
    if violation.antagonist is None or not TRAITS[violation.shared.host.kind].disk_limit:
        return []
    antagonist, settings = violation.party(violation.antagonist), violation.settings(violation.antagonist)
    disk_mb_s = float(capacity(violation.shared.scenes([Trial()]), "disk_mb_s")[0])
    share = float(violation.want.disk[0, violation.antagonist])
    if disk_mb_s <= 0 or share <= 0:
        return []
    top = min(share, (settings.disk_limit_mb_s or math.inf) / disk_mb_s)
    each_way = ", reading and writing each," if TRAITS[violation.shared.host.kind].disk_limit_each_way else ""
    trials = []
    for percent in steps_down(100 * top, 100 * share * (antagonist.min_throughput_ratio or 0.0), DISK_STEP):
        limit = max(round(disk_mb_s * percent / 100, 1), 0.1)
        text = (
            f"Limit the disk of {antagonist.id} to {limit:g} MB/s{each_way} (it mitigates, turns still alternate, L6)"
        )
        trials.append(violation.trial(text, {violation.antagonist: replace(settings, disk_limit_mb_s=limit)}))
    return trials
