"""Schemas of the interference between instances, predicted beside measured."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from advisor.domain import MeasuredSlowing, Slowing, SlowingHere, SlowingSource
from api.schemas.base import AnswerBody, Figure, Time, utc_time

FELT = 0.01  # of a ratio: smaller losses are not listed


class SlowingOut(AnswerBody):
    """What one instance loses to one other."""

    victim: str = Field(description="the instance that loses")
    neighbour: str = Field(description="the neighbour that it loses to")
    predicted: Figure = Field(
        description="by how much its relative throughput would be higher without that one; null = less than 0.01"
    )
    measured: Figure = Field(
        description="the part of its CPU demand that it loses to that one; null = nothing was seen"
    )
    source: SlowingSource | None = Field(
        description="of what was measured: its run queue shows which instance ran while it waited; by correlation it "
        "waits more in windows in which that one runs"
    )
    chance: Figure = Field(description="p-value of the correlation")


class HostSlowing(AnswerBody):
    """How instances on a host slow each other down, the largest loss first."""

    host: str = Field(description="the host")
    begin: Time = Field(description="since when it was measured")
    end: Time = Field(description="until when")
    windows: int = Field(description="windows of five minutes that correlations had; under 36 say nothing")
    watched: list[str] = Field(description="instances whose run queue was watched; of these no correlation is asked")
    elsewhere: bool = Field(description="true = another store has the samples, so nothing measured is shown")
    pairs: list[SlowingOut] = Field(description="pairs of which something is predicted or measured")

    @classmethod
    def of(cls, measured: SlowingHere, predicted: Iterable[Slowing]) -> HostSlowing:
        """From the domain."""
        return cls(
            host=measured.host,
            begin=utc_time(measured.begin_s),
            end=utc_time(measured.end_s),
            windows=measured.windows,
            watched=list(measured.watched),
            elsewhere=measured.elsewhere,
            pairs=beside(predicted, measured.found),
        )


def beside(predicted: Iterable[Slowing], measured: Iterable[MeasuredSlowing]) -> list[SlowingOut]:
    """Each pair of which something is predicted or measured, once, the largest loss of the two first."""
    losses = {(slowing.victim, slowing.neighbour): slowing.loss for slowing in predicted if slowing.loss >= FELT}
    seen = {(slowing.victim, slowing.neighbour): slowing for slowing in measured}
    pairs = [_pair(pair, losses.get(pair), seen.get(pair)) for pair in sorted(losses.keys() | seen.keys())]
    return sorted(pairs, key=lambda pair: -max(pair.predicted or 0.0, pair.measured or 0.0))


def _pair(pair: tuple[str, str], predicted: float | None, measured: MeasuredSlowing | None) -> SlowingOut:
    return SlowingOut(
        victim=pair[0],
        neighbour=pair[1],
        predicted=predicted,
        measured=measured.loss if measured else None,
        source=measured.source if measured else None,
        chance=measured.chance if measured else None,
    )
