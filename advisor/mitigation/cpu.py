"""Rungs of the ladder that say how much of the CPUs: weight and cap, from the mildest strength to the strictest."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from advisor.mitigation.limit_violation import Standing
from advisor.mitigation.shared_host import Trial
from models.physics.cap_periods import cap_period_ms, is_short
from models.physics.queueing import worst_cap_stall
from profiler.host_kinds import HOST_KINDS, TRAITS
from profiler.observed import DEFAULT_WEIGHT, MAX_WEIGHT

WEIGHTS = (2, 4, 8)  # times as much; finding L4: beyond ten times nothing more comes of it under Xen
CAP_STEP = 5  # % of a pCPU


def weights(standing: Standing) -> list[Trial]:
    """Two, four and eight times the sufferer's weight; where it has one of its own, that part of the culprit's.

    A weight costs nothing while CPUs are idle. Under Xen's credit scheduler it is no share (finding L4).
    """
    if standing.culprit is None:
        return []
    note = " (a weight is not a share, L4)" if TRAITS[standing.shared.host.kind].weight_exponent != 1 else ""
    sufferer = standing.settings(standing.sufferer)
    if sufferer.weight is None:
        name = standing.party(standing.sufferer).id
        return [
            standing.trial(
                f"Give {name} {times} times the default weight{note}",
                {standing.sufferer: replace(sufferer, weight=min(DEFAULT_WEIGHT * times, MAX_WEIGHT))},
            )
            for times in WEIGHTS
        ]
    culprit = standing.settings(standing.culprit)
    now = culprit.weight or DEFAULT_WEIGHT
    return [
        standing.trial(
            f"Cut the weight of {standing.party(standing.culprit).id} to 1/{times}{note}",
            {standing.culprit: replace(culprit, weight=now // times)},
        )
        for times in WEIGHTS
        if now >= times
    ]


def caps(standing: Standing) -> list[Trial]:
    """Caps on the culprit in steps of 5 % of a pCPU, from below what it uses down to what its own limit needs.

    A cap acts linearly (finding L5), so that a share of its speed needs that share of its CPU.
    """
    if standing.culprit is None:
        return []
    culprit, settings = standing.party(standing.culprit), standing.settings(standing.culprit)
    uses = 100 * float(standing.want.cpu[0, standing.culprit])
    top = min(uses, settings.cap_percent or math.inf)
    floor = max(uses * (culprit.min_throughput_ratio or 0.0), CAP_STEP)
    return [
        standing.trial(
            f"Cap {culprit.id} at {cap} % of a CPU (caps are linear, L5{_stall(standing, cap)})",
            {standing.culprit: replace(settings, cap_percent=float(cap))},
        )
        for cap in steps_down(top, floor, CAP_STEP)
    ]


def steps_down(top: float, floor: float, step: int) -> range:
    """Multiples of `step` below `top` and not below `floor`, the largest first."""
    first = math.ceil(round(top / step, 6)) - 1
    last = max(math.ceil(round(floor / step, 6)), 1)
    return range(first * step, last * step - 1, -step)


def _stall(standing: Standing, cap: int) -> str:
    """For a culprit that minds latency: how long a period of the cap lets it stand still, at worst."""
    if standing.culprit is None or not is_short(culprit := standing.party(standing.culprit)):
        return ""
    kind = np.array(HOST_KINDS.index(standing.shared.host.kind))
    cpus, vcpus = np.array(cap / 100), np.array(culprit.vcpus)
    period = cap_period_ms(kind, cpus, vcpus, np.array(True))
    stall = float(worst_cap_stall(cpus / vcpus, period))
    return f"; it stands still for up to {stall:.0f} of {float(period):.0f} ms"
