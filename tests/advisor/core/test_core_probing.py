"""Measurement plans: they lower regret, cost what they say, and propose nothing that cannot matter."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import PROBE_PINNINGS, Instance, ProbePlan, ProbeRequest
from advisor.errors import InvalidInput
from advisor.experiments import probe_planning
from advisor.experiments.decisions import SharedErrors, decision, lay_out
from advisor.prediction.active import ActivePredictor
from advisor.scheduling import filters
from advisor.scheduling.scoring import EQUAL
from advisor.snapshot import ClusterSnapshot
from models.physics.prior import PriorPredictor
from models.prediction import Predictor
from tests.advisor.core.core_clouds import FRESH_S, Counting, Failing, ask, cloud, host, hosts_of, request, vm
from tests.advisor.core.probe_world import ONE_CPU, Model, made_cloud, measured, regrets, scores
from tests.examples import examples

RUN_S = 20 + probe_planning.WARMUP_S + probe_planning.AROUND_S

NEW_VMS = [vm("n", "w1"), vm("m", "w4")]


def plan(
    snapshot: ClusterSnapshot,
    instances: list[Instance] | None = None,
    predictor: Predictor | None = None,
    **more: object,
) -> ProbePlan:
    asked = None if instances is None else tuple(instances)
    question = ProbeRequest(**{"budget_s": 3600.0, "instances": asked, **more})  # type: ignore[arg-type]
    probe_planning.check(question)
    return probe_planning.plan(snapshot, ActivePredictor(predictor or PriorPredictor()), question, fresh_s=FRESH_S)


# the plan against chance


def test_measuring_the_plan_lowers_regret_more_than_measuring_as_many_random_pairs() -> None:
    rounds = []
    for seed in range(6):
        snapshot = made_cloud(seed)
        draw = np.random.default_rng(seed)
        wanted = {f"n{number}": f"w{draw.integers(6)}" for number in range(3)}
        instances = [vm(name, workload) for name, workload in wanted.items()]
        model = Model(seed)
        errors = SharedErrors(("same",))
        questions = probe_planning._asked(snapshot, ProbeRequest(1.0), instances, FRESH_S)
        probe_planning._decisions(snapshot, model, questions, errors)
        chosen = [step.pair for step in plan(snapshot, instances, model, budget_s=12 * 60.0).steps]
        anything = random.Random(seed).sample(list(errors.pairs), len(chosen))
        models = (model, model.knowing(measured(chosen)), model.knowing(measured(anything)))
        rounds.append(regrets(snapshot, wanted, models))
    now, planned, chance = np.mean(rounds, axis=0)
    assert now > 0.03  # there is something to be won
    assert planned < 0.5 * now
    assert planned < 0.7 * chance


def test_the_regret_that_the_plan_expects_is_the_regret_that_comes() -> None:
    """Over many worlds drawn from what the model believes, today's choices lose what the plan says they lose."""
    snapshot = made_cloud(3)
    new_vm = vm("n", "w1")
    expected = plan(snapshot, [new_vm], Model(0)).decisions[0].regret_before
    todays, *_ = scores(snapshot, "n", "w1", Model(0))  # who has measured nothing believes the same of every world
    worlds = [scores(snapshot, "n", "w1", Model(seed).truth) for seed in range(100)]
    lost = [max(true.values()) - true[todays] for true in worlds]
    assert expected == pytest.approx(np.mean(lost), abs=3 * np.std(lost) / np.sqrt(len(lost)) + 0.002)


# what a plan is


@pytest.mark.parametrize("budget_s", [60.0, 900.0, 7200.0])
def test_a_plan_keeps_its_budget_and_says_what_each_step_takes(budget_s: float) -> None:
    answer = plan(made_cloud(1), NEW_VMS, Model(1), budget_s=budget_s)
    seconds = np.array([step.seconds for step in answer.steps])
    assert answer.seconds <= budget_s
    assert [step.cumulative_s for step in answer.steps] == pytest.approx(seconds.cumsum())
    assert seconds % (3 * RUN_S) == pytest.approx(0.0)
    assert answer.run_s == RUN_S
    if not answer.steps:
        assert budget_s == 60.0
        assert probe_planning.sentence(answer).startswith("No pair that is worth measuring fits the budget")


