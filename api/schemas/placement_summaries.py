"""Schemas of a placement answer in short: what a program needs to put an instance somewhere."""

from __future__ import annotations

from pydantic import Field

from api.schemas.base import AnswerBody, Score, Time
from api.schemas.effects import BandOut
from api.schemas.placements import JOINT, HeadroomOut, JointSearchOut


class WorstNeighbourOut(AnswerBody):
    """The most affected neighbour of the new VM on a host."""

    instance: str = Field(description="the neighbour")
    throughput_ratio: BandOut = Field(description="its relative throughput beside the new VM")


class CandidateSummary(AnswerBody):
    """One host that can take the instance; ratios and parts have three decimals, the score four."""

    rank: int = Field(description="1 is the best")
    host: str = Field(description="the host")
    score: Score = Field(description="by the objective that was asked for; higher is better")
    throughput_ratio: BandOut = Field(description="the new VM's relative throughput")
    worst_neighbour: WorstNeighbourOut | None = Field(
        description="the neighbour with the lowest expected relative throughput; null = no other instance is there"
    )
    tied_with: list[str] = Field(
        description="hosts whose difference lies within the uncertainty, where no instance is visibly worse off; 10 "
        "at most"
    )
    pinning: dict[str, list[int]] | None = Field(
        description="the pCPUs of each vCPU that suit it best there; null = none"
    )
    changes_neighbours: bool = Field(
        description="settings of neighbours change, too: read the whole answer before it is followed"
    )
    headroom: HeadroomOut | None = Field(description="what would stay free there; null in answers of old")


class RejectedHostsOut(AnswerBody):
    """Hosts that cannot take the instance for the same reason."""

    code: str = Field(description="see docs/answers.md")
    reason: str = Field(description="the code as a sentence")
    hosts: list[str] = Field(description="the hosts that it is said of")


class PlacementSummary(AnswerBody):
    """The ranked answer in short. The whole answer is stored, but for dry runs of a batch, and read by its id."""

    id: str = Field(description="the answer's id")
    created_at: Time = Field(description="when it was answered")
    degraded: bool = Field(description="the learned model failed and the analytic model answered")
    dry_run: bool = Field(description="it holds no host")
    notes: list[str] = Field(description="what else to know")
    candidates: list[CandidateSummary] = Field(description="hosts that can take it, best first")
    rejected: list[RejectedHostsOut] = Field(description="hosts that cannot take it, by reason")


class BatchSummary(AnswerBody):
    """The answers in short, each as that to one question."""

    answers: list[PlacementSummary] = Field(description="one for each instance, in their order")
    joint: JointSearchOut | None = Field(default=None, description=JOINT)
