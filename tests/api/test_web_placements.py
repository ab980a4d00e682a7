"""Answers beside their outcomes, and models: what the pages tell, and that names from outside stay text."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from advisor.domain import Band, Instance, ModelCard, Page, PlacementRequest, PredictedVsObserved, RecommendationOutcome
from advisor.service import Advisor
from advisor.settings import Settings
from api.html import picture
from tests.api.api_client import Client, bent_client
from tests.api.sample_answer import HOSTILE, answer

ASKED = PlacementRequest(Instance("shop-7"))


def shown(advisor: Advisor, settings: Settings, path: str, **bent: Any) -> str:
    page = bent_client(advisor, settings, **bent).page(path)
    assert page.status_code == 200
    return " ".join(re.sub(r"<[^>]+>", " ", page.text).split())


def test_an_outcome_is_compared_with_what_was_predicted(advisor: Advisor, settings: Settings) -> None:
    placed = advisor.placements.place(PlacementRequest(Instance("shop-8", vcpus=1, memory_mb=1024))).recommendation
    best = placed.candidates[0]
    inside, outside = best.new_vm.throughput_ratio.expected, 0.01
    ratios = {"shop-8": inside, **{one.instance: outside for one in best.neighbours}}
    advisor.outcomes.record(placed.id, best.host, ratios)
    found = advisor.outcomes.get(placed.id)
    assert (found.beside[0].instance, found.beside[0].inside) == ("shop-8", True)
    assert all(row.inside is False for row in found.beside[1:])
    listed = shown(advisor, settings, "/placements")
    assert f"Of {len(ratios)} measured ratios, 1 (" in listed
    assert "inside" in listed
    one = shown(advisor, settings, f"/placements/{placed.id}")
    assert f"1 of {len(ratios)} measured ratios lie inside" in one


def test_who_was_not_predicted_is_not_counted_as_missed(advisor: Advisor, settings: Settings) -> None:
    reported, band = answer(ASKED), Band(0.95, 0.9, 1.0)
    rows = (
        PredictedVsObserved("shop-7", 0.95, band),
        PredictedVsObserved("shop-3", 0.5, band),
        PredictedVsObserved("late", 0.5),
    )
    one = RecommendationOutcome(reported, "h1", reported.created_at, rows)
    for more, says in ((None, "Of 2 measured ratios, 1 ("), ("c", "Of 2 measured ratios of the last 100 answers")):
        page = shown(advisor, settings, "/placements", outcomes={"page": lambda more=more, **_: Page((one,), more)})
        assert "inside 1 of 2" in page
        assert says in page


def test_an_outcome_of_neighbours_alone_is_listed_with_the_prediction_for_the_new_vm(
    advisor: Advisor, settings: Settings
) -> None:
    placed = advisor.placements.place(PlacementRequest(Instance("shop-8", vcpus=1, memory_mb=1024))).recommendation
    best = placed.candidates[0]
    advisor.outcomes.record(placed.id, best.host, {"shop-1": 0.9})
    assert f"{best.new_vm.throughput_ratio.expected:.2f}" in shown(advisor, settings, "/placements")


def test_an_answer_without_an_outcome_says_how_to_tell_one(advisor: Advisor, settings: Settings) -> None:
    placed = advisor.placements.place(PlacementRequest(Instance("shop-8"), dry_run=True)).recommendation
    assert f"POST /v1/placements/{placed.id}/outcome" in shown(advisor, settings, f"/placements/{placed.id}")
    assert "Nothing has been placed yet" in shown(advisor, settings, "/placements")
    assert "dry run" in shown(advisor, settings, "/placements?which=all")


def test_a_host_that_was_not_among_the_candidates_is_not_judged(advisor: Advisor, settings: Settings) -> None:
    placed = advisor.placements.place(
        PlacementRequest(Instance("shop-8", vcpus=1, memory_mb=1024), hosts=("h1",))
    ).recommendation
    advisor.outcomes.record(placed.id, "h2", {"shop-8": 0.5})
    page = shown(advisor, settings, f"/placements/{placed.id}")
    assert "not to h1 as advised" in page
    assert "Nothing was predicted for that host" in page


def test_a_measurement_is_reported_as_above_or_below() -> None:
    band = Band(0.9, 0.8, 0.95)
    rows = [picture.beside(PredictedVsObserved("a", measured, band)) for measured in (0.7, 0.8, 0.96)]
    assert [(row.words, row.inside) for row in rows] == [("below", False), ("inside", True), ("above", False)]
    assert picture.beside(PredictedVsObserved("a", 0.5)).words == "not predicted there"


def test_names_of_answers_stay_text(advisor: Advisor, settings: Settings) -> None:
    reported = answer(ASKED, hostile=HOSTILE, notes=(HOSTILE,))
    one = RecommendationOutcome(
        reported, HOSTILE, reported.created_at, (PredictedVsObserved(HOSTILE, 0.5, Band(0.5, 0.4, 0.6)),)
    )
    client = bent_client(advisor, settings, outcomes={"get": lambda _: one, "page": lambda **_: Page((one,))})
    for path in ("/placements", "/placements/r-1"):
        assert "<img src=x" not in client.page(path).text


def test_a_card_of_any_shape_is_shown(advisor: Advisor, settings: Settings) -> None:
    odd = {
        "figures": {"throughput": {"unseen_pair": {"mae": "none"}, "x": 3}, "y": []},
        "datasets": [{"name": HOSTILE}],
        "libraries": ["a"],
        "blends": {"a": [1, {"b": 2.5}]},
    }
    (prior,) = advisor.models.listing()
    model = replace(prior, version="m-1", status="candidate", card=odd, verdict=None)
    assert isinstance(model, ModelCard)
    models: dict[str, Any] = {"get": lambda _: model, "listing": lambda: (model, prior)}
    outcomes = {"quality": lambda _: advisor.outcomes.quality("analytic")}
    client = bent_client(advisor, settings, models=models, outcomes=outcomes)
    for path in ("/models", "/models/m-1", "/models/m-1/confirm?change=activate"):
        page = client.page(path)
        assert page.status_code == 200
        assert "<img src=x" not in page.text


def test_what_is_not_there_is_not_found(client: Client) -> None:
    assert client.page("/models/m-9").status_code == 404
    assert client.page("/plans/p-9").status_code == 404
