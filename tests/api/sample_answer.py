"""A made-up recommendation with everything in it that a real one may have: settings, commands, limits, ties, notes."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from advisor.domain import (
    Band,
    Candidate,
    Command,
    Effect,
    IsolationSettings,
    MitigationStep,
    Pinning,
    PlacementRequest,
    Reason,
    Recommendation,
    Rejection,
)
from profiler.observed import NetworkSettings

HOSTILE = "</script><img src=x onerror=alert(1)>\"' onmouseover='alert(2)"


def effect(name: str, expected: float, before: float | None = None, *, outside: bool = False) -> Effect:
    band = Band(expected, expected - 0.06, expected + 0.05)
    was = None if before is None else Band(before, before - 0.02, before + 0.02)
    slower = Band(2 - expected, 1.0, 2.5 - expected)
    return Effect(name, band, slower, before=was, outside_training=outside, jitter_ratio=slower)


def answer(request: PlacementRequest, *, hostile: str = "batch-1", **changes: Any) -> Recommendation:
    name = request.instance.id
    settings = IsolationSettings(
        pinning=Pinning(((2,), (3,))),
        cap_percent=150.0,
        weight=512,
        network=NetworkSettings("shared", 200.0, 1000.0),
        disk_limit_mb_s=40.0,
    )
    commands = (
        Command("xl", ("xl", "vcpu-pin", name, "0", "2"), ("xl", "vcpu-pin", name, "0", "all")),
        Command(
            "tc",
            tuple(shlex.split("tc class add dev vif3.0 parent 1: classid 1:7 htb rate 200mbit ceil 1gbit")),
            ("tc", "class", "del", "dev", "vif3.0", "classid", "1:7"),
            note=f"on the host of {hostile}",
        ),
    )
    reasons = (
        Reason(
            "driver_domain", 0.6, f"The driver domain costs the most affected up to 7%, most of all with {hostile}."
        ),
        Reason("nic", 0.4, "The network link costs the most affected up to 4%."),
        Reason("comparison", 0.0, "h1 and h2 are tied: their difference (+0.005) lies inside the uncertainty."),
    )
    twice, capped = IsolationSettings(weight=512), IsolationSettings(cap_percent=60.0)
    rungs = (
        MitigationStep("weight", "Twice the weight changes nothing: the CPU is idle.", {name: twice}),
        MitigationStep(
            "cap",
            f"Cap {hostile} at 60 % of a CPU: {name} 0.71 -> 0.95.",
            {name: twice, hostile: capped},
            (effect(name, 0.95, 0.71), effect(hostile, 0.93, 0.97)),
            satisfies=True,
        ),
    )
    best = Candidate(
        rank=1,
        host="h1",
        score=0.913,
        combined_score=2.72,
        pinning=settings.pinning,
        isolation=settings,
        new_vm=effect(name, 0.95),
        neighbours=(effect(hostile, 0.93, 0.97), effect("shop-3", 0.84, 0.96, outside=True)),
        tied_with=("h2",),
        mitigation=rungs,
        changes={hostile: capped},
        reasons=reasons,
        commands=commands,
    )
    second = replace(
        best, rank=2, host="h2", score=0.908, isolation=IsolationSettings(), pinning=None, neighbours=(), commands=(),
        tied_with=("h1",), mitigation=(), changes={},
    )  # fmt: skip
    reported = Recommendation(
        id="r-1",
        created_at=datetime(2026, 1, 31, tzinfo=UTC),
        request=request,
        model_version="m-1",
        model_origin="measured",
        degraded=False,
        snapshot_age_s=130.0,
        candidates=(best, second),
        rejected=(
            Rejection("h8", "limit.new_vm", "would run at 50 % of its uncontended speed, its limit is 90 %", rungs[:1]),
            Rejection("h9", "capacity.memory", "needs 4096 MB, 1024 MB free"),
        ),
    )
    return replace(reported, **changes)
