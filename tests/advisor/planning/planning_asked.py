"""Plans asked of a small cloud of three hosts, and models that break or that know better."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from advisor.domain import Capacity, Instance, Inventory, Plan, PlanRequest, Usage
from advisor.errors import NotFound
from advisor.planning import planner
from advisor.prediction.active import ActivePredictor
from advisor.snapshot import ClusterSnapshot
from models.data.scene import SceneBatch
from models.physics.prior import PriorPredictor
from models.prediction import TARGETS, BandArrays, InterferencePrediction, Predictor
from tests.advisor.planning.planning_cases import NOW, host, vm

HOSTS = (host("h1", pcpus=4), host("h2", pcpus=4), host("h3", pcpus=4))
PRESSED = [vm(f"p{number}", on="h1", min_throughput_ratio=0.9 if number == 0 else None) for number in range(5)]


class FailsLater:
    """A learned model that answers a few times, as the prior would, and then breaks once."""

    version, origin, metrics = "m-1", "measured", PriorPredictor.metrics

    def __init__(self, times: int) -> None:
        self.left = times

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        self.left -= 1
        if self.left == -1:
            raise RuntimeError("broken")
        return PriorPredictor().predict(scenes, targets)


class Swift:
    """A model by which every instance is a fifth faster than alone, but none that is alone on its host."""

    version, origin, metrics = "m-2", "measured", PriorPredictor.metrics

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        reported = PriorPredictor().predict(scenes, targets)
        crowded = scenes.present.sum(axis=1, keepdims=True) > 1
        ratio = np.where(scenes.present, np.where(crowded, 1.2, 0.1), np.nan)
        return replace(reported, throughput=BandArrays(ratio, ratio - 0.01, ratio + 0.01))


def plan(
    inventory: Inventory,
    request: PlanRequest,
    measured: Mapping[str, Sequence[float]] | None = None,
    *,
    now: datetime = NOW,
    predictor: Predictor | None = None,
    pending: Sequence[Instance] = (),
    **more: object,
) -> Plan:
    """The plan of a request for a cloud that was just seen; `measured` CPU percents of windows by instance."""

    def no_model(version: str) -> ActivePredictor:
        raise NotFound(f"there is no model {version}")

    seen = dict.fromkeys((one.id for one in inventory.hosts), NOW)
    return planner.plan(
        ClusterSnapshot.build(inventory, seen=seen, pending=pending, taken_at=now),
        ActivePredictor(predictor or PriorPredictor()),
        request,
        now=now,
        fresh_s=60.0,
        measured=lambda names: {name: _used(windows) for name, windows in (measured or {}).items() if name in names},
        **{"models": no_model, **more},  # type: ignore[arg-type]
    )


def capacity(inventory: Inventory, request: PlanRequest) -> Capacity:
    """The capacity that a plan of that kind finds."""
    found = plan(inventory, request).capacity
    assert found
    return found


def there(found: Plan) -> dict[str, str]:
    return {effect.instance: name for name, effects in found.after.items() for effect in effects}


def carried_out(inventory: Inventory, found: Plan) -> Inventory:
    now = {one.id: one for one in inventory.instances}
    for step in (step for step in found.steps if step.host):
        was = now[step.instance]
        settings, vcpus = step.settings or was.settings, step.vcpus or was.vcpus
        now[was.id] = replace(was, host=step.host, settings=settings, vcpus=vcpus)
    return replace(inventory, instances=tuple(now.values()))


def _used(windows: Sequence[float]) -> Usage:
    p95, p99 = (float(np.quantile(windows, share)) / 100 for share in (0.95, 0.99))
    return Usage(p95, len(windows), p99)
