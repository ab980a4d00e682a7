"""Schemas of the main question: where should this instance go, the ranked answer, and what came of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from advisor.domain import (
    Constraints,
    Instance,
    MitigationAction,
    Objective,
    PlacementRequest,
    ReasonKind,
    Recommendation,
    WorkloadProfile,
    recommendation_as_json,
)
from advisor.errors import InvalidInput
from api.schemas.base import (
    WHOLE,
    Amount,
    AnswerBody,
    Cpus,
    Figure,
    Flag,
    Id,
    Labels,
    Metrics,
    Name,
    Positive,
    Ratio,
    Schema,
    Time,
    Times,
    as_input,
    examples,
)
from api.schemas.effects import JITTER, BandOut, EffectOut, ModelRef
from api.schemas.inventory import Service
from api.schemas.settings import Isolation, PinningMap, SettingsOut, to_settings
from profiler.host_kinds import HostKind

Ids = Annotated[list[Id], Field(max_length=10_000)]


class NewInstance(Schema):
    """The instance to place; `profile` may replace `workload`; with neither, it counts as busy on all
    its vCPUs and as using nothing else, with wider intervals."""

    model_config = ConfigDict(
        json_schema_extra={
            "not": {
                "required": ["workload", "profile"],
                "properties": {"workload": {"type": "string"}, "profile": {"type": "object"}},
            }
        }
    )

    id: Id
    vcpus: Cpus = 1
    memory_mb: Amount = 0.0
    disk_gb: Amount = 0.0
    workload: Name | None = None
    profile: Metrics | None = Field(default=None, description="its solo metrics at load 1.0, instead of a workload")
    load: Annotated[float, Field(strict=True, gt=0, le=10)] = 1.0
    service: Service = "throughput"
    min_throughput_ratio: Ratio | None = None
    max_latency_ratio: Times | None = Field(
        default=None, description="the largest latency ratio (1.0 = as alone) that it accepts; null = any"
    )
    exclusive: Flag = Field(default=False, description="shares its host with nobody")
    pinning: PinningMap | None = None
    isolation: Isolation = Field(default=Isolation())
    labels: Labels = Field(default={})

    @as_input
    def to_domain(self) -> tuple[Instance, WorkloadProfile | None]:
        """The domain's Instance, and its own profile where one was given."""
        if self.workload is not None and self.profile is not None:
            raise InvalidInput("give workload or profile, not both", field="instance.profile")
        instance = Instance(
            id=self.id,
            vcpus=self.vcpus,
            memory_mb=self.memory_mb,
            disk_gb=self.disk_gb,
            workload=self.workload,
            load=self.load,
            settings=to_settings(self.isolation, self.pinning),
            service=self.service,
            min_throughput_ratio=self.min_throughput_ratio,
            max_latency_ratio=self.max_latency_ratio,
            exclusive=self.exclusive,
            labels=self.labels,
        )
        profile = None if self.profile is None else WorkloadProfile(name=self.id, metrics=self.profile)
        return instance, profile


class ConstraintsBody(Schema):
    """What a candidate host must satisfy."""

    labels: Labels = Field(default={}, description="every one of these labels")
    exclude: Ids = Field(default=[], description="none of these hosts")
    affinity: Ids = Field(default=[], description="beside these instances")
    anti_affinity: Ids = Field(default=[], description="apart from these instances")
    kind: HostKind | None = None
    allow_stale: Flag = Field(default=False, description="hosts without fresh data may answer too")

    def to_domain(self) -> Constraints:
        """The domain's Constraints."""
        return Constraints(
            labels=self.labels,
            exclude=tuple(self.exclude),
            affinity=tuple(self.affinity),
            anti_affinity=tuple(self.anti_affinity),
            kind=self.kind,
            allow_stale=self.allow_stale,
        )


