"""The isolation ladder for a newcomer: settings to try, from cheap to dear, where a placement alone breaks a limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from advisor.domain import Host, Instance, IsolationSettings
from profiler.observed import DEFAULT_WEIGHT, NetworkSettings

CAP_STEPS = (0.75, 0.5, 0.25)  # of its vCPUs; caps act linearly (finding L5)
RATE_STEPS = (0.5, 0.25)  # of the link; HTB holds a rate within 10 % (finding L7)


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the ladder: what it is called and the settings it gives the newcomer."""

    name: str
    settings: IsolationSettings


def ladder(host: Host, newcomer: Instance) -> Iterator[Rung]:
    """Settings for the newcomer in order of cost: weight, cap, tc class. Settings it has already are kept.

    Weights come first because they cost nothing while CPUs are idle, though they are no shares (finding L4). A class
    shares the slack (`shared`, ceil = link) for an instance that minds jitter and time-outs, and keeps to its rate
    (`dedicated`) for one that minds throughput of the others more than its own (findings L9, L10).
    """
    now = newcomer.settings
    if now.weight is None:
        yield Rung("half weight", replace(now, weight=DEFAULT_WEIGHT // 2))
    if now.cap_percent is None:
        for step in CAP_STEPS:
            yield Rung(f"cap {step:.0%}", replace(now, cap_percent=round(100 * newcomer.vcpus * step, 1)))
    if host.nic_mbit and (now.network is None or now.network.mode == "none"):
        for step in RATE_STEPS:
            rate = round(host.nic_mbit * step, 1)
            yield Rung(f"tc class {rate:g} Mbit/s", replace(now, network=NetworkSettings("dedicated", rate, rate)))


def uplink_class(host: Host, newcomer: Instance, share: float) -> NetworkSettings | None:
    """A shared HTB class for an instance on a contended link: its fair `share` sure, the whole link when it is free.

    Never leave the uplink unshaped beside a bulk sender: all queries time out without tc (finding L9).
    """
    network = newcomer.settings.network
    if not host.nic_mbit or (network is not None and network.mode != "none"):
        return None
    return NetworkSettings("shared", round(max(host.nic_mbit * share, 1.0), 1), host.nic_mbit)
