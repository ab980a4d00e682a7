"""The scores in the report of a cloud, as the service writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.domain import Host, Instance, Inventory, PlanRequest
from advisor.service import Advisor
from profiler.demand import Demand, Resource
from tests.advisor.service.service_clock import Clock


def test_the_report_has_scores_by_host_the_lowest_vms_and_the_cloud_over_time(
    advisor: Advisor, clock: Clock, tmp_path: Path
) -> None:
    hosts = tuple(Host(name, "kvm", pcpus=1, memory_mb=4096) for name in ("h1", "h2"))
    busy: dict[Resource, Demand] = {"cpu": Demand(1.0)}
    there = tuple(Instance(name, vcpus=1, memory_mb=64, host="h1", demand=busy) for name in ("a", "b"))
    advisor.inventory.put(Inventory(hosts, there), mode="replace", generation=None)
    for _ in range(3):
        advisor.keep_scores()
        clock.turn(300)
    written = advisor.plans.write_report(PlanRequest(kind="rebalance"), tmp_path / "reports", keep=1)
    report = json.loads((written.path / "report.json").read_text(encoding="utf-8"))
    tables = report["tables"]
    by_host = {row["host"]: row for row in tables["scores_now"]}
    assert by_host["h1"] == by_host["cloud"] | {"host": "h1"}
    assert by_host["cloud"]["score"] == pytest.approx(50.0)
    assert (by_host["cloud"]["score_40_60"], by_host["cloud"]["measured"]) == (2, 0)
    assert [row["instance"] for row in tables["lowest_scores"]] == ["a", "b"]
    assert [row["score"] for row in tables["score_history"]] == [50.0] * 3
    before, after = tables["scores"]
    assert (before["score"], after["score"]) == (pytest.approx(50.0), pytest.approx(100.0))
