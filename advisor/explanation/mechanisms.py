"""The five resources in words: names, demands, and the finding with the mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from advisor.domain import Host, Instance
from profiler.host_kinds import TRAITS

SlowBy = Literal["", "siblings", "clock", "flushes"]  # what slows a CPU beside want of its time
NAMES = {
    "cpu": "CPU",
    "driver_domain": "driver domain",
    "nic": "network link",
    "disk": "disk",
    "memory": "memory bandwidth",
}

BULK = 0.5  # share of the link; two such demands are the papers' network-bound pairs


@dataclass(frozen=True, slots=True)
class ResourceDemand:
    """The demand of an instance on a resource: CPUs, Mbit/s, or a share of the disk or of the memory bandwidth.

    `pages` = it exchanges pages through the driver domain.
    """

    instance: Instance
    amount: float
    pages: bool


def demand_text(resource: str, press: ResourceDemand) -> str:
    """The demand in the unit of the resource."""
    if resource in {"cpu", "driver_domain"}:
        return f"{press.instance.id} asks for {press.amount:.2f} CPUs of it"
    if resource == "nic":
        return f"{press.instance.id} asks for {press.amount:.0f} Mbit/s of it"
    return f"{press.instance.id} asks for {press.amount:.0%} of it"


def mechanism(
    resource: str, host: Host, victim: ResourceDemand, presses: ResourceDemand, slow_by: SlowBy
) -> tuple[str, str]:
    """The finding that shows the same effect ("" = none) and the mechanism in words."""
    if resource == "cpu" and slow_by == "clock":
        return "", "the clock is lower while more cores are busy"
    if resource == "cpu" and slow_by == "flushes":
        return "", "each write that it waits for comes back at the next tick of the busy CPU's clock"
    if resource == "cpu" and slow_by:
        return "", "their vCPUs run on two threads of one core"
    if resource == "cpu":
        if victim.pages and presses.pages:
            return "N5", "both exchange pages and wait for one CPU"
        return "L8", "both take turns on the same CPUs"
    if resource == "driver_domain":
        if TRAITS[host.kind].driver_servers == 1:
            return "N9", "one driver domain moves the pages of all instances"
        return "C4", "vhost and emulator threads move the packets of all instances"
    if resource == "nic":
        if victim.instance.service == "latency":
            return "L9", "its packets wait behind what others send"
        fill = min(victim.amount, presses.amount) >= BULK * (host.nic_mbit or np.inf)
        return ("N6", "both fill one link") if fill else ("", "both use one link")
    if resource == "disk":
        return "L6", "the disk serves all instances in turn"
    return "", "all instances stream from the same memory"
