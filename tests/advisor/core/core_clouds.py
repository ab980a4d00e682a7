"""Small clouds for the tests of the ranking core, and a question to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
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
from advisor.prediction.active import ActivePredictor, PredictionCache, QuestionContext
from advisor.snapshot import ClusterSnapshot
from models.arrays import Floats
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
    """A host with four pCPUs and 16 GB unless the test says otherwise."""
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
    ages = {**{host.id: 0.0 for host in hosts}, **(age_s or {})}
    seen = {name: NOW - timedelta(seconds=age) for name, age in ages.items() if age is not None}
    inventory = Inventory(hosts, tuple(instances), tuple(workloads))
    return ClusterSnapshot.build(inventory, seen=seen, pending=pending, taken_at=NOW)


def request(instance: Instance | None = None, **more: Any) -> PlacementRequest:
    """A question; labels, exclude, affinity, anti_affinity, kind and allow_stale are constraints."""
    keys = ("labels", "exclude", "affinity", "anti_affinity", "kind", "allow_stale")
    constraints = Constraints(**{key: more.pop(key) for key in keys if key in more})
    return PlacementRequest(instance or vm(), constraints=constraints, **{"limit": 100, **more})


def context(predictor: Predictor | None = None, remembered: PredictionCache | None = None) -> QuestionContext:
    """The prior, or another predictor, is asked now."""
    active = ActivePredictor(predictor or PriorPredictor(), remembered=remembered or PredictionCache())
    return QuestionContext(active, NOW, FRESH_S)


def ask(
    snapshot: ClusterSnapshot, question: PlacementRequest | None = None, predictor: Predictor | None = None
) -> Recommendation:
    """The answer of the prior, or of another predictor."""
    return replace(recommend(snapshot, context(predictor), question or request()), id="r-1")


def hosts_of(recommendation: Recommendation) -> list[str]:
    return [candidate.host for candidate in recommendation.candidates]


def codes(recommendation: Recommendation) -> dict[str, str]:
    return {rejection.host: rejection.code for rejection in recommendation.rejected}


def only(recommendation: Recommendation) -> Candidate:
    (candidate,) = recommendation.candidates
    return candidate


class Failing:
    """A predictor that always fails."""

    version = origin = "failing"
    metrics = ()

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        raise RuntimeError("no idea")


class Invented:
    """A predictor of throughput ratios by a rule; latency and jitter are their inverse."""

    version = origin = "invented"
    metrics = ()

    def __init__(self, ratios: Callable[[SceneBatch], Floats], half: float = 0.0) -> None:
        self.ratios, self.half = ratios, half

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        return prediction(self.ratios(scenes).tolist(), self.half)


class Slower(PriorPredictor):
    """As if it were trained: a tenth slower than the prior says, inside its training data or not."""

    version, origin = "m-1", "measured"

    def __init__(self, *, outside: bool = False) -> None:
        self.outside = outside

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        prior = super().predict(scenes, targets)
        slower = BandArrays(*(0.9 * getattr(prior.throughput, edge) for edge in ("expected", "lower", "upper")))
        return replace(prior, throughput=slower, outside=scenes.present & self.outside)


class Counting:
    """The prior, with what it was asked; as another model where it has another version."""

    origin = "analytic"
    metrics = ()

    def __init__(self, version: str = "analytic") -> None:
        self.version = version
        self.asked: list[tuple[int, frozenset[str]]] = []

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        self.asked.append((len(scenes), frozenset(targets)))
        return PriorPredictor().predict(scenes, targets)


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


def same(one: ClusterSnapshot, other: ClusterSnapshot, *, but: Collection[str] = ()) -> None:
    """Equal snapshots, `but` for these fields and for what is looked up by name in them."""
    for name in (field.name for field in fields(ClusterSnapshot) if field.name not in {"names", *but}):
        mine, others = getattr(one, name), getattr(other, name)
        if name == "scenes":
            for part in (field.name for field in fields(mine) if field.compare and field.name != "table"):
                np.testing.assert_array_equal(getattr(mine, part), getattr(others, part), part)
            np.testing.assert_array_equal(mine.table.values, others.table.values)
            assert (mine.table.columns, mine.table.rows) == (others.table.columns, others.table.rows)
        elif isinstance(mine, np.ndarray):
            assert mine.dtype == others.dtype, name
            np.testing.assert_array_equal(mine, others, name)
        else:
            assert mine == others, name
