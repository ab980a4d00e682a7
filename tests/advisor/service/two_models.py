"""Two models that always say the same, one in use and one in shadow, on a small cloud; and what is observed there."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from advisor.domain import Host, Instance, Inventory, ModelCard, PlacementRequest, Recommendation, WorkloadProfile
from advisor.service import Advisor
from advisor.store import counters, predictions
from advisor.store import models as registry
from models.data.scene import SceneBatch
from models.evaluation.prediction_checks import CheckedPrediction
from models.physics.prior import PriorPredictor
from models.prediction import TARGETS, BandArrays, InterferencePrediction
from profiler.observed import Colocation, Outcome

WEB, BATCH = (WorkloadProfile(name, {"cpu": cpu}, origin="measured") for name, cpu in (("web", 80.0), ("batch", 100.0)))
HOSTS = (Host("h1", "xen", 2, 8192, platform="I"), Host("h2", "xen", 2, 8192, platform="I"), Host("x1", "kvm", 2, 8192))
CLOUD = Inventory(HOSTS, (Instance("old", host="h1", workload="batch"),), (WEB, BATCH))
ASKED = PlacementRequest(Instance("new", workload="web"), dry_run=True)


@dataclass(frozen=True)
class Sure:
    """A model that always says the same, with a 90 % interval of +-`half` on the log scale."""

    version: str
    expected: float = 0.8
    half: float = 0.1
    origin: str = "measured"
    metrics: tuple[str, ...] = ()

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        if self.expected <= 0:
            raise RuntimeError("out of order")
        plain = PriorPredictor().predict(scenes)
        mean = plain.throughput.expected * 0 + self.expected
        band = BandArrays(mean, mean * math.exp(-self.half), mean * math.exp(self.half))
        return replace(plain, throughput=band)


def use(advisor: Advisor, *, active: str, shadow: str) -> None:
    """Register two models as if the gate had let them through: here it is about what comes after."""
    with advisor._database.write() as connection:
        counters.bump(connection, "models")
        for version in (active, shadow):
            registry.add(connection, ModelCard(version, "candidate", datetime(2026, 1, 1, tzinfo=UTC), "measured", {}))
        registry.activate(connection, active)
        registry.shadow(connection, shadow)


def seen(
    number: int, web: float = 0.8, batch: float = 0.8, *, platform: str = "I", of: tuple[str, str] = ("web", "batch")
) -> Colocation:
    """Of other workloads than those that are asked about, it says how far the model is off and moves no answer."""
    outcomes = (
        Outcome(Instance("a", workload=of[0]), "throughput", 100.0, 100.0 * web, "1/s"),
        Outcome(Instance("b", workload=of[1]), "throughput", 50.0, 50.0 * batch, "1/s"),
    )
    return Colocation(f"run-{number}", platform, "1", outcomes)


def rows_of(advisor: Advisor, version: str) -> tuple[CheckedPrediction, ...]:
    with advisor._database.read() as connection:
        return predictions.observed_of_version(connection, version, last=10_000)


def placed(advisor: Advisor) -> Recommendation:
    answer = advisor.placements.place(ASKED).recommendation
    assert "h1" in {one.host for one in answer.candidates}
    return answer
