"""Names of metrics: a typing error is reported with the answer, and a profile of nothing but such is refused."""

from __future__ import annotations

import csv
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from advisor.domain import Host, Instance, Inventory, PlacementRequest, Recommendation, WorkloadProfile
from advisor.errors import InvalidInput
from advisor.placement import decision, requests
from advisor.prediction.active import ActivePredictor, QuestionContext
from advisor.snapshot import ClusterSnapshot
from models.data.dataset import OUTCOMES
from models.physics.prior import PriorPredictor
from models.prediction import Predictor
from profiler.metrics import ADDITIONAL_UNITS, BY_NAME, split_key

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DATASETS = Path(__file__).resolve().parents[2] / "datasets"
SPIN = WorkloadProfile("spin", {"cpu": 100.0, "block": 0.0})


class Informed(PriorPredictor):
    """A model that was trained on a metric of the operator's own."""

    version = "m-1"
    metrics = ("cpu", "nvlink_gb_s")  # type: ignore[assignment]


def answer(
    *residents: str,
    workloads: tuple[WorkloadProfile, ...] = (SPIN,),
    profile: dict[str, float] | None = None,
    predictor: Predictor | None = None,
) -> Recommendation:
    host = Host("h1", "kvm", pcpus=4, memory_mb=8192)
    there = tuple(Instance(f"r-{name}", host="h1", workload=name) for name in residents)
    snapshot = ClusterSnapshot.build(Inventory((host,), there, workloads), seen={"h1": NOW}, pending=(), taken_at=NOW)
    mine = None if profile is None else WorkloadProfile("", profile)
    asked = PlacementRequest(Instance("shop", workload="spin"), profile=mine)
    return decision.recommend(
        snapshot, QuestionContext(ActivePredictor(predictor or PriorPredictor()), NOW, 60.0), asked
    )


def test_a_typing_error_in_the_profile_of_a_question_is_reported_with_what_it_may_stand_for() -> None:
    found = answer(profile={"cpuu": 80.0, "block": 3.0})
    assert found.candidates
    assert found.notes == (
        "Unknown to model analytic, cpuu (is cpu meant?) in the profile of the question changes nothing.",
    )
    assert answer(profile={"cpu": 80.0, "instance.block": 3.0}).notes == ()


def test_a_profile_of_nothing_but_unknown_metrics_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        InvalidInput, match=r"nothing in the profile is known: cpuu \(is cpu meant\?\); metrics are "
    ) as no:
        answer(profile={"cpuu": 80.0})
    assert no.value.field == "profile"
    assert answer(profile={"nvlink_gb_s": 3.0}, predictor=Informed()).candidates  # that model knows it


def test_typing_errors_in_the_inventory_are_reported_where_the_workload_is_in_use() -> None:
    odd = replace(SPIN, name="odd", metrics={"cpu": 5.0, "net_mbits": 4.0, "blocc": 1.0})
    assert answer(workloads=(SPIN, odd)).notes == ()
    reported = (
        "Unknown to model analytic, blocc (is block meant?), net_mbits (is net_mbit meant?) in the profile of odd "
    )
    assert answer("odd", workloads=(SPIN, odd)).notes == (f"{reported}change nothing.",)
    (both,) = answer("odd", workloads=(replace(SPIN, metrics={"cpu": 1.0, "blocc": 2.0}), odd)).notes
    assert "in the profiles of odd, spin change nothing" in both


def test_of_many_unknown_metrics_a_few_are_named_and_the_others_counted() -> None:
    many = {"cpu": 5.0, **{f"counter-{at}": 1.0 for at in range(9)}}
    (note,) = answer(profile=many).notes
    assert "counter-3 and 5 more in the profile" in note


def test_what_agent_and_lab_write_is_no_typing_error() -> None:
    of_lab = {
        row["metric"]
        for path in DATASETS.glob("lab-*/profiles.csv")
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    }
    assert len(of_lab) > 20
    alone = set(OUTCOMES) - {"cpu_share"}  # which is of windows and in no profile
    written = {*of_lab, *ADDITIONAL_UNITS, *alone, "bubble_32mb"}
    for key in (*written, *(f"driver_domain.{name}" for name in BY_NAME)):
        assert answer(profile={"cpu": 1.0, key: 1.0}).notes == (), key
    assert {split_key(key)[1] for key in requests.WRITTEN} <= written
