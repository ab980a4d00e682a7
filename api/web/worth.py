"""What the advice was worth, on `/worth`: predicted against measured, and followed placements beside others alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import HTMLResponse

from advisor.domain import AdviceWorth, AlternativeNow, FaredBeside, PlacementWorth, PredictedVsObserved
from api.html import picture
from api.html.render import page
from api.routes.common import OutcomeDep
from api.routes.instances import Since

_LEAST_SCALE = 0.01  # of a share: the picture of differences reaches at least so far
_WHO = {"new_vm": "Placed as advised", "residents": "Residents before it"}


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """Two groups side by side; `low`, `mark` and `high` place their difference in a picture with 0 in its middle.

    None = too few to tell.
    """

    who: str
    group: FaredBeside
    low: float | None
    mark: float | None
    high: float | None
    level: str


@dataclass(frozen=True, slots=True)
class WorthRow:
    """One placement, with its picture and the hosts where it could have gone instead."""

    it: PlacementWorth
    beside: picture.BesideRow | None
    free: AlternativeNow | None
    best: AlternativeNow | None


def worth(request: Request, outcomes: OutcomeDep, since: Since = "7d") -> HTMLResponse:
    """What the advice of a week, or of another time, was worth."""
    advice = outcomes.worth(since=since)
    edges = (abs(edge) for group in advice.beside for edge in (group.lower, group.upper) if edge is not None)
    scale = max((_LEAST_SCALE, *edges))
    return page(
        request,
        "worth.html",
        advice=advice,
        notes=_notes(advice),
        since=since,
        differences=[_difference(group, scale) for group in advice.beside],
        scale=scale,
        rows=[_row(placement) for placement in advice.placements],
    )


def _notes(advice: AdviceWorth) -> Sequence[str]:
    """The sentences from the comparisons on; tables show what the sentences before them say."""
    texts = {group.text for group in advice.beside}
    first = next((at for at, sentence in enumerate(advice.sentences) if sentence in texts), 2)
    return advice.sentences[first:]


def _difference(group: FaredBeside, scale: float) -> DifferenceRow:
    if group.lower is None or group.upper is None or group.difference is None:
        return DifferenceRow(_WHO[group.who], group, None, None, None, "")
    low, mark, high = (
        round(picture.WIDTH / 2 * (1 + 0.95 * at / scale), 1) for at in (group.lower, group.difference, group.upper)
    )
    level = "good" if group.lower > 0 else "bad" if group.upper < 0 else "fair"
    return DifferenceRow(_WHO[group.who], group, low, mark, high, level)


def _row(placement: PlacementWorth) -> WorthRow:
    beside = None
    if placement.new_vm is not None:
        beside = picture.beside(PredictedVsObserved(placement.instance, placement.new_vm.observed, placement.band))
    others = [other for other in placement.alternatives if other.why != "here"]
    free = next((other for other in others if other.why == "most_free"), None)
    return WorthRow(placement, beside, free, max(others, key=lambda other: other.share, default=None))