class PlacementBody(Schema):
    """Where should this instance go?"""

    model_config = examples(
        {
            "instance": {
                "id": "shop-7",
                "vcpus": 2,
                "memory_mb": 4096,
                "workload": "web-1k",
                "service": "latency",
                "min_throughput_ratio": 0.9,
            },
            "constraints": {"labels": {"zone": "a"}, "exclude": ["h9"], "anti_affinity": ["shop-3"]},
            "objective": "worst",
            "limit": 5,
            "commands": True,
        }
    )

    instance: NewInstance
    hosts: Ids | None = Field(default=None, description="answer only these hosts; null = all")
    constraints: ConstraintsBody = Field(default=ConstraintsBody())
    objective: Objective = Field(
        default="worst", description="worst: best worst-off instance; total: combined score; pack: fewest hosts"
    )
    limit: Annotated[int, Field(strict=True, ge=1, le=1000), WHOLE] = Field(
        default=5, description="most candidates given"
    )
    explain: Flag = True
    commands: Flag = False
    dry_run: Flag = Field(default=False, description="hold nothing: the answer reserves no host")
    mitigate: Flag = Field(
        default=True,
        description="try other settings on hosts where a limit would break; false: such hosts are rejected",
    )

    def to_domain(self) -> PlacementRequest:
        """The domain's request."""
        instance, profile = self.instance.to_domain()
        return PlacementRequest(
            instance=instance,
            profile=profile,
            hosts=None if self.hosts is None else tuple(self.hosts),
            constraints=self.constraints.to_domain(),
            objective=self.objective,
            limit=self.limit,
            explain=self.explain,
            commands=self.commands,
            dry_run=self.dry_run,
            mend=self.mitigate,
        )


class ReasonOut(AnswerBody):
    """One part of an explanation."""

    resource: str
    share: Figure = Field(description="share of the loss, 0-1")
    text: str
    neighbour: str | None
    kind: ReasonKind = Field(
        default="loss", description="what is lost, beside the next host, what would be if, and what is not sure"
    )
    finding: str = Field(default="", description="the papers' finding with the same mechanism; empty = none")
    ratio: Figure = Field(default=None, description="the throughput ratio that the text speaks of")


class MitigationStepOut(AnswerBody):
    """One step of the isolation ladder as it was tried where a limit would break."""

    action: MitigationAction
    text: str
    changes: dict[str, SettingsOut] = Field(description="by instance, together with the steps that it stands on")
    effects: list[EffectOut] = Field(description="the newcomer first; empty where nothing can be predicted")
    satisfies: bool = Field(description="no limit is broken any more: the ladder ends there")
    driver_cpus: list[int] | None = Field(description="where the driver domain would run; null = as it does")
    notes: list[str] = Field(
        default=[], description="what keeps its commands from being rendered, and whom it takes more than half from"
    )


class CommandOut(AnswerBody):
    """One step to apply and how to undo it; argument lists, never shell text."""

    tool: str
    argv: list[str]
    undo: list[str]
    note: str = ""


class NewcomerOut(AnswerBody):
    """What happens to the newcomer."""

    throughput_ratio: BandOut
    latency_ratio: BandOut
    jitter_ratio: BandOut | None = Field(description=JITTER)
    outside_training: bool


class CandidateOut(AnswerBody):
    """One host that can take the instance, with the pinning and settings that suit it best there."""

    rank: int
    host: str
    score: Figure
    tied_with: list[str]
    combined_score: Figure
    pinning: dict[str, list[int]] | None
    isolation: Isolation
    newcomer: NewcomerOut
    neighbours: list[EffectOut]
    changes: dict[str, SettingsOut] = Field(default={}, description="settings that neighbours get, by instance")
    mitigation: list[MitigationStepOut] = Field(
        default=[], description="steps that were tried here because a limit would break; the last one keeps it"
    )
    notes: list[str] = Field(default=[], description="what must be known before the settings are followed")
    reasons: list[ReasonOut]
    commands: list[CommandOut] = Field(default=[], description="where they were asked for")


class RejectionOut(AnswerBody):
    """A host that cannot take the instance: a stable code and a sentence."""

    host: str
    code: str
    reason: str
    mitigation: list[MitigationStepOut] = Field(default=[], description="steps that were tried in vain")


class PlacementAnswer(AnswerBody):
    """The ranked answer; an empty list of candidates with reasons is an answer too."""

    id: str
    created_at: Time
    model: ModelRef
    degraded: bool = Field(description="the learned model failed and the queueing prior answered")
    snapshot_age_s: float
    dry_run: bool
    notes: list[str]
    candidates: list[CandidateOut]
    rejected: list[RejectionOut]

    @classmethod
    def of(cls, answer: Recommendation) -> PlacementAnswer:
        """From the domain, in the one shape that command line and REST share."""
        return cls.model_validate(recommendation_as_json(answer))


class OutcomeBody(Schema):
    """What really happened after a placement: measured T/B of each instance on the host it went to."""

    model_config = examples({"host": "h3", "throughput_ratios": {"shop-7": 0.93, "batch-1": 0.98}})

    host: Id
    throughput_ratios: Annotated[dict[Id, Positive], Field(min_length=1, max_length=10_000)]
