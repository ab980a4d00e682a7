"""Mitigation steps for CPU time: weight and cap, from the mildest to the strictest."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from advisor.mitigation.limit_violation import LimitViolation
from advisor.mitigation.shared_host import Trial
from models.physics.cpu_speed import cap_period_ms, is_short, worst_cap_stall
from profiler.host_kinds import HOST_KINDS, TRAITS
from profiler.observed import DEFAULT_WEIGHT, MAX_WEIGHT

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
