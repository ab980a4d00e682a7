"""Several instances placed in one question: the answers, what they do together, and how they were found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from advisor.domain.answers import Recommendation
from advisor.domain.figures import Score
from advisor.domain.summaries import RecommendationSummary

BatchOrder = Literal["given", "joint"]  # as a question asks for it
BurstTrial = Literal["given", "largest_first", "planned_worst", "planned_total", "planned_pack"]
BurstSearchEnd = Literal["search", "time"]


@dataclass(frozen=True, slots=True)
class BurstFigures:
    """What the answers of a batch do together."""

    placed: Annotated[int, Field(description="instances that found a host")]
    not_kept: Annotated[
        int,
        Field(
            description="instances, on hosts that take new VMs, whose relative throughput falls below their limit, or "
            "0.9 where they have none"
        ),
    ]
    hosts_used: Annotated[int, Field(description="hosts of the cloud that hold an instance")]
    harm: Annotated[
        Score,
        Field(
            description="what the objective (of pack: worst) counts against all of them at once; lower is better, and "
            "of one instance it is 1 - its score"
        ),
    ]


@dataclass(frozen=True, slots=True)
class JointSearch:
    """How joint answers were found, and by how much they are better than those in the order given."""

    chosen: Annotated[
        BurstTrial,
        Field(
            description="given: no trial was better; largest_first: answered in turn, the largest first; planned_*: on "
            "the hosts of a plan of that objective"
        ),
    ]
    tried: Annotated[tuple[BurstTrial, ...], Field(description="the trials that were finished")]
    ended: Annotated[BurstSearchEnd, Field(description="search: all were; time: the time limit kept some from it")]
    found: Annotated[BurstFigures, Field(description="of the answers")]
    given: Annotated[BurstFigures, Field(description="of the answers in the order given")]


_Joint = Annotated[JointSearch | None, Field(description="how joint answers were found; null = in the order given")]


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """The answers, each as that to one question."""

    answers: Annotated[tuple[Recommendation, ...], Field(description="one for each instance, in their order")]
    joint: _Joint = None


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """The answers in short, each as that to one question."""

    answers: Annotated[tuple[RecommendationSummary, ...], Field(description="one for each instance, in their order")]
    joint: _Joint = None

    @classmethod
    def of(cls, whole: BatchAnswer) -> BatchSummary:
        """The same in short."""
        return cls(tuple(RecommendationSummary.of(answer) for answer in whole.answers), whole.joint)
