"""The rung of the ladder that changes the host: on which CPUs its driver domain runs."""

from __future__ import annotations

import numpy as np

from advisor.mitigation.limit_violation import Standing
from advisor.mitigation.shared_host import Trial
from profiler.host_kinds import TRAITS
from profiler.observed import format_cpus


def driver_cpus(standing: Standing) -> list[Trial]:
    """A CPU of its own for the driver domain, the one that guests want least; then one more than it has.

    First of its own: every further CPU makes pages dearer, above all for CPU-bound guests (finding N11). A container's
    host has no driver domain.
    """
    host = standing.shared.host
    if not TRAITS[host.kind].has_driver_domain or host.pcpus < 2 or not standing.want.driver.any():
        return []
    scene = standing.shared.scenes([standing.trial("", {})])
    may = scene.affinity[0].astype(float)
    asked = np.minimum(standing.want.cpu[0], scene.cap[0]) / np.maximum(may.sum(axis=1), 1)
    crowd = np.round(asked @ may, 9)
    quiet = sorted(range(host.pcpus), key=lambda cpu: (crowd[cpu], cpu))
    now = set(host.driver_cpus) or set(range(host.pcpus))
    found = []
    if now != {quiet[0]}:
        note = " (fewer CPUs make its events cheaper, N11)" if TRAITS[host.kind].events_grow else ""
        says = f"Keep the driver domain to CPU {quiet[0]} alone{note}"
        found.append(Trial(says, standing.changes, (quiet[0],)))
    further = [cpu for cpu in quiet if cpu not in now]
    if further:
        more = tuple(sorted({*now, further[0]}))
        says = f"Give the driver domain one CPU more, CPUs {format_cpus(more)}"
        found.append(Trial(f"{says} (more is not better for CPU-bound guests, N11)", standing.changes, more))
    return found