def test_the_same_question_has_the_same_plan() -> None:
    one, other = (plan(made_cloud(2), NEW_VMS, Model(2)) for _ in range(2))
    assert one == other
    assert one.steps


def test_base_cases_are_paid_for_once() -> None:
    answer = plan(made_cloud(1), NEW_VMS, Model(1), budget_s=7200.0)
    seen: set[str] = set()
    for step in answer.steps:
        new = {step.pair.first, step.pair.second} - seen
        assert step.seconds == pytest.approx(3 * RUN_S * (1 + len(new)))
        seen |= new


def test_a_pair_that_meets_nowhere_or_changes_nothing_is_never_proposed() -> None:
    snapshot = cloud(
        [host("a", **ONE_CPU), host("b", **ONE_CPU), host("far", **ONE_CPU, enabled=False)],
        [vm("quiet", "w0", on="a"), vm("loud", "w1", on="b"), vm("other", "w5", on="far")],
        workloads=made_cloud(0).workloads,
    )
    pairs = {(step.pair.first, step.pair.second) for step in plan(snapshot, [vm("n", "w2")], Model(1)).steps}
    assert pairs
    assert pairs <= {("w0", "w2"), ("w1", "w2")}
    assert plan(snapshot, [vm("n", "w2")], Model(1, spread=0.001)).steps == ()


def test_two_residents_of_one_host_are_not_measured_for_a_new_vm_they_do_not_bear_on() -> None:
    """What r and s do to each other is the same with the new VM anywhere, but for the new VM's own host's score."""
    there = [vm("r", "w3", on="b"), vm("s", "w4", on="b"), vm("t", "w0", on="a")]
    snapshot = cloud([host("a", **ONE_CPU), host("b", **ONE_CPU)], there, workloads=made_cloud(0).workloads)
    first = plan(snapshot, [vm("n", "w2")], Model(4)).steps[0].pair
    assert "w2" in {first.first, first.second}


def test_one_host_is_nothing_to_decide_and_hosts_without_neighbours_need_no_measurement() -> None:
    answer = plan(cloud([host("a")], [vm("r", "web", on="a")]))
    assert (answer.steps, answer.decisions, answer.ended) == ((), (), "settled")
    assert probe_planning.sentence(answer) == "Nothing is worth measuring: no instance has two places to choose from."
    empty = plan(cloud([host("a"), host("b")]), [vm("n", "web")])
    assert empty.steps == ()
    assert probe_planning.sentence(empty).startswith("Nothing is worth measuring")


def test_who_names_no_workload_is_not_measured_and_the_plan_says_so() -> None:
    snapshot = cloud([host("a", **ONE_CPU), host("b", **ONE_CPU)], [vm("who", None, on="a"), vm("r", "web", on="b")])
    answer = plan(snapshot, [vm("n", "spin")])
    assert {(step.pair.first, step.pair.second) for step in answer.steps} <= {("spin", "web")}
    (note,) = answer.notes
    assert note.startswith("who names no workload: ")


def test_only_the_wanted_pinnings_are_measured() -> None:
    hosts = [host("a", pcpus=2), host("b", pcpus=2)]
    snapshot = cloud(hosts, [vm("r", "spin", on="a", pins="0:0"), vm("s", "web", on="b", pins="0:0")])
    every = plan(snapshot, [vm("n", "spin")], budget_s=36_000.0)
    only = plan(snapshot, [vm("n", "spin")], budget_s=36_000.0, pinnings=("different",))
    assert {step.pair.pinning for step in every.steps} - {"different"}
    assert {step.pair.pinning for step in only.steps} <= {"different"}


