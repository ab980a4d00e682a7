"""Mitigation steps, each from its mildest strength to its strictest: CPU, pins, driver domain, disk, network."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from advisor.domain import Pinning
from advisor.mitigation.violations import LimitViolation, Trial
from advisor.render.change import policed
from advisor.render.tc import is_shaped
from advisor.scheduling import pinning
from models.physics.cpu_speed import cap_period_ms, is_short, worst_cap_stall
from models.physics.demands import UNSHAPED_SHARE, capacity
from profiler.host_kinds import HOST_KINDS, TRAITS
from profiler.observed import DEFAULT_WEIGHT, MAX_WEIGHT, NetMode, NetworkSettings, format_cpus

# Mitigation steps for CPU time: weight and cap, from the mildest to the strictest.

WEIGHTS = (2, 4, 8)  # factors; beyond ten times Xen shows no further effect (finding L4)
CAP_STEP = 5  # % of a pCPU


def weights(violation: LimitViolation) -> list[Trial]:
    """Two, four and eight times the victim's weight; fractions of the antagonist's where the victim has its own.

    A weight costs nothing while CPUs are idle. Under Xen's credit scheduler a weight is no exact share (finding L4).
    """
    if violation.antagonist is None:
        return []
    note = " (a weight is not a share, L4)" if TRAITS[violation.shared.host.kind].weight_exponent != 1 else ""
    victim = violation.settings(violation.victim)
    if victim.weight is None:
        name = violation.party(violation.victim).id
        return [
            violation.trial(
                f"Give {name} {times} times the default weight{note}",
                {violation.victim: replace(victim, weight=min(DEFAULT_WEIGHT * times, MAX_WEIGHT))},
            )
            for times in WEIGHTS
        ]
    antagonist = violation.settings(violation.antagonist)
    now = antagonist.weight or DEFAULT_WEIGHT
    return [
        violation.trial(
            f"Cut the weight of {violation.party(violation.antagonist).id} to 1/{times}{note}",
            {violation.antagonist: replace(antagonist, weight=now // times)},
        )
        for times in WEIGHTS
        if now >= times
    ]


def caps(violation: LimitViolation) -> list[Trial]:
    """Caps on the antagonist in steps of 5 % of a pCPU, from below its use down to what its own limit needs.

    A cap acts linearly (finding L5): a share of the speed needs that share of the CPU.
    """
    if violation.antagonist is None:
        return []
    antagonist, settings = violation.party(violation.antagonist), violation.settings(violation.antagonist)
    uses = 100 * float(violation.want.cpu[0, violation.antagonist])
    top = min(uses, settings.cap_percent or math.inf)
    floor = max(uses * (antagonist.min_throughput_ratio or 0.0), CAP_STEP)
    return [
        violation.trial(
            f"Cap {antagonist.id} at {cap} % of a CPU (caps are linear, L5{_stall(violation, cap)})",
            {violation.antagonist: replace(settings, cap_percent=float(cap))},
        )
        for cap in steps_down(top, floor, CAP_STEP)
    ]


def steps_down(top: float, floor: float, step: int) -> range:
    """Multiples of `step` below `top` and not below `floor`, the largest first."""
    first = math.ceil(round(top / step, 6)) - 1
    last = max(math.ceil(round(floor / step, 6)), 1)
    return range(first * step, last * step - 1, -step)


def _stall(violation: LimitViolation, cap: int) -> str:
    """For a latency-sensitive antagonist: the longest stall in a period of the cap, in words."""
    if violation.antagonist is None or not is_short(antagonist := violation.party(violation.antagonist)):
        return ""
    kind = np.array(HOST_KINDS.index(violation.shared.host.kind))
    cpus, vcpus = np.array(cap / 100), np.array(antagonist.vcpus)
    period = cap_period_ms(kind, cpus, vcpus, np.array(True))
    stall = float(worst_cap_stall(cpus / vcpus, period))
    return f"; it stands still for up to {stall:.0f} of {float(period):.0f} ms"


# The mitigation step that limits the antagonist's disk, from the mildest limit to the strictest.

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


# The mitigation step that changes the CPUs of the host's driver domain.


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


# Mitigation steps for the network: traffic classes on the uplink, and a hint about vhost threads.

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


# The mitigation step that pins instances that have no pins, from one instance to every instance on the host.

MOST_NAMED = 2  # instances named that keep off the victim's CPUs


def pinnings(violation: LimitViolation) -> list[Trial]:
    """Pinnings of the antagonist, the victim, both, and every instance off the victim's CPUs.

    Existing pins stay: the new VM's was requested or is already the best of its options.
    """
    antagonist, victim = violation.antagonist, violation.victim
    if antagonist is None or violation.shared.host.pcpus < 2:
        return []
    others = [at for at in range(len(violation.shared.parties)) if at != victim and _free(violation, at)]
    groups_off = [[antagonist]] if antagonist in others else []
    if others and others != [antagonist]:
        groups_off.append(others)
    trials = [_pinned(violation, {antagonist: pin}, []) for pin in _pinning_choices(violation, antagonist)]
    for victim_pins in _pinning_choices(violation, victim):
        trials.append(_pinned(violation, {victim: victim_pins}, []))
        trials += [
            _pinned(violation, {victim: victim_pins}, off)
            for off in groups_off
            if _remaining_cpus(violation, victim_pins)
        ]
    existing = violation.settings(victim).pinning
    if existing is not None and _remaining_cpus(violation, existing):
        trials += [_pinned(violation, {}, off) for off in groups_off]
    return trials


def _free(violation: LimitViolation, at: int) -> bool:
    now = violation.settings(at).pinning
    return now is None or not any(now.cpus)


def _pinning_choices(violation: LimitViolation, at: int) -> list[Pinning]:
    """The pinnings worth predicting for one party beside the others; none if it is pinned."""
    if not _free(violation, at):
        return []
    party = replace(violation.party(at), settings=violation.settings(at))
    host, scene = violation.shared.host, violation.shared.scenes([violation.trial("", {})], without=party.id)
    options = [option for option in pinning.options(scene, party, [host]) if option.pins and option.usable[0]]
    return [pin for option in options if (pin := pinning.as_pinning(option, 0, party.vcpus, host)) is not None]


def _remaining_cpus(violation: LimitViolation, taken: Pinning) -> tuple[int, ...]:
    """CPUs of instances without pins other than the taken ones and the driver domain's own; () = none."""
    if not taken.union:
        return ()
    left = set(violation.shared.host.shared_cpus) - taken.union
    return tuple(sorted(left - set(violation.shared.host.driver_cpus)))


def _pinned(violation: LimitViolation, pinned: dict[int, Pinning], off: list[int]) -> Trial:
    """A trial that pins some parties and keeps those in `off` away from the victim's CPUs."""
    texts = [f"pin {violation.party(at).id} to {_cpus(tuple(pin.union))}" for at, pin in pinned.items()]
    pinned = dict(pinned)
    if off and (victim_pins := pinned.get(violation.victim) or violation.settings(violation.victim).pinning):
        rest = _remaining_cpus(violation, victim_pins)
        pinned |= {at: Pinning.all_on(rest, violation.party(at).vcpus) for at in off}
        names = " and ".join(violation.party(at).id for at in off)
        texts.append(f"keep {names if len(off) <= MOST_NAMED else f'the {len(off)} others'} on {_cpus(rest)}")
    text = " and ".join(texts)
    new = {at: replace(violation.settings(at), pinning=pin) for at, pin in pinned.items()}
    return violation.trial(text[:1].upper() + text[1:], new)


def _cpus(cpus: tuple[int, ...]) -> str:
    return f"CPU{'s' if len(cpus) > 1 else ''} {format_cpus(cpus)}"
