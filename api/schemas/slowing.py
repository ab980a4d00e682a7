"""Schemas of who slows whom, predicted beside measured."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from advisor.domain import MeasuredSlowing, Slowing, SlowingHere, SlowingSource
from api.schemas.base import AnswerBody, Figure, Time, utc_time

FELT = 0.01  # of a ratio: smaller losses are not listed


class SlowingOut(AnswerBody):
    """What one instance loses to one other."""

    victim: str = Field(description="who loses")
    neighbour: str = Field(description="to whom")
    predicted: Figure = Field(
        description="what it would keep more of its speed without that one, as T/B; null = less than 0.01"
    )
    measured: Figure = Field(
        description="the part of the CPU time that it wants which it loses to that one; null = nothing was seen"
    )
    source: SlowingSource | None = Field(
        description="of what was measured: by its run queue it is known who ran while it waited; by correlation it "
        "waits more in windows in which that one runs"
    )
    chance: Figure = Field(description="p-value of the correlation")


class HostSlowing(AnswerBody):
    """Who slows whom on a host, the largest loss first."""

    host: str = Field(description="the host")
    begin: Time = Field(description="since when it was measured")
    end: Time = Field(description="until when")
    windows: int = Field(description="windows of five minutes that correlations had; under 36 say nothing")
    watched: list[str] = Field(description="instances whose run queue was watched; of these no correlation is asked")
    elsewhere: bool = Field(description="true = another store has the samples, and nothing measured is told")
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
