"""The answers that were given, each beside the outcome that was reported, on `/placements`."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request
from fastapi.responses import HTMLResponse

from advisor.domain import AnsweredAs, RecommendationOutcome
from api.html import picture
from api.html.render import page
from api.routes.common import Cursor, OutcomeDep, PathId
from api.web.answer import answer
from api.web.form import OBJECTIVE_WORDS

_ROWS = 25
_LAST = 100  # answers with an outcome, of which the share inside is taken


def listing(request: Request, outcomes: OutcomeDep, which: AnsweredAs = "real", cursor: Cursor = None) -> HTMLResponse:
    """Answers, newest first, predicted beside observed where an outcome was reported."""
    answers = outcomes.page(which=which, cursor=cursor, limit=_ROWS)
    reported = outcomes.page(which="reported", limit=_LAST)
    return page(
        request,
        "placements.html",
        rows=answers.items,
        next_cursor=answers.next_cursor,
        first=cursor is None,
        which=which,
        share=_share(reported.items),
        last=_LAST if reported.next_cursor else None,
    )


def show(request: Request, placement: PathId, outcomes: OutcomeDep) -> HTMLResponse:
    """One answer as it was given, and the outcome that was reported."""
    outcome = outcomes.get(placement)
    recommendation = outcome.recommendation
    instance = recommendation.request.instance
    limit = {instance.id: instance.min_throughput_ratio}
    return page(
        request,
        "placement.html",
        outcome=outcome,
        answer=answer(recommendation, instance, {}),
        objective=OBJECTIVE_WORDS[recommendation.request.objective],
        beside=[picture.beside(row, limit=limit.get(row.instance)) for row in outcome.beside],
        share=_share([outcome]),
    )


def _share(outcomes: Sequence[RecommendationOutcome]) -> tuple[int, int]:
    """How many of the measured ratios lie inside the predicted interval, and of how many."""
    inside = [row.inside for outcome in outcomes for row in outcome.beside if row.inside is not None]
    return sum(inside), len(inside)
