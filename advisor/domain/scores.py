"""Scores: one number from 0 to 100 for each VM, and histograms of them for hosts and the cloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field, computed_field

from advisor.domain.figures import Known, Tenths

SCORE_BUCKETS = ("0-20", "20-40", "40-60", "60-80", "80-100")  # of scores; the last one holds 100, too
LOW_WINDOWS = 3  # windows of five minutes one after the other, before a low score is an alarm
LOW_SCORE = 60.0  # a VM below it loses two fifths of what it could do
ScoreSource = Literal["measured", "predicted"]


@dataclass(frozen=True, slots=True)
class VmScore:
    """The score of one VM: 100 x cpu x devices x memory (see advisor.scheduling.vm_scores)."""

    instance: Annotated[str, Field(description="the VM")]
    host: Annotated[str, Field(description="where it is")]
    score: Annotated[Tenths, Field(description="0-100; 100 = uncontended")]
    source: Annotated[ScoreSource, Field(description="whether `cpu` was measured in the last window or is predicted")]
    cpu: Annotated[Known | None, Field(description="CPU delivered, 0-1; null where no demand is known")]
    devices: Annotated[Known, Field(description="what driver domain, network, disk and caches leave, 0-1; predicted")]
    memory: Annotated[
        Known | None,
        Field(description="part of the time without stalls for memory, 0-1; null = not measured, counts as none"),
    ]


@dataclass(frozen=True, slots=True)
class ScoreSummary:
    """Scores of several VMs: how many there are in each of SCORE_BUCKETS, and of how many the CPU time was measured.

    `mean` and `lowest` are None where there is no VM.
    """

    counts: tuple[int, ...]
    mean: float | None
    lowest: float | None
    measured: int

    @property
    def instances(self) -> int:
        """How many VMs there are."""
        return sum(self.counts)

    @property
    def low(self) -> int:
        """How many VMs are below LOW_SCORE, a border of buckets."""
        return sum(self.counts[: int(LOW_SCORE // 20)])


NO_SCORES = ScoreSummary((0,) * len(SCORE_BUCKETS), None, None, 0)


@dataclass(frozen=True, slots=True)
class CloudScores:
    """The scores of all VMs that run at `time`: of the cloud, of each host by id, and of each VM by id."""

    time: datetime
    cloud: ScoreSummary
    hosts: Mapping[str, ScoreSummary]
    instances: Mapping[str, VmScore]

    @property
    def hosts_lowest_first(self) -> Sequence[tuple[str, ScoreSummary]]:
        """Hosts with VMs by their mean, then by id."""
        ranked = [(of.mean, host, of) for host, of in self.hosts.items() if of.mean is not None]
        return [(host, of) for _, host, of in sorted(ranked, key=lambda one: one[:2])]

    def on(self, host: str) -> Sequence[VmScore]:
        """The VMs of a host, the lowest score first."""
        there = [of for of in self.instances.values() if of.host == host]
        return sorted(there, key=lambda of: (of.score, of.instance))

    def lowest(self, most: int, below: float = LOW_SCORE) -> Sequence[VmScore]:
        """The VMs below a score, the lowest first."""
        low = [of for of in self.instances.values() if of.score < below]
        return sorted(low, key=lambda of: (of.score, of.instance))[:most]


@dataclass(frozen=True, slots=True)
class ScorePoint:
    """The scores in the window of five minutes that ended at `time`."""

    time: datetime
    scores: ScoreSummary


@dataclass(frozen=True, slots=True)
class VmScorePoint:
    """The score of one VM in a window of five minutes."""

    time: Annotated[datetime, Field(description="when the window ended")]
    score: Annotated[Tenths, Field(description="0-100, rounded")]
    source: Annotated[ScoreSource, Field(description="whether CPU delivered was measured or predicted")]


@dataclass(frozen=True, slots=True)
class LowScore:
    """A VM whose measured score was low in the last windows."""

    instance: Annotated[str, Field(description="the VM")]
    host: Annotated[str, Field(description="where it is")]
    score: Annotated[Tenths, Field(description="its score now, 0-100")]
    below: Annotated[Tenths, Field(description="the score below which it is an alarm (COTENANT_SCORE_ALARM)")]
    windows: Annotated[int, Field(description="windows of five minutes with a lower one, at most those of a day")]
    until: Annotated[datetime, Field(description="when the last of them ended")]

    @property
    def since(self) -> datetime:
        """When the first of these windows began."""
        return self.until - timedelta(minutes=5 * self.windows)

    @computed_field(description="it in words")  # type: ignore[prop-decorator]
    @property
    def text(self) -> str:
        """It in words."""
        return (
            f"The measured score of {self.instance} on {self.host} is {self.score:.0f}, and was below {self.below:.0f} "
            f"in {self.windows} windows since {self.since:%Y-%m-%d %H:%M} UTC."
        )
