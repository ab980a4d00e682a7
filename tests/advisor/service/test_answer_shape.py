"""Recommendations as JSON have the shape of the public contract."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from advisor.domain import (
    Band,
    Candidate,
    Command,
    CpuTime,
    Effect,
    Evidence,
    Headroom,
    Instance,
    LevelHeld,
    MitigationStep,
    PlacementRequest,
    Reason,
    Recommendation,
    Rejection,
    codec,
)
from profiler.observed import IsolationSettings, NetworkSettings, Pinning

INF = float("inf")
CAPPED = {"pinning": None, "isolation": {"cap_percent": 40.0, "weight": None, "network": None, "disk_limit_mb_s": None}}


def answer(*, commands: bool = True, settings: IsolationSettings | None = None) -> Recommendation:
    pinning = Pinning(((2,), (3,)))
    settings = settings or IsolationSettings(pinning, None, 512, NetworkSettings("shared", 200.0, 1000.0))
    cap = {"batch-1": IsolationSettings(cap_percent=40.0)}
    new_vm = Effect(
        "shop-7", Band(0.95, 0.9, 0.98), Band(1.1, 1.0, INF),
        jitter_ratio=Band(1.2, 1.0, 1.5), cpu=CpuTime(0.98, 0.9, 0.021),
    )  # fmt: skip
    neighbour = Effect("batch-1", Band(0.97, 0.93, 1.0), Band(1.0, 1.0, 1.1), before=Band(0.99, 0.98, 1.0))
    candidate = Candidate(
        1, "h3", 0.93, 1.58, settings.pinning, settings, new_vm, (neighbour,), ("h5",),
        (Reason("driver_domain", 0.6, "…"),),
        (Command("xl", ("xl", "vcpu-pin", "shop-7", "0", "2"), ("xl", "vcpu-pin", "shop-7", "0", "all")),),
        (MitigationStep("cap", "Cap batch-1.", cap, satisfies=True, notes=("mind this",)),),
        cap,
        headroom=Headroom(0.4, 0.5, INF, False, 0.45, 0.6),
        crowded=0.12, calibration="observed", evidence={"class": 1, "measured": 3},
    )  # fmt: skip
    step = MitigationStep("driver_domain", "Move it.", driver_cpus=(1,))
    return Recommendation(
        id="r1",
        created_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        request=PlacementRequest(Instance("shop-7"), commands=commands),
        model_version="m1",
        model_origin="measured",
        degraded=False,
        snapshot_age_s=2.1,
        candidates=(candidate,),
        rejected=(
            Rejection("h9", "capacity.memory", "needs 4096 MB, 1024 MB free"),
            Rejection("h10", "limit.new_vm", "too slow", (step,)),
        ),
        notes=("a note",),
        evidence=Evidence("class", "do this", LevelHeld(120, 0.93, 0.04)),
    )


def band(expected: float, lower: float, upper: float | None) -> dict[str, float | None]:
    return {"expected": expected, "lower": lower, "upper": upper}


def test_the_shape_is_the_contract_s_and_strict_json() -> None:
    candidate = {
        "rank": 1, "host": "h3", "score": 0.93, "combined_score": 1.58, "tied_with": ["h5"],
        "headroom": {
            "cpu": 0.4, "memory": 0.5, "nic": None, "one_numa_node": False,
            "cpu_before": 0.45, "memory_before": 0.6, "nic_before": None,
        },
        "reserved": 0.0, "crowded": 0.12, "calibration": "observed", "calibration_hosts": None,
        "evidence": {"class": 1, "measured": 3},
        "pinning": {"0": [2], "1": [3]},
        "isolation": {
            "cap_percent": None, "weight": 512, "disk_limit_mb_s": None,
            "network": {"mode": "shared", "rate_mbit": 200.0, "ceil_mbit": 1000.0},
        },
        "new_vm": {
            "instance": "shop-7", "before": None,
            "throughput_ratio": band(0.95, 0.9, 0.98),
            "latency_ratio": band(1.1, 1.0, None),
            "jitter_ratio": band(1.2, 1.0, 1.5),
            "outside_training": False,
            "cpu": {"share": 0.98, "worst_share": 0.9, "short": 0.021, "short_before": None, "overloaded": False},
            "basis": None,
        },
        "neighbours": [{
            "instance": "batch-1",
            "before": band(0.99, 0.98, 1.0),
            "throughput_ratio": band(0.97, 0.93, 1.0),
            "latency_ratio": band(1.0, 1.0, 1.1),
            "jitter_ratio": None, "outside_training": False, "cpu": None, "basis": None,
        }],
        "changes": {"batch-1": CAPPED},
        "mitigation": [{
            "action": "cap", "text": "Cap batch-1.", "changes": {"batch-1": CAPPED}, "effects": [],
            "satisfies": True, "driver_cpus": None, "notes": ["mind this"],
        }],
        "notes": ["mind this"],
        "reasons": [{
            "resource": "driver_domain", "share": 0.6, "text": "…",
            "neighbour": None, "kind": "loss", "finding": "", "ratio": None,
        }],
        "commands": [{
            "tool": "xl",
            "argv": ["xl", "vcpu-pin", "shop-7", "0", "2"],
            "undo": ["xl", "vcpu-pin", "shop-7", "0", "all"],
            "note": "",
        }],
        "tuning": [],
    }  # fmt: skip
    move = {
        "action": "driver_domain", "text": "Move it.", "changes": {}, "effects": [],
        "satisfies": False, "driver_cpus": [1], "notes": [],
    }  # fmt: skip
    shape = codec.answer_values(answer())
    assert shape == {
        "id": "r1",
        "created_at": "2026-01-02T03:04:05Z",
        "model_version": "m1",
        "model_origin": "measured",
        "degraded": False,
        "snapshot_age_s": 2.1,
        "dry_run": False,
        "candidates": [candidate],
        "rejected": [
            {"host": "h9", "code": "capacity.memory", "reason": "needs 4096 MB, 1024 MB free", "mitigation": []},
            {"host": "h10", "code": "limit.new_vm", "reason": "too slow", "mitigation": [move]},
        ],
        "notes": ["a note"],
        "advised": "place",
        "present": None,
        "tuned": [],
        "evidence": {
            "level": "class", "advice": "do this", "held": {"windows": 120, "coverage": 0.93, "error": 0.04},
        },
    }  # fmt: skip
    json.dumps(shape, allow_nan=False)


def test_an_instance_left_as_it_is_has_null_settings() -> None:
    (candidate,) = codec.answer_values(answer(settings=IsolationSettings()))["candidates"]
    assert candidate["pinning"] is None
    assert set(candidate["isolation"].values()) == {None}
