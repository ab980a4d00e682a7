"""Co-locations that users post move the next answers about these instances, in every process, and no others."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from advisor.access.audit import acting
from advisor.domain import Host, Instance, Inventory, PlacementRequest, Recommendation, Scene
from advisor.errors import InvalidInput
from advisor.service import Advisor
from advisor.settings import Settings
from models.data.dataset import load_dataset
from models.data.window_dataset import holds_windows
from models.features.examples import build_examples
from models.prediction import InterferencePrediction
from profiler.demand import Demand, Resource
from profiler.observed import Colocation, Outcome
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
    band = candidate.newcomer.throughput_ratio
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
