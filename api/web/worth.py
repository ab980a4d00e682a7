"""What the advice was worth, on `/worth`: predicted against measured, and who followed beside others like them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import HTMLResponse

from advisor.domain import AdviceWorth, AlternativeNow, FaredBeside, PlacementWorth, PredictedVsObserved
from api.html.render import page
from api.routes.common import OutcomeDep
from api.routes.instances import Since
from api.web import picture

_LEAST_SCALE = 0.01  # of a share: the picture of differences reaches at least so far
_WHO = {"newcomer": "Who was placed", "residents": "Who was there before"}


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """Two groups side by side; `low`, `mark` and `high` are where the difference stands in a picture with 0 in its
    middle, None = too few to tell."""

    who: str
    found: FaredBeside
    low: float | None
    mark: float | None
    high: float | None
    level: str

    @property
    def words(self) -> str:
        return self.found.text


@dataclass(frozen=True, slots=True)
class WorthRow:
    """One placement, with its picture and where it would have been otherwise."""

    it: PlacementWorth
    beside: picture.BesideRow | None
    free: AlternativeNow | None
    best: AlternativeNow | None


def worth(request: Request, outcomes: OutcomeDep, since: Since = "7d") -> HTMLResponse:
    """What the advice of a week, or of another time, was worth."""
    found = outcomes.worth(since=since)
    scale = max(
        [_LEAST_SCALE, *(abs(edge) for one in found.beside for edge in (one.lower, one.upper) if edge is not None)]
    )
    return page(
        request,
        "worth.html",
        found=found,
        notes=_notes(found),
        since=since,
        differences=[_difference(one, scale) for one in found.beside],
        scale=scale,
        rows=[_row(one) for one in found.placements],
        picture=picture,
    )


def _notes(found: AdviceWorth) -> Sequence[str]:
    """The sentences from the comparisons on: tables say what stands before them."""
    texts = {one.text for one in found.beside}
    first = next((at for at, sentence in enumerate(found.sentences) if sentence in texts), 2)
    return found.sentences[first:]


def _difference(one: FaredBeside, scale: float) -> DifferenceRow:
    if one.lower is None or one.upper is None or one.difference is None:
        return DifferenceRow(_WHO[one.who], one, None, None, None, "")
    low, mark, high = (
        round(picture.WIDTH / 2 * (1 + 0.95 * at / scale), 1) for at in (one.lower, one.difference, one.upper)
    )
    level = "good" if one.lower > 0 else "bad" if one.upper < 0 else "fair"
    return DifferenceRow(_WHO[one.who], one, low, mark, high, level)


def _row(one: PlacementWorth) -> WorthRow:
    beside = None
    if one.newcomer is not None:
        beside = picture.beside(PredictedVsObserved(one.instance, one.newcomer.observed, one.band))
    others = [two for two in one.alternatives if two.why != "here"]
    free = next((two for two in others if two.why == "most_free"), None)
    return WorthRow(one, beside, free, max(others, key=lambda two: two.share, default=None))
