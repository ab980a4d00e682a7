"""The mitigation step that changes the CPUs of the host's driver domain."""

from __future__ import annotations

import numpy as np

from advisor.mitigation.limit_violation import LimitViolation
from advisor.mitigation.shared_host import Trial
from profiler.host_kinds import TRAITS
from profiler.observed import format_cpus


def driver_cpus(violation: LimitViolation) -> list[Trial]:
    """One CPU for the driver domain alone, the one with least guest demand; then one more than it has.

    The single CPU comes first, because every further CPU makes pages dearer, above all for CPU-bound guests (finding
    N11). A container host has no driver domain.
    """
    host = violation.shared.host
    if not TRAITS[host.kind].has_driver_domain or host.pcpus < 2 or not violation.want.driver.any():
        return []
    scene = violation.shared.scenes([violation.trial("", {})])
    allowed = scene.affinity[0].astype(float)
    asked = np.minimum(violation.want.cpu[0], scene.cap[0]) / np.maximum(allowed.sum(axis=1), 1)
    crowd = np.round(asked @ allowed, 9)
    load = dict(zip(host.cpus, crowd.tolist(), strict=False))
    quiet = sorted(host.shared_cpus or host.cpus, key=lambda cpu: (load[cpu], cpu))
    now = set(host.driver_cpus) or set(host.shared_cpus or host.cpus)
    trials = []
    if now != {quiet[0]}:
        note = " (fewer CPUs make its events cheaper, N11)" if TRAITS[host.kind].events_grow else ""
        text = f"Keep the driver domain to CPU {quiet[0]} alone{note}"
        trials.append(Trial(text, violation.changes, (quiet[0],)))
    further = [cpu for cpu in quiet if cpu not in now]
    if further:
        more = tuple(sorted({*now, further[0]}))
        text = f"Give the driver domain one CPU more, CPUs {format_cpus(more)}"
        trials.append(Trial(f"{text} (more is not better for CPU-bound guests, N11)", violation.changes, more))
    return trials
