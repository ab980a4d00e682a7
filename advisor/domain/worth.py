"""What the advice was worth: how placements that followed it fared, against predictions and against others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from advisor.domain.answers import Band

# The instance went where it was advised to, went elsewhere, was not seen yet or at all, or no host could take it.
Heeded = Literal["followed", "elsewhere", "unseen", "no_host"]
# Who is compared: the newcomers themselves, or those who were on the host before.
FaredAs = Literal["newcomer", "residents"]
# Why a host is among the alternatives: it is where the instance is, the answer showed it, or most was free there.
WhyHost = Literal["here", "answer", "most_free"]


@dataclass(frozen=True, slots=True)
class AlternativeNow:
    """A host, and what the model says now of the instance there, with the demand that is known by now: its share of the
    CPU time that it wants, and the mean share of all others on this host and on that where it is. `others_here` is the
    same where it is. Whether there is room now does not count."""

    host: str
    why: WhyHost
    share: float
    others: float
    others_here: float


@dataclass(frozen=True, slots=True)
class PredictedAndMeasured:
    """Mean shares of the CPU time that was wanted, run / (run + wait), in so many windows of five minutes: as predicted
    before (`told`, None = nothing was) and as measured, and the part of windows inside the predicted range. Contended
    ones had a share below 0.98, predicted or measured."""

    windows: int
    told: float | None
    observed: float
    inside: float | None
    contended: int
    contended_told: float | None
    contended_observed: float | None


@dataclass(frozen=True, slots=True)
class PlacementWorth:
    """One placement that was asked for and seen: where it went, how it fared, and how it would fare now elsewhere.

    `advised` is the first host of the answer, `shown` are all of them, `most_free` is where Nova's weighers would have
    put it. `band` is what was predicted of the instance where it is, None = nothing was. `newcomer` and `residents` are
    None before the first window. `alternatives` begin with where it is, and are empty once it has left.
    """

    recommendation: str
    instance: str
    host: str
    advised: str | None
    asked_at: datetime
    seen_at: datetime
    heeded: Heeded
    band: Band | None
    newcomer: PredictedAndMeasured | None
    residents: PredictedAndMeasured | None
    shown: tuple[str, ...] = ()
    most_free: str | None = None
    alternatives: tuple[AlternativeNow, ...] = ()


@dataclass(frozen=True, slots=True)
class FaredBeside:
    """Who followed the advice beside others like them: mean shares of the CPU time that was wanted.

    Of `group` who followed and were measured, `matched` have an instance like them; `others` are those, and all are on
    `hosts`. The edges are of the 90 % interval of the difference; None where they are too few to tell, which `text`
    says.
    """

    who: FaredAs
    group: int
    matched: int
    others: int
    hosts: int
    followed: float | None
    not_followed: float | None
    lower: float | None
    upper: float | None
    text: str

    @property
    def difference(self) -> float | None:
        """How much more those got who followed; below 0 = less."""
        if self.followed is None or self.not_followed is None:
            return None
        return self.followed - self.not_followed


@dataclass(frozen=True, slots=True)
class AdviceWorth:
    """What the advice of a span of time was worth.

    `heeded` counts the placements that were asked for; `arrivals` are all instances that came, `measured` those of them
    that agents measured for an hour. `told` is of placements that were followed. `sentences` say it all in words.
    """

    since: datetime
    until: datetime
    heeded: Mapping[Heeded, int]
    arrivals: int
    measured: int
    told: Mapping[FaredAs, PredictedAndMeasured] = field(default_factory=dict)
    beside: tuple[FaredBeside, ...] = ()
    placements: tuple[PlacementWorth, ...] = ()
    sentences: tuple[str, ...] = ()
