"""Small clouds for the tests of the ranking core, and a question to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from advisor.domain import (
    Candidate,
    Constraints,
    Host,
    Instance,
    Inventory,
    IsolationSettings,
    Pinning,
    PlacementRequest,
    Recommendation,
    WorkloadProfile,
)
from advisor.placement.decision import recommend
from advisor.prediction.active import ActivePredictor
from advisor.prediction.context import QuestionContext
from advisor.snapshot import ClusterSnapshot
from models.data.scene import SceneBatch
from models.physics.prior import PriorPredictor
from models.prediction import TARGETS, BandArrays, InterferencePrediction, Predictor

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FRESH_S = 600.0
WORKLOADS = (
    WorkloadProfile("spin", {"cpu": 100.0, "block": 0.0}),
    WorkloadProfile("calm", {"cpu": 5.0, "block": 50.0}),
    WorkloadProfile("web", {"cpu": 60.0, "driver_domain.cpu": 40.0, "net_mbit": 80.0, "block": 5.0}),
    WorkloadProfile("bulk", {"cpu": 10.0, "net_mbit": 900.0, "block": 80.0}),
    WorkloadProfile("disk", {"cpu": 5.0, "disk_mb_s": 200.0, "block": 100.0}),
    WorkloadProfile("copy", {"cpu": 5.0, "mem_bw_mb_s": 9000.0}),
)


def host(name: str = "h1", **more: Any) -> Host:
    """A host with four pCPUs and 16 GB unless told otherwise."""
    values: dict[str, Any] = {"kind": "kvm", "pcpus": 4, "memory_mb": 16_384.0, "nic_mbit": 1000.0}
    return Host(id=name, **{**values, **more})


def vm(name: str = "n", workload: str | None = "spin", on: str | None = None, **more: Any) -> Instance:
    """An instance; `pins` as in the dataset format; cap_percent, weight and network are settings."""
    keys = ("cap_percent", "weight", "network", "disk_limit_mb_s")
    settings = IsolationSettings(
        pinning=Pinning.parse(more.pop("pins", "")), **{key: more.pop(key) for key in keys if key in more}
    )
    return Instance(name, host=on, workload=workload, settings=settings, **{"memory_mb": 1024.0, **more})


def cloud(
    hosts: Iterable[Host],
    instances: Iterable[Instance] = (),
    *,
    workloads: Sequence[WorkloadProfile] = WORKLOADS,
    pending: Sequence[Instance] = (),
    age_s: Mapping[str, float | None] | None = None,
) -> ClusterSnapshot:
    """A snapshot in which every host was seen just now, but for those in `age_s` (None = never)."""
    hosts = tuple(hosts)
    ages = {**{one.id: 0.0 for one in hosts}, **(age_s or {})}
    seen = {name: NOW - timedelta(seconds=age) for name, age in ages.items() if age is not None}
    inventory = Inventory(hosts, tuple(instances), tuple(workloads))
    return ClusterSnapshot.build(inventory, seen=seen, pending=pending, taken_at=NOW)


def request(instance: Instance | None = None, **more: Any) -> PlacementRequest:
    """A question; labels, exclude, affinity, anti_affinity, kind and allow_stale are constraints."""
    keys = ("labels", "exclude", "affinity", "anti_affinity", "kind", "allow_stale")
    constraints = Constraints(**{key: more.pop(key) for key in keys if key in more})
    return PlacementRequest(instance or vm(), constraints=constraints, **{"limit": 100, **more})


def ask(
    snapshot: ClusterSnapshot, question: PlacementRequest | None = None, predictor: Predictor | None = None
) -> Recommendation:
    """The answer of the prior, or of another predictor."""
    context = QuestionContext(ActivePredictor(predictor or PriorPredictor()), NOW, FRESH_S)
    return replace(recommend(snapshot, context, question or request()), id="r-1")


def hosts_of(recommendation: Recommendation) -> list[str]:
    return [one.host for one in recommendation.candidates]


def codes(recommendation: Recommendation) -> dict[str, str]:
    return {one.host: one.code for one in recommendation.rejected}


def only(recommendation: Recommendation) -> Candidate:
    (found,) = recommendation.candidates
    return found


class Failing:
    """A predictor that always fails."""

    version = origin = "failing"
    metrics = ()

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        raise RuntimeError("no idea")


def prediction(
    expected: Sequence[Sequence[float]], half: float | Sequence[Sequence[float]] = 0.0
) -> InterferencePrediction:
    """Throughput ratios with a half width; latency and jitter are their inverse."""
    ratio = np.array(expected, dtype=float)
    width = np.broadcast_to(np.array(half, dtype=float), ratio.shape)
    return InterferencePrediction(
        BandArrays(ratio, ratio - width, ratio + width),
        BandArrays(1 / ratio, 1 / ratio, 1 / ratio),
        BandArrays(1 / ratio, 1 / ratio, 1 / ratio),
        np.zeros(ratio.shape, dtype=bool),
    )
