"""Co-locations that users post move the next answers about these instances, in every process, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from advisor.access.audit import acting
from advisor.domain import Host, Instance, Inventory, PlacementRequest, ProbeReport, Recommendation, Scene
from advisor.errors import InvalidInput
from advisor.service import Advisor
from advisor.settings import Settings
from models.data.dataset import load_dataset
from models.data.window_dataset import holds_windows
from models.features.examples import build_examples
from models.prediction import InterferencePrediction
from profiler.demand import Demand, Resource
from profiler.observed import HELD_BACK, STOLEN, Colocation, IsolationSettings, Outcome, ProbeResult, Quantity
from tests.advisor.service.service_clock import Clock
from tests.advisor.service.two_models import Sure

BUSY: dict[Resource, Demand] = {"cpu": Demand(0.9, spread=0.0, common=0.0, origin="measured", windows=300.0)}
DB = Instance("db-3", vcpus=1, host="h1", demand=BUSY)
WEB = Instance("web-9", vcpus=1, demand=BUSY)
OTHER = Instance("batch-1", vcpus=1, host="h2", demand=BUSY)
CLOUD = Inventory(
    (Host("h1", "kvm", 1, 8192), Host("h2", "kvm", 1, 8192)),
    (DB, OTHER, Instance("web-9", vcpus=1, host="h1", demand=BUSY)),
)
ASKED = PlacementRequest(WEB, dry_run=True)


@pytest.fixture(autouse=True)
def _cloud(advisor: Advisor) -> None:
    advisor.inventory.put(CLOUD, mode="replace", generation=None)


def post(advisor: Advisor, number: int, ratio: float, *, name: str = "web-9", platform: str = "h1") -> None:
    outcomes = (
        Outcome(Instance(name), "throughput", 100.0, 100.0 * ratio, "1/s"),
        Outcome(Instance("db-3"), "throughput", None, None, "1/s"),
    )
    advisor.outcomes.record_colocation(Colocation(f"run-{number}", platform, "1", outcomes))


def reached(answer: Recommendation, host: str) -> tuple[float, float, float]:
    candidate = next(one for one in answer.candidates if one.host == host)
    band = candidate.new_vm.throughput_ratio
    return band.lower, band.expected, band.upper


def test_forty_results_move_the_next_answer_its_range_and_say_so(advisor: Advisor) -> None:
    before = advisor.placements.place(ASKED).recommendation
    low, was, _ = reached(before, "h1")
    assert was < 0.65
    for number in range(40):
        post(advisor, number, 0.9)
    after = advisor.placements.place(ASKED).recommendation
    lower, expected, _ = reached(after, "h1")
    assert 0.8 < expected <= 0.9
    assert lower > low
    assert "Answers are moved by 40 measured results of web-9 beside db-3 on h1." in after.notes
    assert after.candidates[0].host == "h1"
    assert reached(after, "h2")[1] < 0.75  # beside another: less


def test_answers_about_others_stay_as_they_were_to_the_bit(advisor: Advisor) -> None:
    request = PlacementRequest(Instance("new-1", vcpus=1, demand=BUSY), hosts=("h2",), dry_run=True)
    before = advisor.placements.place(request).recommendation
    for number in range(5):
        post(advisor, number, 0.9)
    after = advisor.placements.place(request).recommendation
    assert after.candidates == before.candidates
    assert after.notes == before.notes


def test_another_process_is_moved_alike(advisor: Advisor, settings: Settings, clock: Clock) -> None:
    with Advisor(settings, clock=clock) as other:
        scene = Scene(CLOUD.hosts[0], (DB, WEB))
        before = other.placements.predict(scene)
        for number in range(40):
            post(advisor, number, 0.9)
        assert other.placements.predict(scene) == advisor.placements.predict(scene) != before


def test_a_host_that_is_not_there_moves_nothing_until_it_comes(advisor: Advisor) -> None:
    before = advisor.placements.place(ASKED).recommendation
    for number in range(10):
        post(advisor, number, 0.9, platform="h9")
    assert advisor.placements.place(ASKED).recommendation.candidates == before.candidates
    advisor.inventory.put_host(Host("h9", "kvm", 1, 8192))
    assert reached(advisor.placements.place(ASKED).recommendation, "h1")[1] > reached(before, "h1")[1]


def test_the_sender_is_kept_so_that_one_of_many_results_does_not_outvote_others(advisor: Advisor) -> None:
    for team in range(6):
        with acting(f"team-{team}", ""):
            for number in range(3):
                post(advisor, 10 * team + number, 0.9)
    _, honest, _ = reached(advisor.placements.place(ASKED).recommendation, "h1")
    with acting("liar", ""):
        for number in range(100, 160):
            post(advisor, number, 0.05)
    _, after, _ = reached(advisor.placements.place(ASKED).recommendation, "h1")
    assert after > 0.85 * honest
    with advisor._database.read() as connection:
        senders = connection.scalars(sa.text("SELECT DISTINCT sender FROM colocations ORDER BY sender")).all()
    assert senders == ["liar", *(f"team-{team}" for team in range(6))]


def test_where_nothing_was_posted_nothing_is_wrapped(advisor: Advisor, clock: Clock) -> None:
    from advisor.prediction.posted import posted_of

    _, active = advisor._cache.at(clock.now)
    assert posted_of(active.predictor) is None
    post(advisor, 1, 0.9)
    _, active = advisor._cache.at(clock.now)
    assert posted_of(active.predictor) is not None


def test_what_was_posted_is_rows_of_the_next_training_with_what_the_inventory_knows(advisor: Advisor) -> None:
    with pytest.raises(InvalidInput, match="200 are needed"):
        advisor.telemetry_datasets(86_400.0)
    for number in range(3):
        post(advisor, number, 0.9)
    post(advisor, 9, 0.5, platform="nowhere")
    (folder,) = advisor.telemetry_datasets(86_400.0)
    dataset = load_dataset(folder)
    assert dataset.origin == "measured"
    assert not holds_windows(folder)
    examples = build_examples([dataset], ())
    assert examples.ratio.tolist() == [0.9, 0.9, 0.9]
    assert examples.victim == ("web-9",) * 3
    (demand,) = {run.outcomes[0].instance.demand["cpu"].mean for run in dataset.colocations}
    assert demand == 0.9


@pytest.mark.usefixtures("two")
def test_a_model_that_fails_on_what_was_posted_still_leaves_the_question_to_the_prior(
    advisor: Advisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    advisor.inventory.put(CLOUD, mode="replace", generation=None)
    post(advisor, 1, 0.9)
    monkeypatch.setattr(Sure, "predict", failing)
    post(advisor, 2, 0.9)
    answer = advisor.placements.place(ASKED).recommendation
    assert answer.degraded
    assert answer.candidates


def failing(*_: object, **__: object) -> InterferencePrediction:
    raise RuntimeError("out of order")


ROOMY = Inventory(
    (Host("h1", "kvm", 4, 8192), Host("h2", "kvm", 4, 8192)),
    (
        *(Instance(name, vcpus=1, host="h1", demand=BUSY) for name in ("web-9", "db-3")),
        *(Instance(name, vcpus=1, host="h2", demand=BUSY) for name in ("batch-1", "batch-2")),
    ),
)


def probed(
    clock: Clock,
    number: int,
    value: float,
    *,
    probe: str = "cpu-share.share",
    instance: str = "web-9",
    peer: str = "db-3",
    marks: tuple[str, ...] = (),
    found: Mapping[str, str] | None = None,
) -> ProbeReport:
    name, _, main = probe.partition(".")
    unit = {"share": "%", "median": "ms"}.get(main, "1")
    result = ProbeResult(name, {main: Quantity(value, unit)}, main, found or {}, marks)
    return ProbeReport("h1", result, clock() - timedelta(minutes=number), instance, peer)


def predicted(advisor: Advisor, host: int, name: str) -> tuple[float, float, float]:
    scene = Scene(ROOMY.hosts[host], tuple(one for one in ROOMY.instances if one.host == ROOMY.hosts[host].id))
    (effect,) = (one for one in advisor.placements.predict(scene).effects if one.instance == name)
    band = effect.throughput_ratio
    return band.lower, band.expected, band.upper


def counted(advisor: Advisor) -> dict[tuple[str, str, str], str]:
    return {(one.result.probe, one.instance, one.peer): one.why_not_counted for one in advisor.telemetry.probes().items}


def test_twenty_probe_results_of_a_pair_move_answers_about_it_and_no_others(advisor: Advisor, clock: Clock) -> None:
    advisor.inventory.put(ROOMY, mode="replace", generation=None)
    low, was, _ = predicted(advisor, 0, "web-9")
    others = [predicted(advisor, 1, name) for name in ("batch-1", "batch-2")]
    neighbour = predicted(advisor, 0, "db-3")
    assert was >= 0.95
    advisor.telemetry.take_probes([probed(clock, 0, 60.0)])
    one = predicted(advisor, 0, "web-9")[1]
    advisor.telemetry.take_probes([probed(clock, number, 60.0) for number in range(1, 20)])
    lower, expected, _ = predicted(advisor, 0, "web-9")
    assert 0.6 < expected < 0.75
    assert expected < one < 0.9
    assert lower < 0.6 < low
    assert [predicted(advisor, 1, name) for name in ("batch-1", "batch-2")] == others
    assert predicted(advisor, 0, "db-3") == neighbour  # nothing was measured of it
    for number in range(20):
        post(advisor, number, 0.6)
    assert 0.6 <= predicted(advisor, 0, "web-9")[1] < expected  # its own work says more
    assert counted(advisor) == {("cpu-share", "web-9", "db-3"): ""}


def test_the_same_probe_result_twice_moves_nothing_more(advisor: Advisor, clock: Clock) -> None:
    advisor.inventory.put(ROOMY, mode="replace", generation=None)
    advisor.telemetry.take_probes([probed(clock, 0, 60.0)])
    once = predicted(advisor, 0, "web-9")
    advisor.telemetry.take_probes([probed(clock, 0, 60.0)] * 5)
    assert predicted(advisor, 0, "web-9") == once


@pytest.mark.parametrize(
    ("one", "why"),
    [
        ({"peer": ""}, "one instance"),
        ({"peer": "batch-1"}, "not both on h1"),
        ({"peer": "h2"}, "not both on h1"),
        ({"peer": "web-9"}, "no neighbour of its own"),
        ({"probe": "tcp.throughput"}, "the way to its far end"),
        ({"probe": "cpu-share.gaps"}, "it has no share"),
        ({"probe": "cpu-work.median"}, "no result of web-9 without a peer"),
        ({"marks": ("stopped before its end",)}, "it is marked"),
    ],
)
def test_probe_results_that_say_nothing_of_two_instances_move_nothing_and_say_why(
    advisor: Advisor, clock: Clock, one: dict[str, str], why: str
) -> None:
    advisor.inventory.put(ROOMY, mode="replace", generation=None)
    before = predicted(advisor, 0, "web-9")
    assert advisor.telemetry.take_probes([probed(clock, 0, 30.0, **one)])["accepted"] == 1  # type: ignore[arg-type]
    assert predicted(advisor, 0, "web-9") == before
    assert why in next(iter(counted(advisor).values()))


def test_what_neighbours_take_is_no_reason_against_a_result_of_a_pair(advisor: Advisor, clock: Clock) -> None:
    advisor.inventory.put(ROOMY, mode="replace", generation=None)
    before = predicted(advisor, 0, "web-9")
    marks = f"the hypervisor below took 38.0 {STOLEN}", f"{HELD_BACK} loop ran 60.0 % of the time"
    advisor.telemetry.take_probes([probed(clock, 0, 60.0, marks=marks)])
    assert predicted(advisor, 0, "web-9")[1] < before[1] - 0.05


def ratios(advisor: Advisor) -> dict[str, list[float]]:
    """What is learned of each program."""
    (folder,) = advisor.telemetry_datasets(86_400.0)
    examples = build_examples([load_dataset(folder)], ())
    found: dict[str, list[float]] = {}
    for victim, ratio in zip(examples.victim, examples.ratio.tolist(), strict=True):
        found.setdefault(victim, []).append(round(ratio, 6))
    return found


def test_times_are_relative_to_those_without_a_peer_of_equal_work(advisor: Advisor, clock: Clock) -> None:
    advisor.inventory.put(ROOMY, mode="replace", generation=None)
    same, more = {"iterations": "1000", "load": "0.1"}, {"iterations": "2000"}
    work = "cpu-work.median"
    advisor.telemetry.take_probes([probed(clock, 9, 500.0, probe=work, peer="", found=same | {"load": "2.0"})])
    advisor.telemetry.take_probes(
        [probed(clock, 3, 625.0, probe=work, found=same), probed(clock, 2, 900.0, probe=work, found=more)]
    )
    assert ratios(advisor) == {"cpu-work": [0.8]}


def test_a_probe_is_learned_from_as_the_loop_that_it_is_relative_to_its_cap(advisor: Advisor, clock: Clock) -> None:
    capped = replace(ROOMY.instances[0], settings=IsolationSettings(cap_percent=50.0))
    advisor.inventory.put(Inventory(ROOMY.hosts, (capped, *ROOMY.instances[1:])), mode="replace", generation=None)
    advisor.telemetry.take_probes([probed(clock, number, 30.0) for number in range(3)])
    assert ratios(advisor) == {"cpu-share": [0.6] * 3}
    (folder,) = advisor.telemetry_datasets(86_400.0)
    described = {
        outcome.instance.workload: outcome.instance.demand["cpu"].mean
        for run in load_dataset(folder).colocations
        for outcome in run.outcomes
    }
    assert described == {"cpu-share": 1.0, "db-3": 0.9}


def test_reported_outcomes_of_placements_move_answers_and_the_last_report_counts(advisor: Advisor) -> None:
    answer = advisor.placements.place(ASKED).recommendation
    _, was, _ = reached(answer, "h1")
    others = advisor.placements.predict(Scene(CLOUD.hosts[1], (OTHER, Instance("new-1", demand=BUSY))))
    advisor.outcomes.record(answer.id, "h1", {"web-9": 0.9, "db-3": 0.5, "stranger": 0.1})
    high = reached(advisor.placements.place(ASKED).recommendation, "h1")
    assert high[1] > was + 0.05
    assert ratios(advisor) == {"db-3": [0.5], "web-9": [0.9]}
    advisor.outcomes.record(answer.id, "h1", {"web-9": 0.3})
    assert reached(advisor.placements.place(ASKED).recommendation, "h1")[1] < was
    assert ratios(advisor) == {"web-9": [0.3]}
    assert advisor.placements.predict(Scene(CLOUD.hosts[1], (OTHER, Instance("new-1", demand=BUSY)))) == others
    advisor.outcomes.record(answer.id, "h2", {"web-9": 0.3})  # it went elsewhere after all
    (folder,) = advisor.telemetry_datasets(86_400.0)
    assert {run.platform for run in load_dataset(folder).colocations} == {"h2"}


def test_an_outcome_of_a_new_vm_that_the_inventory_has_not_yet_is_its_own(advisor: Advisor) -> None:
    request = PlacementRequest(Instance("new-1", vcpus=1, demand=BUSY), hosts=("h2",))
    answer = advisor.placements.place(request).recommendation
    _, was, _ = reached(answer, "h2")
    advisor.outcomes.record(answer.id, "h2", {"new-1": 0.95})
    assert reached(advisor.placements.place(request).recommendation, "h2")[1] > was + 0.05
    assert ratios(advisor) == {"new-1": [0.95]}
