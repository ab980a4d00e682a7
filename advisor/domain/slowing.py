"""Which instances of a host slow which, predicted beside measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from advisor.domain.figures import Figure

FELT = 0.01  # of a ratio: smaller losses are not listed
SlowingSource = Literal["run queue", "correlation"]


@dataclass(frozen=True, slots=True)
class Slowing:
    """What `victim` would keep more of its speed without `neighbour`, as T/B; below 0 = it is better off with it."""

    victim: str
    neighbour: str
    loss: float


@dataclass(frozen=True, slots=True)
class MeasuredSlowing:
    """The part of the CPU time of its demand that `victim` loses to `neighbour`, as measured.

    By "run queue": for so long it waited while that one ran. By "correlation": by so much more it waited in windows in
    which that one ran, at its mean use; `chance` is the p-value, None = it was seen and not inferred.
    """

    victim: str
    neighbour: str
    loss: float
    source: SlowingSource
    chance: float | None


@dataclass(frozen=True, slots=True)
class SlowingHere:
    """Which instances slow which on a host as measured from `begin` to `end`, the largest loss first.

    `windows` are those that a correlation had, `watched` the instances whose run queue was watched; of these no
    correlation is asked. `elsewhere` = another store has the samples, and nothing is reported.
    """

    host: str
    begin: datetime
    end: datetime
    windows: int
    watched: tuple[str, ...]
    found: tuple[MeasuredSlowing, ...]
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class SlowingPair:
    """What one instance loses to one other."""

    victim: Annotated[str, Field(description="the instance that loses")]
    neighbour: Annotated[str, Field(description="the neighbour that it loses to")]
    predicted: Annotated[
        Figure | None,
        Field(
            description="by how much its relative throughput would be higher without that one; null = less than 0.01"
        ),
    ]
    measured: Annotated[
        Figure | None,
        Field(description="the part of its CPU demand that it loses to that one; null = nothing was seen"),
    ]
    source: Annotated[
        SlowingSource | None,
        Field(
            description="of what was measured: its run queue shows which instance ran while it waited; by correlation "
            "it waits more in windows in which that one runs"
        ),
    ]
    chance: Annotated[Figure | None, Field(description="p-value of the correlation")]


@dataclass(frozen=True, slots=True)
class HostSlowing:
    """How instances on a host slow each other down, the largest loss first."""

    host: Annotated[str, Field(description="the host")]
    begin: Annotated[datetime, Field(description="since when it was measured")]
    end: Annotated[datetime, Field(description="until when")]
    windows: Annotated[int, Field(description="windows of five minutes that correlations had; under 36 say nothing")]
    watched: Annotated[
        tuple[str, ...],
        Field(description="instances whose run queue was watched; of these no correlation is asked"),
    ]
    elsewhere: Annotated[bool, Field(description="true = another store has the samples, so nothing measured is shown")]
    pairs: Annotated[tuple[SlowingPair, ...], Field(description="pairs of which something is predicted or measured")]

    @classmethod
    def of(cls, measured: SlowingHere, predicted: Iterable[Slowing]) -> HostSlowing:
        """What was measured, beside what is predicted."""
        here = measured
        pairs = beside(predicted, here.found)
        return cls(here.host, here.begin, here.end, here.windows, here.watched, here.elsewhere, pairs)


def beside(predicted: Iterable[Slowing], measured: Iterable[MeasuredSlowing]) -> tuple[SlowingPair, ...]:
    """Each pair of which something is predicted or measured, once, the largest loss of the two first."""
    losses = {(slowing.victim, slowing.neighbour): slowing.loss for slowing in predicted if slowing.loss >= FELT}
    seen = {(slowing.victim, slowing.neighbour): slowing for slowing in measured}
    pairs = [_pair(pair, losses.get(pair), seen.get(pair)) for pair in sorted(losses.keys() | seen.keys())]
    return tuple(sorted(pairs, key=lambda pair: -max(pair.predicted or 0.0, pair.measured or 0.0)))


def _pair(pair: tuple[str, str], predicted: float | None, seen: MeasuredSlowing | None) -> SlowingPair:
    if seen is None:
        return SlowingPair(*pair, predicted, None, None, None)
    return SlowingPair(*pair, predicted, seen.loss, seen.source, seen.chance)
