"""Mitigation steps for the network: traffic classes on the uplink, and a hint about vhost threads."""

from __future__ import annotations

import math
from dataclasses import replace

from advisor.mitigation.cpu import steps_down
from advisor.mitigation.limit_violation import LimitViolation
from advisor.mitigation.shared_host import Trial
from advisor.render.policing import policed
from advisor.render.tc import is_shaped
from models.physics.devices import UNSHAPED_SHARE
from profiler.observed import NetMode, NetworkSettings

RATE_STEP = 5  # % of the link
MARGIN = 1.1  # HTB holds a rate within 10 % (finding L7)
LEAST_MBIT = 0.1  # of a class: rates are written with one digit


def classes(violation: LimitViolation) -> list[Trial]:
    """A traffic class for the victim, then a rate for the antagonist, alone and with a class for the victim.

    The victim's rate rises from a small one to what it needs. The antagonist's rate falls from just below what it sends
    to what its own limit needs; the victim's class takes the rest. An instance sensitive to jitter and time-outs shares
    the slack, one sensitive to the mean keeps to its rate (findings L9, L10); the other mode is tried next. A class
    that limits an antagonist is dedicated: its ceiling is its rate.
    """
    host, antagonist, victim = violation.shared.host, violation.antagonist, violation.victim
    if antagonist is None or not host.nic_mbit or violation.want.net[0, antagonist] <= 0:
        return []
    name, victim_settings = violation.party(victim).id, violation.settings(victim)
    need = MARGIN * float(violation.want.net[0, victim])
    room = _room(violation)
    may_have_class = need > 0 and not is_shaped(victim_settings.network)
    modes: tuple[NetMode, NetMode] = ("shared", "dedicated")
    if violation.party(victim).service != "latency":
        modes = ("dedicated", "shared")
    trials = []
    for mode in modes if may_have_class and room >= LEAST_MBIT else ():
        for rate in _rates_up(host.nic_mbit, need, room):
            victim_class = _class(mode, rate, host.nic_mbit)
            text = f"Give {name} a {mode} traffic class of {victim_class.rate_mbit:g} Mbit/s ({_why(mode)})"
            trials.append(violation.trial(text, {victim: replace(victim_settings, network=victim_class)}))
    limited, limited_settings = violation.party(antagonist), violation.settings(antagonist)
    sends = float(violation.want.net[0, antagonist])
    top = min(sends, _most(limited_settings.network))
    floor = sends * (limited.min_throughput_ratio or 0.0)
    for percent in steps_down(100 * top / host.nic_mbit, 100 * floor / host.nic_mbit, RATE_STEP):
        rate = round(host.nic_mbit * percent / 100, 1)
        held_back = {antagonist: replace(limited_settings, network=_held(limited_settings.network, rate))}
        text = f"Hold {limited.id} to {rate:g} Mbit/s"
        trials.append(violation.trial(text, held_back))
        room_left = _room(violation, held_to=rate)
        if may_have_class and room_left >= LEAST_MBIT:
            victim_class = _class(modes[0], min(need, room_left), host.nic_mbit)
            text += f" and give {name} a {modes[0]} class of {victim_class.rate_mbit:g} Mbit/s ({_why(modes[0])})"
            trials.append(violation.trial(text, {**held_back, victim: replace(victim_settings, network=victim_class)}))
    return trials


def vhost_hint(violation: LimitViolation) -> str | None:
    """Advice for small packets on KVM that no model here predicts, where the link or the driver domain limits."""
    if violation.shared.host.kind != "kvm" or violation.resource not in {"nic", "driver_domain"}:
        return None
    party = violation.party(violation.victim)
    queues = f" and give its card {party.vcpus} queues" if party.vcpus > 1 else ""
    return (
        f"Not predicted, worth measuring: let vhost-net threads with CPUs of their own carry the packets of {party.id}"
        f"{queues}; vhost-net instead of userspace virtio gave 43 % more (C4)."
    )


def _most(network: NetworkSettings | None) -> float:
    """The rate that a class lets through, Mbit/s."""
    limit = policed(network)
    return math.inf if limit is None else limit.kbit_s / 1000


def _held(network: NetworkSettings | None, rate: float) -> NetworkSettings:
    """A class limited to `rate` that is never looser than the existing one."""
    if network is None or network.mode == "none":
        return NetworkSettings("dedicated", rate, rate)
    return NetworkSettings(network.mode, min(network.rate_mbit or rate, rate), rate)


def _class(mode: NetMode, rate: float, link: float) -> NetworkSettings:
    rate = max(round(rate, 1), LEAST_MBIT)
    return NetworkSettings(mode, rate, max(link, rate) if mode == "shared" else rate)


def _room(violation: LimitViolation, held_to: float | None = None) -> float:
    """The rate left on the line for a class of the victim, Mbit/s; rates promised twice are guaranteed to no instance.

    Promised are the rates of the other classes, with the antagonist's at `held_to`, and the tree's share for instances
    without a class if there are any.
    """
    promised, line = 0.0, violation.shared.host.nic_mbit or 0.0
    unshaped = 0.0  # kept for instances without a class
    for at in range(len(violation.shared.parties)):
        network = violation.settings(at).network
        rates = [network.rate_mbit or 0.0] if network is not None and is_shaped(network) else []
        rates += [held_to] if held_to is not None and at == violation.antagonist else []
        if at != violation.victim:
            promised += min(rates, default=0.0)
            unshaped = unshaped if rates else UNSHAPED_SHARE * line
    return line - promised - unshaped


def _rates_up(link: float, need: float, room: float) -> list[float]:
    """Rates in steps of the link up to the need, then doubled up to half of the link, within `room`; Mbit/s.

    Rates above the need serve bursts: packets that arrive at once leave at the rate of their class.
    """
    steps = [link * percent / 100 for percent in range(RATE_STEP, 101, RATE_STEP)]
    rates = [*(rate for rate in steps if rate < need), need]
    while rates[-1] * 2 <= link / 2:
        rates.append(rates[-1] * 2)
    return [rate for rate in rates if rate <= room] or [room]


def _why(mode: NetMode) -> str:
    return "less jitter and fewer time-outs, L9" if mode == "shared" else "a lower mean at more jitter, L9"
