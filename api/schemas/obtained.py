"""Schemas of what an instance obtained as it was measured."""

from __future__ import annotations

from pydantic import Field

from advisor.domain import ObtainedHere
from api.schemas.base import AnswerBody, Known, Time, utc_time


class ObtainedOut(AnswerBody):
    """One thing that says what it obtained, by windows of five minutes."""

    metric: str = Field(description="`cpu_share`, of which less is worse, or a metric of which more is worse")
    unit: str = Field(description="unit of the values; empty = a share from 0 to 1")
    help: str = Field(description="what it is")
    mean: Known = Field(description="mean over the windows")
    tail: Known = Field(description="95 % of the windows were no worse")
    worst: Known = Field(description="the worst window")
    windows: int = Field(description="windows in which it was measured")


class InstanceObtained(AnswerBody):
    """What an instance obtained, the share of CPU time first; what its host does not measure is left out."""

    instance: str = Field(description="the instance")
    begin: Time = Field(description="since when it was measured")
    end: Time = Field(description="until when")
    elsewhere: bool = Field(description="true = the store of `COTENANT_PROMETHEUS_URL` was asked")
    outcomes: list[ObtainedOut] = Field(description="what was measured")

    @classmethod
    def of(cls, obtained: ObtainedHere) -> InstanceObtained:
        """From the domain."""
        return cls(
            instance=obtained.instance,
            begin=utc_time(obtained.begin_s),
            end=utc_time(obtained.end_s),
            elsewhere=obtained.elsewhere,
            outcomes=[ObtainedOut.like(outcome) for outcome in obtained.found],
        )
