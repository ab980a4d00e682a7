"""The benchmark of a decision's speed says where the time goes, and each part of it is one that runs."""

from __future__ import annotations

from advisor import placement
from advisor.domain import Instance, PlacementRequest, WorkloadProfile
from benchmarks import decision
from models.prior import PriorPredictor


def test_every_part_of_a_decision_is_found_where_it_runs() -> None:
    snapshot = decision.made_cloud(decision.CLOUDS[1], 20, (WorkloadProfile("spin", {"cpu": 100.0}),))
    request = PlacementRequest(Instance("new", vcpus=2, memory_mb=4096, workload="spin"))
    spent = decision._where(
        lambda: placement.recommend(
            snapshot, PriorPredictor(), request, recommendation_id="b", now=decision.NOW, fresh_s=1.0
        )
    )
    assert all(spent[name] > 0 for name in decision.SHARES), spent
