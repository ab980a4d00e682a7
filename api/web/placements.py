"""The answers that were given, each beside what was told of it afterwards, on `/placements`."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request
from fastapi.responses import HTMLResponse

from advisor.domain import AnsweredAs, RecommendationOutcome
from api.html.render import page
from api.routes.common import Cursor, OutcomeDep, PathId
from api.web import picture
from api.web.answer import answer

_ROWS = 25
_LAST = 100  # answers with an outcome that the share inside is taken from


def listing(request: Request, outcomes: OutcomeDep, which: AnsweredAs = "real", cursor: Cursor = None) -> HTMLResponse:
    """Answers, newest first, predicted beside observed where an outcome was told."""
    found = outcomes.page(which=which, cursor=cursor, limit=_ROWS)
    told = outcomes.page(which="told", limit=_LAST)
    return page(
        request,
        "placements.html",
        rows=found.items,
        next_cursor=found.next_cursor,
        first=cursor is None,
        which=which,
        share=_share(told.items),
        last=_LAST if told.next_cursor else None,
        picture=picture,
    )


def one(request: Request, placement: PathId, outcomes: OutcomeDep) -> HTMLResponse:
    """One answer as it was given, and what was told of it."""
    found = outcomes.get(placement)
    told = found.recommendation
    limit = {told.request.instance.id: told.request.instance.min_throughput_ratio}
    return page(
        request,
        "placement.html",
        found=found,
        answer=answer(told, told.request.instance, {}),
        beside=[picture.beside(row, limit=limit.get(row.instance)) for row in found.beside],
        share=_share([found]),
        picture=picture,
    )


def _share(answered: Sequence[RecommendationOutcome]) -> tuple[int, int]:
    """How many of the measured ratios lie inside the interval that was told, of how many."""
    judged = [row.inside for one in answered for row in one.beside if row.inside is not None]
    return sum(judged), len(judged)
