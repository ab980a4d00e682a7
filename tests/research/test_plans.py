"""The benchmark of plans: which questions are asked, and how long they may take."""

from __future__ import annotations

import json
import time

import pytest

from research.benchmarks import plans


def test_only_the_questions_and_flavours_that_are_wanted_are_asked(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ["--only", "growth", "--largest", "100", "--flavours", "few", "--question", "consolidate", "--json"]
    assert plans.main(wanted) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["instances"], row["flavours"], row["question"]) == (100, "few", "consolidate")
    assert row["bound"] <= row["value"] < row["hosts"]
    assert row["below"] == [0, 0]


def test_no_plan_has_more_than_a_third_of_what_is_left() -> None:
    now = time.monotonic()
    assert plans.PlanDeadline(300.0, now + 10_000).seconds() == 300.0
    assert plans.PlanDeadline(300.0, now + 60).seconds() == pytest.approx(20, abs=1)
    assert plans.PlanDeadline(300.0, now - 60).seconds() == 1.0


def test_scattered_clouds_are_the_same_each_time_and_hold_every_instance() -> None:
    empty, instances = plans.made_up(200, 20, "many")
    one, other = plans.scattered(empty, instances), plans.scattered(empty, instances)
    assert one.residents == other.residents
    assert sum(map(len, one.residents)) == len(instances)
