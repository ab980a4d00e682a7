"""Rungs of the ladder that touch the network: traffic classes on the uplink, and the hint about vhost threads."""

from __future__ import annotations

import math
from dataclasses import replace

from advisor.mitigation.cpu import steps_down
from advisor.mitigation.limit_violation import Standing
from advisor.mitigation.shared_host import Trial
from advisor.render.policing import policed
from advisor.render.tc import is_shaped
from models.physics.htb import UNSHAPED_SHARE
from profiler.observed import NetMode, NetworkSettings

RATE_STEP = 5  # % of the link
MARGIN = 1.1  # HTB holds a rate within 10 % (finding L7)
LEAST_MBIT = 0.1  # of a class: rates are written with one digit


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
    room = _room(standing)
    may = need > 0 and not is_shaped(now.network)
    modes: tuple[NetMode, NetMode] = ("shared", "dedicated")
    if standing.party(sufferer).service != "latency":
        modes = ("dedicated", "shared")
    found = []
    for mode in modes if may and room >= LEAST_MBIT else ():
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
        left = _room(standing, held_to=rate)
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


def _most(network: NetworkSettings | None) -> float:
    """What a class lets through, Mbit/s."""
    limit = policed(network)
    return math.inf if limit is None else limit.kbit_s / 1000


def _held(network: NetworkSettings | None, rate: float) -> NetworkSettings:
    """A class that lets no more than `rate` through and is nowhere looser than the one there is."""
    if network is None or network.mode == "none":
        return NetworkSettings("dedicated", rate, rate)
    return NetworkSettings(network.mode, min(network.rate_mbit or rate, rate), rate)


def _class(mode: NetMode, rate: float, link: float) -> NetworkSettings:
    rate = max(round(rate, 1), LEAST_MBIT)
    return NetworkSettings(mode, rate, max(link, rate) if mode == "shared" else rate)


def _room(standing: Standing, held_to: float | None = None) -> float:
    """What is left of the line for a class of the sufferer, Mbit/s: what is promised twice is sure for nobody.

    Promised are the rates of the other classes, that of the culprit's where it is `held_to` one, and, where anybody
    stays without a class, what the tree keeps for those.
    """
    promised, line = 0.0, standing.shared.host.nic_mbit or 0.0
    kept = 0.0
    for at in range(len(standing.shared.parties)):
        network = standing.settings(at).network
        rates = [network.rate_mbit or 0.0] if network is not None and is_shaped(network) else []
        rates += [held_to] if held_to is not None and at == standing.culprit else []
        if at != standing.sufferer:
            promised += min(rates, default=0.0)
            kept = kept if rates else UNSHAPED_SHARE * line
    return line - promised - kept


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
