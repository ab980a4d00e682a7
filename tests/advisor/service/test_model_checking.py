"""Predicted against observed: what an observation leaves behind, and that nothing stops it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

import models.learning.artifact
from advisor.domain import Host, Instance, Scene, WorkloadProfile
from advisor.errors import InvalidInput
from advisor.placement.decision import predict_scene
from advisor.service import Advisor
from advisor.settings import Settings
from models.physics.prior import PriorPredictor
from profiler.observed import Colocation, IsolationSettings, Outcome, Pinning
from tests.advisor.service.service_clock import Clock
from tests.advisor.service.two_models import ASKED, CLOUD, HOSTS, Sure, placed, rows_of, seen, use
from tests.servers.fixtures import sqlite_with_tables

pytestmark = pytest.mark.usefixtures("cloud")


@pytest.mark.usefixtures("two")
def test_a_colocation_is_held_against_active_shadow_and_prior_once(advisor: Advisor, clock: Clock) -> None:
    assert advisor.outcomes.record_colocation(seen(1, web=0.9, batch=0.7))
    first, second = rows_of(advisor, "m-1")
    assert (first.role, first.target, first.platform, first.workload, first.instance) == (
        ("active", "throughput", "I", "web", "a")
    )
    assert (first.expected, first.observed, second.observed) == (0.8, 0.9, 0.7)
    assert first.lower == pytest.approx(0.8 * math.exp(-0.1))
    assert (first.time, first.source) == (clock.now, second.source)
    assert {(row.role, row.expected) for row in rows_of(advisor, "m-2")} == {("shadow", 0.6)}
    prior = rows_of(advisor, "analytic")
    alone = advisor.placements.predict(Scene(HOSTS[0], tuple(one.instance for one in seen(1).outcomes))).effects
    assert {row.role for row in prior} == {"baseline"}
    assert len(prior) == len(alone) == 2
    assert not advisor.outcomes.record_colocation(seen(1, web=0.9, batch=0.7))  # it is sent again
    with pytest.raises(InvalidInput):
        advisor.outcomes.record_colocation(replace(seen(2), run=""))
    assert rows_of(advisor, "m-1") == (first, second)


def test_repeats_of_a_run_and_runs_of_one_name_on_two_platforms_are_scenes_of_their_own(advisor: Advisor) -> None:
    for other in (seen(1), replace(seen(1), repeat="2"), seen(1, platform="x1")):
        advisor.outcomes.record_colocation(other)
    rows = rows_of(advisor, "analytic")
    assert (len(rows), len({row.source for row in rows})) == (6, 3)
    assert {row.role for row in rows} == {"active"}, "the prior that answers is no baseline of itself"


def test_a_host_that_is_named_itself_comes_before_its_platform_and_an_unknown_one_has_no_prediction(
    advisor: Advisor,
) -> None:
    assert advisor.outcomes.record_colocation(seen(1, platform="x1"))
    assert advisor.outcomes.record_colocation(seen(2, platform="nowhere"))
    assert advisor.outcomes.record_colocation(replace(seen(3), driver_cpus=(7,)))  # no host of the platform has it
    assert [row.platform for row in rows_of(advisor, "analytic")] == ["x1", "x1"]
    named = Host("I", "xen", 16, 8192, platform="large")
    advisor.inventory.put(replace(CLOUD, hosts=(*HOSTS, named)), mode="replace", generation=None)
    advisor.outcomes.record_colocation(seen(4))
    assert {row.platform for row in rows_of(advisor, "analytic")} == {"x1", "large"}


def test_what_was_predicted_outside_the_training_data_is_marked(advisor: Advisor) -> None:
    strange = replace(seen(1).outcomes[0], instance=Instance("a", workload="never-measured"))
    advisor.outcomes.record_colocation(Colocation("r-1", "I", "1", (strange,)))
    advisor.outcomes.record_colocation(Colocation("r-2", "I", "1", seen(1).outcomes[:1]))
    assert {row.workload: row.outside for row in rows_of(advisor, "analytic")} == {"never-measured": True, "web": False}


def test_who_was_pinned_to_cpus_that_no_host_has_is_not_predicted_and_no_failure(
    advisor: Advisor, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = seen(1).outcomes
    settings = IsolationSettings(pinning=Pinning.parse("0:9"))
    far = replace(first, instance=replace(first.instance, settings=settings))
    assert advisor.outcomes.record_colocation(replace(seen(1), outcomes=(far, second)))
    assert rows_of(advisor, "analytic") == ()
    assert not caplog.records


def test_latency_jitter_and_run_times_are_held_against_their_own_predictions(advisor: Advisor) -> None:
    slow = Outcome(Instance("a", workload="web"), "latency_mean_ms", 2.0, 3.0, "ms")
    late = Outcome(Instance("b", workload="batch"), "runtime_s", 60.0, 80.0, "s")
    unsteady = Outcome(Instance("a", workload="web"), "jitter_ms", 0.5, 2.0, "ms")
    steady = Outcome(Instance("b", workload="batch"), "jitter_ms", 0.0, 2.0, "ms")
    unknown = Outcome(Instance("b", workload="batch"), "timeouts_percent", 1.0, 2.0, "%")
    advisor.outcomes.record_colocation(Colocation("r", "I", "1", (slow, late, unsteady, steady, unknown)))
    found = {(row.instance, row.target): row.observed for row in rows_of(advisor, "analytic")}
    assert found == {("a", "latency"): 1.5, ("a", "jitter"): 4.0, ("b", "throughput"): 0.75}


def test_a_model_that_fails_is_left_out_and_the_observation_kept(
    advisor: Advisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(models.learning.artifact, "load", lambda path: Sure(Path(path).name, expected=-1.0))
    use(advisor, active="m-1", shadow="m-2")
    assert advisor.outcomes.record_colocation(seen(1))
    assert (rows_of(advisor, "m-1"), rows_of(advisor, "m-2")) == ((), ())
    assert {row.role for row in rows_of(advisor, "analytic")} == {"baseline"}
    assert "model m-2 said nothing about an observed outcome" in caplog.text


def test_a_broken_shadow_stops_nothing(advisor: Advisor, caplog: pytest.LogCaptureFixture) -> None:
    use(advisor, active="m-1", shadow="m-2")  # there are no artifacts: the prior stands in for m-1
    assert advisor.outcomes.record_colocation(seen(1))
    assert {row.role for row in rows_of(advisor, "analytic")} == {"baseline"}
    assert "model m-2 cannot be used" in caplog.text


def test_whatever_goes_wrong_beside_it_an_observation_is_kept(
    advisor: Advisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("advisor.lifecycle.outcome_checks._scene_of", broken)
    assert advisor.outcomes.record_colocation(seen(1))
    assert not advisor.outcomes.record_colocation(seen(1))
    assert "could not be held against" in caplog.text


@pytest.mark.usefixtures("two")
def test_an_outcome_is_held_against_what_was_answered_then(advisor: Advisor) -> None:
    answer = placed(advisor)
    use(advisor, active="m-2", shadow="m-1")  # who answers now did not answer then
    advisor.outcomes.record(answer.id, "h1", {"new": 0.7, "old": 0.9, "stranger": 0.1})
    then = rows_of(advisor, "m-1")
    assert {(row.instance, row.workload, row.role, row.expected, row.observed) for row in then} == {
        ("new", "web", "active", 0.8, 0.7),
        ("old", "batch", "active", 0.8, 0.9),
    }
    assert rows_of(advisor, "m-2") == ()
    assert {row.role for row in rows_of(advisor, "analytic")} == {"baseline"}


@pytest.mark.usefixtures("two")
def test_shadow_and_prior_are_asked_about_the_scene_of_the_answer(advisor: Advisor) -> None:
    answer = placed(advisor)
    candidate = next(one for one in answer.candidates if one.host == "h1")
    settings = replace(ASKED.instance.settings, pinning=candidate.pinning)
    scene = Scene(HOSTS[0], (CLOUD.instances[0], replace(ASKED.instance, settings=settings)), CLOUD.workloads)
    effects = predict_scene(scene, PriorPredictor(), workloads=CLOUD.workloads).effects
    wanted = {one.instance: one.throughput_ratio.expected for one in effects}
    advisor.outcomes.record(answer.id, "h1", {"new": 0.7, "old": 0.9})
    assert {(row.instance, row.role) for row in rows_of(advisor, "m-2")} == {("new", "shadow"), ("old", "shadow")}
    assert {row.instance: row.expected for row in rows_of(advisor, "analytic")} == pytest.approx(wanted)


@pytest.mark.usefixtures("two")
def test_a_neighbour_that_is_gone_leaves_only_the_stored_answer(advisor: Advisor) -> None:
    answer = placed(advisor)
    advisor.inventory.delete_instance("old")
    advisor.outcomes.record(answer.id, "h1", {"new": 0.7, "old": 0.9})
    assert len(rows_of(advisor, "m-1")) == 2
    assert (rows_of(advisor, "m-2"), rows_of(advisor, "analytic")) == ((), ())


def test_the_latest_outcome_replaces_the_former_and_the_same_changes_nothing(advisor: Advisor, clock: Clock) -> None:
    answer = placed(advisor)
    advisor.outcomes.record(answer.id, "h1", {"new": 0.7})
    before, reported = rows_of(advisor, "analytic"), advisor.outcomes.get(answer.id)
    clock.turn(60)
    advisor.outcomes.record(answer.id, "h1", {"new": 0.7})
    assert (rows_of(advisor, "analytic"), advisor.outcomes.get(answer.id)) == (before, reported)
    advisor.outcomes.record(answer.id, "h1", {"new": 0.6})
    assert [row.observed for row in rows_of(advisor, "analytic")] == [0.6]
    advisor.outcomes.record(answer.id, "elsewhere", {"new": 0.5})
    assert rows_of(advisor, "analytic") == ()


def test_a_profile_that_came_with_the_question_counts_for_the_others_too(advisor: Advisor) -> None:
    heavy = WorkloadProfile("mine", {"cpu": 100.0, "waiting": 5.0})
    request = replace(ASKED, instance=Instance("new"), profile=heavy)
    answer = advisor.placements.place(request).recommendation
    advisor.outcomes.record(answer.id, "h1", {"new": 0.5})
    (row,) = rows_of(advisor, "analytic")
    candidate = next(one for one in answer.candidates if one.host == "h1")
    assert row.expected == pytest.approx(candidate.new_vm.throughput_ratio.expected)


def test_rows_are_kept_per_platform_up_to_the_setting(settings: Settings, clock: Clock, tmp_path: Path) -> None:
    small = settings.model_copy(update={"keep_observed": 6, "database": sqlite_with_tables(tmp_path / "small.sqlite3")})
    with Advisor(small, clock=clock) as advisor:
        advisor.inventory.put(CLOUD, mode="replace", generation=None)
        advisor.outcomes.record_colocation(seen(0, platform="x1"))
        for number in range(1, 6):
            advisor.outcomes.record_colocation(seen(number, web=number / 10))
        rows = rows_of(advisor, "analytic")
    assert [row.observed for row in rows if row.instance == "a" and row.platform == "I"] == [0.3, 0.4, 0.5]
    assert len([row for row in rows if row.platform == "x1"]) == 2
