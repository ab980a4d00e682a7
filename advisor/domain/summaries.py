"""Short forms of answers, and a batch of placements with their joint search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from advisor.domain.answers import Candidate, Headroom, Recommendation, Rejection
from advisor.domain.cpu_maps import Pins
from advisor.domain.effects import DEGRADED, Band, Effect
from models.figures import Score, Thousandths

MOST_TIED = 10  # hosts that a candidate names as tied; the rest is in the whole answer


@dataclass(frozen=True, slots=True)
class WorstNeighbour:
    """The most affected neighbour of the new VM on a host."""

    instance: Annotated[str, Field(description="the neighbour")]
    throughput_ratio: Annotated[Band, Field(description="its relative throughput beside the new VM")]


@dataclass(frozen=True, slots=True)
class CandidateSummary:
    """One host that can take the instance."""

    rank: Annotated[int, Field(description="1 is the best")]
    host: Annotated[str, Field(description="the host")]
    score: Annotated[Score, Field(description="by the objective that was asked for; higher is better")]
    throughput_ratio: Annotated[Band, Field(description="the new VM's relative throughput")]
    worst_neighbour: Annotated[
        WorstNeighbour | None,
        Field(
            description="the neighbour with the lowest expected relative throughput; null = no other instance is there"
        ),
    ]
    tied_with: Annotated[
        tuple[str, ...],
        Field(
            description="hosts whose difference lies within the uncertainty, where no instance is visibly worse off; "
            "10 at most"
        ),
    ]
    pinning: Annotated[Pins | None, Field(description="the pCPUs of each vCPU that suit it best there; null = none")]
    changes_neighbours: Annotated[
        bool, Field(description="settings of neighbours change, too: read the whole answer before it is followed")
    ]
    headroom: Annotated[Headroom | None, Field(description="what would stay free there; null in answers of old")]

    @classmethod
    def of(cls, candidate: Candidate) -> CandidateSummary:
        """The same in short."""
        return cls(
            candidate.rank,
            candidate.host,
            candidate.score,
            candidate.new_vm.throughput_ratio,
            _worst(candidate.neighbours),
            candidate.tied_with[:MOST_TIED],
            candidate.pinning,
            bool(candidate.changes),
            candidate.headroom,
        )


@dataclass(frozen=True, slots=True)
class RejectedHosts:
    """Hosts that cannot take the instance for the same reason."""

    code: Annotated[str, Field(description="see docs/answers.md")]
    reason: Annotated[str, Field(description="the code as a sentence")]
    hosts: Annotated[tuple[str, ...], Field(description="the hosts that it is said of")]


@dataclass(frozen=True, slots=True)
class RecommendationSummary:
    """The ranked answer in short. The whole answer is stored, but for dry runs of a batch, and read by its id."""

    id: Annotated[str, Field(description="the answer's id")]
    created_at: Annotated[datetime, Field(description="when it was answered")]
    degraded: Annotated[bool, Field(description=DEGRADED)]
    dry_run: Annotated[bool, Field(description="it holds no host")]
    notes: Annotated[tuple[str, ...], Field(description="what else to know")]
    candidates: Annotated[tuple[CandidateSummary, ...], Field(description="hosts that can take it, best first")]
    rejected: Annotated[tuple[RejectedHosts, ...], Field(description="hosts that cannot take it, by reason")]

    @classmethod
    def of(cls, whole: Recommendation) -> RecommendationSummary:
        """The same in short."""
        return cls(
            whole.id,
            whole.created_at,
            whole.degraded,
            whole.dry_run,
            whole.notes,
            tuple(CandidateSummary.of(candidate) for candidate in whole.candidates),
            _by_reason(whole.rejected),
        )


def _worst(neighbours: Sequence[Effect]) -> WorstNeighbour | None:
    worst = min(neighbours, key=lambda effect: effect.throughput_ratio.expected, default=None)
    return None if worst is None else WorstNeighbour(worst.instance, worst.throughput_ratio)


def _by_reason(rejections: Sequence[Rejection]) -> tuple[RejectedHosts, ...]:
    """Hosts by code and sentence, in the order of the first of each."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for rejection in rejections:
        hosts.setdefault((rejection.code, rejection.reason), []).append(rejection.host)
    return tuple(RejectedHosts(code, reason, tuple(names)) for (code, reason), names in hosts.items())


# What several services, each of a part of the cloud, answer to one question.

CellState = Literal["answered", "refused", "late", "unreachable", "unreadable"]


@dataclass(frozen=True, slots=True)
class CellCandidate:
    """One host of a cell that can take the instance."""

    rank: Annotated[int, Field(description="1 is the best of all cells")]
    cell: Annotated[str, Field(description="the cell that has the host")]
    placement: Annotated[str, Field(description="the id of the cell's answer, by which the cell shows it whole")]
    candidate: Annotated[CandidateSummary, Field(description="the host as the cell ranks it")]


@dataclass(frozen=True, slots=True)
class CellReport:
    """How one cell answered."""

    cell: Annotated[str, Field(description="the cell")]
    state: Annotated[
        CellState,
        Field(
            description="answered; refused = it takes no such question, or not from this token; late, unreachable and "
            "unreadable = its hosts are missing from the answer"
        ),
    ]
    reason: Annotated[str, Field(description="why it gave no answer; empty where it did")] = ""
    seconds: Annotated[Thousandths, Field(description="how long it took")] = 0.0
    candidates: Annotated[int, Field(description="its hosts that can take the instance, of those asked for")] = 0
    rejected: Annotated[int, Field(description="its hosts that cannot")] = 0


@dataclass(frozen=True, slots=True)
class CellsAnswer:
    """The ranked answers of all cells, merged."""

    held: Annotated[bool, Field(description="the first candidate's cell holds its host for the instance")]
    candidates: Annotated[tuple[CellCandidate, ...], Field(description="hosts that can take it, best first")]
    cells: Annotated[tuple[CellReport, ...], Field(description="how each cell answered")]


# Several instances placed in one question: the answers, what they do together, and how they were found.

BatchOrder = Literal["given", "joint"]  # as a question asks for it
BurstTrial = Literal["given", "largest_first", "planned_worst", "planned_total", "planned_limits", "planned_pack"]
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
