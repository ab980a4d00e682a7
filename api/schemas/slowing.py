"""Schemas of who slows whom, predicted beside measured."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from pydantic import Field

from advisor.domain import MeasuredSlowing, Slowing, SlowingHere, SlowingSource
from api.schemas.base import AnswerBody, Figure, Time

FELT = 0.01  # of a ratio: what is lost below it is not listed


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
            begin=datetime.fromtimestamp(measured.begin_s, UTC),
            end=datetime.fromtimestamp(measured.end_s, UTC),
            windows=measured.windows,
            watched=list(measured.watched),
            elsewhere=measured.elsewhere,
            pairs=beside(predicted, measured.found),
        )


def beside(predicted: Iterable[Slowing], measured: Iterable[MeasuredSlowing]) -> list[SlowingOut]:
    """Each pair of which something is predicted or measured, once, the largest loss of the two first."""
    said = {(one.victim, one.neighbour): one.loss for one in predicted if one.loss >= FELT}
    seen = {(one.victim, one.neighbour): one for one in measured}
    pairs = [_pair(pair, said.get(pair), seen.get(pair)) for pair in sorted(said.keys() | seen.keys())]
    return sorted(pairs, key=lambda one: -max(one.predicted or 0.0, one.measured or 0.0))


def _pair(pair: tuple[str, str], predicted: float | None, seen: MeasuredSlowing | None) -> SlowingOut:
    return SlowingOut(
        victim=pair[0],
        neighbour=pair[1],
        predicted=predicted,
        measured=seen.loss if seen else None,
        source=seen.source if seen else None,
        chance=seen.chance if seen else None,
    )
