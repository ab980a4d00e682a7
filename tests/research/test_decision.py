"""The benchmark of a decision's speed says where the time goes, and each part of it is one that runs."""

from __future__ import annotations

from advisor.domain import Instance, PlacementRequest, WorkloadProfile
from advisor.placement import decision
from advisor.prediction.active import ActivePredictor, QuestionContext
from models.physics.prior import PriorPredictor
from research.benchmarks import decision as benchmark


def test_every_part_of_a_decision_is_found_where_it_runs() -> None:
    snapshot = benchmark.made_cloud(benchmark.CLOUDS[1], 20, (WorkloadProfile("spin", {"cpu": 100.0}),))
    request = PlacementRequest(Instance("new", vcpus=2, memory_mb=4096, workload="spin"))
    spent = benchmark._where(
        lambda: decision.recommend(
            snapshot, QuestionContext(ActivePredictor(PriorPredictor()), benchmark.NOW, 1.0), request
        )
    )
    assert all(spent[name] > 0 for name in benchmark.SHARES), spent
