"""Why a candidate stands where it stands: which resource, which neighbour, how much; plain sentences and numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.domain import Instance, Reason
from models.prior import RESOURCES, PriorResult

Floats = NDArray[np.float64]

WORTH_NAMING = 0.005  # of log T/B; smaller losses are not worth a sentence
_NAMES = {
    "cpu": "CPU",
    "driver_domain": "driver domain",
    "nic": "network link",
    "disk": "disk",
    "memory": "memory bandwidth",
}
_WHY = {
    "cpu": "both want the same CPUs",
    "driver_domain": "both feed pages through the driver domain, which is one shared server",
    "nic": "both want the link; switches and events rise with them",
    "disk": "both keep the disk busy",
    "memory": "both stream from memory",
}


def reasons(
    prior: PriorResult,
    scene: int,
    residents: tuple[Instance, ...],
    slots: list[int],
    common_cpus: Sequence[float] | None = None,
) -> tuple[Reason, ...]:
    """Reasons for one scene whose last slot is the newcomer; `slots[i]` is the slot of `residents[i]`, `common_cpus[i]`
    how many of the newcomer's pCPUs it may use (None = everybody may use all).

    The loss of each resource is -log of how far it alone would let the newcomer and its neighbours go, by the queueing
    prior; shares add to 1 over the resources named. The neighbour named presses hardest on that resource.
    """
    last = prior.limits.shape[1] - 1
    involved = [*slots, last]
    losses = (-np.log(np.clip(prior.limits[scene, involved, :], 1e-3, 1.0))).max(axis=0)
    named = [resource for resource in range(len(RESOURCES)) if losses[resource] > WORTH_NAMING]
    if not named:
        alone = "it would be alone on this host" if not residents else "nobody wants what another one needs"
        return (Reason("none", 0.0, f"No contention is expected: {alone}."),)
    total = float(sum(losses[resource] for resource in named))
    wants = (prior.demands.cpu, prior.demands.driver, prior.demands.net, prior.demands.disk, prior.demands.memory)
    found = []
    for resource in sorted(named, key=lambda one: -losses[one]):
        presses = [
            (float(wants[resource][scene, slot]), one.id)
            for at, (slot, one) in enumerate(zip(slots, residents, strict=True))
            if RESOURCES[resource] != "cpu" or common_cpus is None or common_cpus[at] > 0
        ]
        pressing = max(presses, default=(0.0, ""))
        neighbour = pressing[1] if pressing[0] > 0 else None
        name = RESOURCES[resource]
        slowed = 1 - float(np.exp(-losses[resource]))
        who = f", most of all with {neighbour}: {_WHY[name]}" if neighbour else ""
        text = f"The {_NAMES[name]} costs the worst-off up to {slowed:.0%}{who}."
        found.append(Reason(name, round(float(losses[resource]) / total, 3), text, neighbour))
    return tuple(found)


def compared(best: str, runner_up: str, gap: float, *, tie: bool) -> Reason:
    """How the best candidate compares with the next one."""
    if tie:
        text = f"{best} and {runner_up} are tied: their difference ({gap:+.3f}) lies inside the uncertainty."
    else:
        text = f"{best} is ahead of {runner_up} by {gap:.3f}, more than the uncertainty of both."
    return Reason("comparison", 0.0, text)
