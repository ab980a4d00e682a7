"""What became of an answer: where the instance went, and each predicted ratio beside the one that was measured."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from advisor.domain.answers import Recommendation
from advisor.domain.effects import Band
from profiler.observed import Colocation

AnsweredAs = Literal["all", "real", "reported"]  # every answer, those that were no dry run, those with an outcome


@dataclass(frozen=True, slots=True)
class PredictedVsObserved:
    """One instance's throughput ratio as it was measured, and the `band` that was predicted before; None = none was."""

    instance: str
    measured: float
    band: Band | None = None

    @property
    def inside(self) -> bool | None:
        """Whether it was measured inside the interval; None where nothing was predicted."""
        return None if self.band is None else self.band.lower <= self.measured <= self.band.upper


@dataclass(frozen=True, slots=True)
class PostedColocation:
    """A co-location that a user posted, with who that was by the audit log, "" = from before senders were kept."""

    colocation: Colocation
    sender: str = ""


@dataclass(frozen=True, slots=True)
class RecommendationOutcome:
    """A stored answer and what was reported of it: `host` is where the instance went, `reported_at` None = nothing
    reported yet."""

    recommendation: Recommendation
    host: str | None = None
    reported_at: datetime | None = None
    beside: tuple[PredictedVsObserved, ...] = ()
