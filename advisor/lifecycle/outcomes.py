"""Stored answers beside their reported outcomes: each band that was predicted, and the ratio that was measured."""

from __future__ import annotations

from sqlalchemy import Connection

from advisor.domain import AnsweredAs, Page, PredictedVsObserved, Recommendation, RecommendationOutcome
from advisor.store import recommendations
from advisor.store.recommendations import RecordedOutcome


def page(connection: Connection, which: AnsweredAs, *, cursor: str | None, limit: int) -> Page[RecommendationOutcome]:
    """Answers with their outcomes, newest first."""
    answers = recommendations.list_with_outcomes(
        connection, reported=which == "reported", real=which == "real", cursor=cursor, limit=limit
    )
    return Page(tuple(beside(*item) for item in answers.items), answers.next_cursor)


def beside(answer: Recommendation, outcome: RecordedOutcome | None) -> RecommendationOutcome:
    """An answer and its outcome, instance by instance: the new VM first, then as it was reported."""
    if outcome is None:
        return RecommendationOutcome(answer)
    placed = next((candidate for candidate in answer.candidates if candidate.host == outcome.host), None)
    bands = (
        {effect.instance: effect.throughput_ratio for effect in (placed.new_vm, *placed.neighbours)} if placed else {}
    )
    new_vm = answer.request.instance.id
    names = sorted(outcome.ratios, key=lambda name: (name != new_vm, name))
    rows = tuple(PredictedVsObserved(name, outcome.ratios[name], bands.get(name)) for name in names)
    return RecommendationOutcome(answer, outcome.host, outcome.recorded_at, rows)
