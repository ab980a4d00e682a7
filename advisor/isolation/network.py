"""Rungs of the ladder that touch the network: traffic classes on the uplink, and the hint about vhost threads."""

from __future__ import annotations

from dataclasses import replace

from advisor.domain import Host, Instance
from advisor.isolation.cpu import steps_down
from advisor.isolation.shared_host import Trial
from advisor.isolation.standing import Standing
from profiler.observed import NetMode, NetworkSettings

RATE_STEP = 5  # % of the link
MARGIN = 1.1  # HTB holds a rate within 10 % (finding L7)
LEAST_MBIT = 0.1  # of a class: rates are written with one digit


def uplink_class(host: Host, newcomer: Instance, share: float) -> NetworkSettings | None:
    """A shared HTB class for an instance on a contended link: its fair `share` sure, the whole link when it is free.

    Never leave the uplink unshaped beside a bulk sender: all queries time out without tc (finding L9).
    """
    if not host.nic_mbit or _shaped(newcomer.settings.network):
        return None
    return NetworkSettings("shared", round(max(host.nic_mbit * share, 1.0), 1), host.nic_mbit)


def classes(standing: Standing) -> list[Trial]:
    """A class of its own for the sufferer, from a small rate to what it needs; then a rate for the culprit, from just
    below what it sends down to what its own limit needs, alone and with a class for the sufferer in what is left.

    Who minds jitter and time-outs shares the slack, who minds the mean keeps to its rate (findings L9, L10); the other
    mode is tried after that one. A class that holds a culprit back is dedicated: its ceiling is its rate.
    """
    host, culprit, sufferer = standing.shared.host, standing.culprit, standing.sufferer
    if culprit is None or not host.nic_mbit or standing.want.net[0, culprit] <= 0:
        return []
    name, now = standing.party(sufferer).id, standing.settings(sufferer)
    need = MARGIN * float(standing.want.net[0, sufferer])
    room = host.nic_mbit - _sure(standing)
    may = need > 0 and room >= LEAST_MBIT and not _shaped(now.network)
    modes: tuple[NetMode, NetMode] = ("shared", "dedicated")
    if standing.party(sufferer).service != "latency":
        modes = ("dedicated", "shared")
    found = []
    for mode in modes if may else ():
        for rate in _rates_up(host.nic_mbit, need, room):
            own = _class(mode, rate, host.nic_mbit)
            says = f"Give {name} a {mode} traffic class of {own.rate_mbit:g} Mbit/s ({_why(mode)})"
            found.append(standing.trial(says, {sufferer: replace(now, network=own)}))
    held, theirs = standing.party(culprit), standing.settings(culprit)
    sends = float(standing.want.net[0, culprit])
    top = min(sends, _most(theirs.network))
    floor = sends * (held.min_throughput_ratio or 0.0)
    for percent in steps_down(100 * top / host.nic_mbit, 100 * floor / host.nic_mbit, RATE_STEP):
        rate = round(host.nic_mbit * percent / 100, 1)
        held_back = {culprit: replace(theirs, network=_held(theirs.network, rate))}
        says = f"Hold {held.id} to {rate:g} Mbit/s"
        found.append(standing.trial(says, held_back))
        left = room - rate if not _shaped(theirs.network) else room
        if may and left >= LEAST_MBIT:
            own = _class(modes[0], min(need, left), host.nic_mbit)
            says += f" and give {name} a {modes[0]} class of {own.rate_mbit:g} Mbit/s ({_why(modes[0])})"
            found.append(standing.trial(says, {**held_back, sufferer: replace(now, network=own)}))
    return found


def vhost_hint(standing: Standing) -> str | None:
    """What helps small packets on KVM and no model here predicts, where link or driver domain is what limits."""
    if standing.shared.host.kind != "kvm" or standing.resource not in {"nic", "driver_domain"}:
        return None
    party = standing.party(standing.sufferer)
    queues = f" and give its card {party.vcpus} queues" if party.vcpus > 1 else ""
    return (
        f"Not predicted, worth measuring: let vhost-net threads with CPUs of their own carry the packets of {party.id}"
        f"{queues}; vhost-net instead of userspace virtio gave 43 % more (C4)."
    )


def _shaped(network: NetworkSettings | None) -> bool:
    return network is not None and network.mode != "none"


def _most(network: NetworkSettings | None) -> float:
    """What a class lets through, Mbit/s."""
    if network is None or network.mode == "none":
        return float("inf")
    most = network.rate_mbit if network.mode == "dedicated" else network.ceil_mbit
    return float("inf") if most is None else most


def _held(network: NetworkSettings | None, rate: float) -> NetworkSettings:
    """A class that lets no more than `rate` through and is nowhere looser than the one there is."""
    if network is None or network.mode == "none":
        return NetworkSettings("dedicated", rate, rate)
    return NetworkSettings(network.mode, min(network.rate_mbit or rate, rate), rate)


def _class(mode: NetMode, rate: float, link: float) -> NetworkSettings:
    rate = max(round(rate, 1), LEAST_MBIT)
    return NetworkSettings(mode, rate, max(link, rate) if mode == "shared" else rate)


def _sure(standing: Standing) -> float:
    """What classes of the others are sure of already, Mbit/s: what is promised twice is sure for nobody."""
    networks = [standing.settings(at).network for at in range(len(standing.shared.parties)) if at != standing.sufferer]
    return sum(one.rate_mbit or 0.0 for one in networks if one is not None and one.mode != "none")


def _rates_up(link: float, need: float, room: float) -> list[float]:
    """Rates in steps of the link up to what is needed, then doubled up to half of the link, within `room`; Mbit/s.

    More than what is needed is for packets that come at once: they leave at the rate of their class.
    """
    steps = [link * percent / 100 for percent in range(RATE_STEP, 101, RATE_STEP)]
    rates = [*(rate for rate in steps if rate < need), need]
    while rates[-1] * 2 <= link / 2:
        rates.append(rates[-1] * 2)
    return [rate for rate in rates if rate <= room] or [room]


def _why(mode: NetMode) -> str:
    return "less jitter and fewer time-outs, L9" if mode == "shared" else "a lower mean at more jitter, L9"