def test_everything_is_predicted_in_one_matrix() -> None:
    counting = Counting()
    plan(cloud([host("a"), host("b")], [vm("r", "web", on="a"), vm("s", "spin", on="b")]), predictor=counting)
    assert len(counting.asked) == 1


def test_a_failing_predictor_leaves_the_prior_to_plan() -> None:
    answer = plan(made_cloud(1), predictor=Failing())
    assert (answer.model_version, answer.degraded) == ("analytic", True)


# the simulated decision is the advisor's


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["worst", "total", "limits", "pack"]), st.booleans())
def test_todays_choice_is_as_good_as_the_one_that_where_gives(seed: int, objective: str, limited: bool) -> None:
    draw = random.Random(seed)
    names = ("spin", "calm", "web", "bulk", "disk", "copy")
    hosts = [host(f"h{at}", pcpus=draw.choice([1, 2, 4]), cpu_overcommit=8.0) for at in range(draw.randint(2, 14))]
    there = [
        vm(f"r{at}-{slot}", draw.choice(names), on=one.id)
        for at, one in enumerate(hosts)
        for slot in range(draw.randint(0, 2))
    ]
    snapshot = cloud(hosts, there)
    new_vm = vm("n", draw.choice(names), min_throughput_ratio=0.3 if limited else None)
    question = request(new_vm, objective=objective)
    answer = ask(snapshot, question)
    isolated = any(one.isolation.weight or one.isolation.cap_percent for one in answer.candidates)
    if not answer.candidates or isolated or any(one.code.startswith("limit") for one in answer.rejected):
        return  # isolation settings, which the simulation leaves alone, may have decided
    kept, _ = filters.apply(snapshot, question, fresh_s=FRESH_S)
    asked = lay_out(snapshot, question, kept)
    band = PriorPredictor().predict(asked.scenes).throughput
    one = decision(snapshot, asked, band, SharedErrors(PROBE_PINNINGS))
    ratios = one.uncertain
    todays = one.hosts[int(one.choose(ratios.expected[None], ratios.lower[None])[0])]
    scores = {candidate.host: candidate.score for candidate in answer.candidates}
    assert todays == hosts_of(answer)[0] or scores[todays] >= answer.candidates[0].score - EQUAL
    assert list(one.hosts) == sorted(one.hosts, key=[host.id for host in snapshot.hosts].index)
    squares = (ratios.weights**2).sum(axis=1)
    assert np.all(np.isclose(squares, 1.0) | (squares == 0.0))


def test_hosts_that_are_alike_count_as_one() -> None:
    hosts = [host(f"h{number:02}") for number in range(40)]
    snapshot = cloud(hosts, [vm(f"r{number}", "web", on=f"h{number:02}") for number in range(20)])
    question = request(vm("n", "spin"))
    asked = lay_out(snapshot, question, list(range(40)))
    one = decision(snapshot, asked, PriorPredictor().predict(asked.scenes).throughput, SharedErrors(PROBE_PINNINGS))
    assert set(one.hosts) <= {"h00", "h20"}


# what is refused


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), ("45m", 2700.0), ("2h", 7200.0), ("0.5h", 1800.0)])
def test_durations_are_read(text: str, seconds: float) -> None:
    assert probe_planning.duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "-3m", "0m", "1e9s", "31d", "5 m", "9" * 400 + "s"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="budget"):
        probe_planning.duration_s(text)


@pytest.mark.parametrize(
    "wrong",
    [{"budget_s": 0.0}, {"rounds": 0}, {"seconds_per_run": 0}, {"pinnings": ()}, {"seed": -1}, {"objective": "no"}],
)
def test_a_wrong_request_names_the_field(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as reported:
        probe_planning.check(replace(ProbeRequest(60.0, instances=(vm(),)), **wrong))  # type: ignore[arg-type]
    assert reported.value.field == next(iter(wrong))
