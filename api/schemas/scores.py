"""Schemas of scores: one number from 0 to 100 for each VM, and histograms for hosts and the cloud."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from advisor.domain import (
    NO_SCORES,
    SCORE_BUCKETS,
    CloudScores,
    HostMemory,
    ScorePoint,
    ScoreSummary,
    VmScore,
    VmScorePoint,
)
from advisor.domain.figures import Tenths
from api.schemas.base import AnswerBody, Time

MOST_LISTED = 100  # hosts, and VMs of the cloud


class ScoresIn(AnswerBody):
    """Scores of several VMs."""

    instances: int = Field(description="how many VMs run")
    measured: int = Field(description="of how many the CPU time was measured in the last window; the others: predicted")
    mean: Tenths | None = Field(description="mean score, 0-100; null where no VM runs")
    lowest: Tenths | None = Field(description="lowest score; null where no VM runs")
    buckets: dict[str, int] = Field(description="how many VMs have a score in each fifth; 80-100 holds 100, too")

    @classmethod
    def fields_of(cls, of: ScoreSummary) -> dict[str, object]:
        """The values of these fields."""
        return {
            "instances": of.instances,
            "measured": of.measured,
            "mean": of.mean,
            "lowest": of.lowest,
            "buckets": dict(zip(SCORE_BUCKETS, of.counts, strict=True)),
        }


class HostScoreOut(ScoresIn):
    """Scores of the VMs of one host."""

    host: str = Field(description="the host")


class ScorePointOut(ScoresIn):
    """Scores in one window of five minutes."""

    time: Time = Field(description="when the window ended")


class VmScoresOut(AnswerBody):
    """Scores of one VM."""

    instance: str = Field(description="the VM")
    time: Time = Field(description="as of when")
    now: VmScore | None = Field(description="its score with the factors; null where it does not run")
    history: list[VmScorePoint] = Field(
        description="windows of five minutes, the oldest first; of more than 300 the lowest of each equal step"
    )


class ScoresOut(AnswerBody):
    """Scores of the cloud."""

    time: Time = Field(description="as of when")
    cloud: ScoresIn = Field(description="of all VMs that run")
    hosts: list[HostScoreOut] = Field(description="hosts with VMs, the lowest mean first, at most 100")
    lowest: list[VmScore] = Field(description="VMs below 60, the lowest first, at most 100")
    history: list[ScorePointOut] = Field(
        description="windows of the cloud, the oldest first; of more than 300 the lowest of each equal step"
    )

    @classmethod
    def of(cls, now: CloudScores, history: Iterable[ScorePoint]) -> ScoresOut:
        """From the domain."""
        return cls.model_validate(
            {
                "time": now.time,
                "cloud": ScoresIn.fields_of(now.cloud),
                "hosts": [
                    {"host": host, **ScoresIn.fields_of(of)} for host, of in now.hosts_lowest_first[:MOST_LISTED]
                ],
                "lowest": [*now.lowest(MOST_LISTED)],
                "history": points(history),
            }
        )


class HostScoresOut(ScoresIn):
    """Scores of one host."""

    host: str = Field(description="the host")
    time: Time = Field(description="as of when")
    memory: HostMemory | None = Field(description="of the host; null = not measured in the last 15 minutes")
    vms: list[VmScore] = Field(description="its VMs, the lowest score first")
    history: list[ScorePointOut] = Field(description="windows of the host, as those of the cloud")

    @classmethod
    def of_host(
        cls, now: CloudScores, host: str, history: Iterable[ScorePoint], memory: HostMemory | None
    ) -> HostScoresOut:
        """From the domain."""
        return cls.model_validate(
            {
                "host": host,
                "time": now.time,
                **ScoresIn.fields_of(now.hosts.get(host, NO_SCORES)),
                "memory": memory,
                "vms": list(now.on(host)),
                "history": points(history),
            }
        )


def points(history: Iterable[ScorePoint]) -> list[dict[str, object]]:
    """A history as the values of ScorePointOut."""
    return [{"time": point.time, **ScoresIn.fields_of(point.scores)} for point in history]
