"""Schemas of what the advice was worth."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import Field

from advisor.domain import AdviceWorth
from api.schemas.base import AnswerBody, Figure, Known, Time


class HeededOut(AnswerBody):
    """Placements that were asked for, by what became of them; several answers about one instance within a day are
    one."""

    followed: int = Field(description="the instance came to the first host of the answer within a day")
    elsewhere: int = Field(description="it went to another host, or stayed where it was")
    unseen: int = Field(description="it was not seen on any host")
    no_host: int = Field(description="no host could take it")


class WorthBand(AnswerBody):
    """A predicted share with its range."""

    expected: Known = Field(description="expected share")
    lower: Known = Field(description="lower end")
    upper: Known = Field(description="upper end")


class PredictedAndMeasuredOut(AnswerBody):
    """Mean CPU delivered, run / (run + wait), in windows of five minutes."""

    windows: int = Field(description="windows, of one instance each")
    told: Figure = Field(description="predicted before; null = nothing was")
    observed: Known = Field(description="measured")
    inside: Figure = Field(description="part of the windows inside the predicted range")
    contended: int = Field(description="windows with a share below 0.98, predicted or measured")
    contended_told: Figure = Field(description="predicted, of those")
    contended_observed: Figure = Field(description="measured, of those")


class FaredBesideOut(AnswerBody):
    """Placements that followed, beside others of the same size and class on hosts alike, with like demand, that came at
    the same time. They were not assigned at random: it is no proof of a cause."""

    who: str = Field(description="newcomer: the instances placed; residents: the instances on the host before")
    group: int = Field(description="placements that followed and were measured for an hour")
    matched: int = Field(description="those of them that have a match among the others")
    others: int = Field(description="instances like them that did not follow, or that no advice was asked for")
    hosts: int = Field(description="hosts of both; they are what the interval draws anew")
    followed: Figure = Field(description="mean share of those that followed; null = there is no match")
    not_followed: Figure = Field(description="mean share of the others")
    difference: Figure = Field(description="the first less the second")
    lower: Figure = Field(description="90 % bootstrap interval of the difference; null = too few for a comparison")
    upper: Figure = Field(description="its upper end")
    text: str = Field(description="the same as a sentence, with what is compared")


class AlternativeOut(AnswerBody):
    """What the model says now of the instance on a host, with the demand that is known by now; whether there is room is
    not asked."""

    host: str = Field(description="the host")
    why: str = Field(description="here: where it is; answer: the answer showed it; most_free: Nova's weighers' choice")
    share: Known = Field(description="CPU delivered, as a part of its demand")
    others: Known = Field(description="mean share of all others on this host and on where it is")
    others_here: Known = Field(description="the same with the instance where it is")


class PlacementWorthOut(AnswerBody):
    """One placement that was asked for and seen."""

    recommendation: str = Field(description="id of the answer")
    instance: str = Field(description="the instance")
    host: str = Field(description="where it went")
    advised: str | None = Field(description="first host of the answer; null = none could take it")
    asked_at: Time = Field(description="when it was answered")
    seen_at: Time = Field(description="when the inventory first showed it there")
    heeded: str = Field(description="followed or elsewhere")
    band: WorthBand | None = Field(description="share that was predicted of it where it is; null = none was")
    newcomer: PredictedAndMeasuredOut | None = Field(description="how it fared in its first week; null = no window yet")
    residents: PredictedAndMeasuredOut | None = Field(description="the same of the instances on the host before")
    most_free: str | None = Field(description="the host that Nova's weighers would have chosen when it came")
    alternatives: list[AlternativeOut] = Field(description="where it is, then the other hosts; empty once it has left")


class AdviceWorthOut(AnswerBody):
    """What the advice was worth in a span of time."""

    since: Time = Field(description="begin")
    until: Time = Field(description="now")
    heeded: HeededOut = Field(description="placements that were asked for, by what became of them")
    arrivals: int = Field(description="instances that came to a host, asked for or not")
    measured: int = Field(description="those of them that agents measured for an hour")
    told: dict[str, PredictedAndMeasuredOut] = Field(
        description="predicted and measured of placements that followed: newcomer = the new VM, and residents of "
        "their hosts"
    )
    beside: list[FaredBesideOut] = Field(description="placements that followed beside others like them")
    placements: list[PlacementWorthOut] = Field(description="the newest 50 that were asked for and seen")
    sentences: list[str] = Field(description="all of it in words")

    @classmethod
    def of(cls, worth: AdviceWorth) -> AdviceWorthOut:
        """From the domain."""
        fields = asdict(worth)
        for row, group in zip(fields["beside"], worth.beside, strict=True):
            row["difference"] = group.difference
        for row in fields["placements"]:
            del row["shown"]
        return cls.model_validate(fields)
