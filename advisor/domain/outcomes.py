"""What became of an advised placement, predicted beside observed, and what the advice was worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, computed_field

from advisor.domain.answers import Recommendation
from advisor.domain.effects import Band
from models.figures import Figure, Known
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


# Effect of the advice: how placements that followed it fared, against predictions and against others.

# The instance went where it was advised to, went elsewhere, was not seen yet or at all, or no host could take it.
Heeded = Literal["followed", "elsewhere", "unseen", "no_host"]
# What is compared: the instances that were placed, or those that were on the host before.
FaredAs = Literal["new_vm", "residents"]
# Why a host is among the alternatives: it is where the instance is, the answer showed it, or most was free there.
WhyHost = Literal["here", "answer", "most_free"]


@dataclass(frozen=True, slots=True)
class AlternativeNow:
    """What the model says now of the instance on a host, with the demand that is known by now; whether there is room is
    not asked."""

    host: Annotated[str, Field(description="the host")]
    why: Annotated[
        WhyHost,
        Field(description="here: where it is; answer: the answer showed it; most_free: Nova's weighers' choice"),
    ]
    share: Annotated[Known, Field(description="CPU delivered, as a part of its demand")]
    others: Annotated[Known, Field(description="mean share of all others on this host and on where it is")]
    others_here: Annotated[Known, Field(description="the same with the instance where it is")]


@dataclass(frozen=True, slots=True)
class PredictedAndMeasured:
    """Mean CPU delivered, run / (run + wait), in windows of five minutes."""

    windows: Annotated[int, Field(description="windows, of one instance each")]
    predicted: Annotated[Figure | None, Field(description="predicted before; null = nothing was")]
    observed: Annotated[Known, Field(description="measured")]
    inside: Annotated[Figure | None, Field(description="part of the windows inside the predicted range")]
    contended: Annotated[int, Field(description="windows with a share below 0.98, predicted or measured")]
    contended_predicted: Annotated[Figure | None, Field(description="predicted, of those")]
    contended_observed: Annotated[Figure | None, Field(description="measured, of those")]


@dataclass(frozen=True, slots=True)
class PlacementWorth:
    """One placement that was asked for and seen."""

    recommendation: Annotated[str, Field(description="id of the answer")]
    instance: Annotated[str, Field(description="the instance")]
    host: Annotated[str, Field(description="where it went")]
    advised: Annotated[str | None, Field(description="first host of the answer; null = none could take it")]
    asked_at: Annotated[datetime, Field(description="when it was answered")]
    seen_at: Annotated[datetime, Field(description="when the inventory first showed it there")]
    heeded: Annotated[Heeded, Field(description="followed or elsewhere")]
    band: Annotated[Band | None, Field(description="share that was predicted of it where it is; null = none was")]
    new_vm: Annotated[
        PredictedAndMeasured | None,
        Field(description="how it fared in its first week; null = no window yet"),
    ]
    residents: Annotated[PredictedAndMeasured | None, Field(description="the same of the instances on the host before")]
    shown: Annotated[tuple[str, ...], Field(exclude=True)] = ()  # all hosts of the answer
    most_free: Annotated[
        str | None, Field(description="the host that Nova's weighers would have chosen when it came")
    ] = None
    alternatives: Annotated[
        tuple[AlternativeNow, ...],
        Field(description="where it is, then the other hosts; empty once it has left"),
    ] = ()


@dataclass(frozen=True, slots=True)
class FaredBeside:
    """Placements that followed, beside others of the same size and class on hosts alike, with like demand, that came at
    the same time. They were not assigned at random: it is no proof of a cause."""

    who: Annotated[
        FaredAs,
        Field(description="new_vm: the instances placed; residents: the instances on the host before"),
    ]
    group: Annotated[int, Field(description="placements that followed and were measured for an hour")]
    matched: Annotated[int, Field(description="those of them that have a match among the others")]
    others: Annotated[
        int, Field(description="instances like them that did not follow, or that no advice was asked for")
    ]
    hosts: Annotated[int, Field(description="hosts of both; they are what the interval draws anew")]
    followed: Annotated[Figure | None, Field(description="mean share of those that followed; null = there is no match")]
    not_followed: Annotated[Figure | None, Field(description="mean share of the others")]
    lower: Annotated[
        Figure | None,
        Field(description="90 % bootstrap interval of the difference; null = too few for a comparison"),
    ]
    upper: Annotated[Figure | None, Field(description="its upper end")]
    text: Annotated[str, Field(description="the same as a sentence, with what is compared")]

    @computed_field(description="the first less the second; null = there is no match")  # type: ignore[prop-decorator]
    @property
    def difference(self) -> Figure | None:
        """How much more those got that followed; below 0 = less."""
        if self.followed is None or self.not_followed is None:
            return None
        return self.followed - self.not_followed


@dataclass(frozen=True, slots=True)
class AdviceWorth:
    """Effect of the advice in a span of time."""

    since: Annotated[datetime, Field(description="begin")]
    until: Annotated[datetime, Field(description="now")]
    heeded: Annotated[
        Mapping[Heeded, int],
        Field(
            description="placements that were asked for, by what became of them (several answers about one instance "
            "within a day are one): followed: the instance came to the first host of the answer within a day; "
            "elsewhere: it went to another host, or stayed; unseen: it was not seen on any host; no_host: none could "
            "take it"
        ),
    ]
    arrivals: Annotated[int, Field(description="instances that came to a host, asked for or not")]
    measured: Annotated[int, Field(description="those of them that agents measured for an hour")]
    followed: Annotated[
        Mapping[FaredAs, PredictedAndMeasured],
        Field(description="predicted and measured of placements that followed: new_vm, and residents of their hosts"),
    ] = field(default_factory=dict)
    beside: Annotated[
        tuple[FaredBeside, ...], Field(description="placements that followed beside others like them")
    ] = ()
    placements: Annotated[
        tuple[PlacementWorth, ...], Field(description="the newest 50 that were asked for and seen")
    ] = ()
    sentences: Annotated[tuple[str, ...], Field(description="all of it in words")] = ()
