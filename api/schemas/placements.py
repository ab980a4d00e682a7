"""Schemas of the main question: where should this instance go, the ranked answer, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field

from advisor.domain import (
    Advised,
    BatchOrder,
    BurstSearchEnd,
    BurstTrial,
    Calibration,
    Constraints,
    EvidenceLevel,
    Find,
    Instance,
    MitigationAction,
    PlacementRequest,
    ReasonKind,
    Recommendation,
    WorkloadProfile,
    found_in,
    recommendation_as_json,
)
from advisor.errors import InvalidInput
from api.schemas.asked import Asked
from api.schemas.base import (
    AnswerBody,
    Figure,
    Id,
    Known,
    Labels,
    Metrics,
    Positive,
    Schema,
    Score,
    Time,
    as_input,
    examples,
)
from api.schemas.declared import QuestionBody, asks
from api.schemas.effects import CPU, CROWDED, JITTER, LATENCY, BandOut, BasisOut, CpuOut, EffectOut, ModelRef
from api.schemas.settings import Isolation, SettingsOut
from profiler.host_kinds import HostKind

MOST_SEARCHED_S = 60  # seconds for a joint search: it uses a CPU, and no request lasts longer
MOST_AT_ONCE = 200  # instances of one batch: each of them is ranked on the cloud with those before it


def _both(field: str, kind: Mapping[str, Any], other: str, other_kind: Mapping[str, Any]) -> dict[str, Any]:
    """JSON Schema of an object that has both fields."""
    return {"required": [field, other], "properties": {field: dict(kind), other: dict(other_kind)}}


class NewInstance(Asked):
    """The instance to place; `profile` may replace `workload`; with neither, and no demand for CPUs, it counts as using
    10 % of its vCPUs, as virtual machines of public traces do, and nothing else, with a wide range."""

    model_config = ConfigDict(
        json_schema_extra={
            "not": {
                "anyOf": [
                    _both("workload", {"type": "string"}, "profile", {"type": "object"}),
                    _both("like", {"type": "string"}, "workload", {"type": "string", "minLength": 1}),
                    _both("like", {"type": "string"}, "profile", {"type": "object", "minProperties": 1}),
                    _both("like", {"type": "string"}, "demand", {"type": "object", "minProperties": 1}),
                ]
            }
        }
    )

    profile: Metrics | None = Field(default=None, description="its solo metrics at load 1.0, instead of a workload")

    def to_domain(self, find: Find) -> tuple[Instance, WorkloadProfile | None]:
        """The domain's Instance, and its own profile where one was given; `find` looks up one of the inventory."""
        if self.workload is not None and self.profile is not None:
            raise InvalidInput("give workload or profile, not both", field="instance.profile")
        try:
            return self.asked(find), self._own_profile()
        except InvalidInput as error:
            raise InvalidInput(error.message, field=f"instance.{error.field}" if error.field else None) from error

    def _given(self) -> dict[str, Any]:
        return {**super()._given(), "workload": None} if self.profile is not None else super()._given()

    @as_input
    def _own_profile(self) -> WorkloadProfile | None:
        return None if self.profile is None else WorkloadProfile(name=self.id, metrics=self.profile)


@asks(Constraints, labels=Labels, kind=HostKind)
class ConstraintsBody(QuestionBody):
    """What a candidate host must satisfy."""


@asks(PlacementRequest, instance=NewInstance, constraints=ConstraintsBody)
class PlacementBody(QuestionBody):
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

    if TYPE_CHECKING:
        instance: NewInstance
        dry_run: bool = False

    def to_domain(self, find: Find = found_in(())) -> PlacementRequest:
        """The domain's request; `find` looks up an instance of the inventory."""
        instance, profile = self.instance.to_domain(find)
        return PlacementRequest(**{**self.converted(), "instance": instance, "profile": profile})


@asks(
    PlacementRequest, "hosts", "constraints", "objective", "limit", "explain", "dry_run",
    defaults={"limit": 1, "explain": False}, constraints=ConstraintsBody,
)  # fmt: skip
class BatchBody(QuestionBody):
    """Where should each of these go, when the ones before it have gone where they should?"""

    model_config = examples(
        {
            "instances": [
                {"id": "web-1", "vcpus": 2, "memory_mb": 2048, "workload": "web-1k"},
                {"id": "web-2", "vcpus": 2, "memory_mb": 2048, "workload": "web-1k"},
            ],
            "constraints": {"labels": {"zone": "a"}},
            "dry_run": True,
        }
    )

    instances: Annotated[list[NewInstance], Field(min_length=1, max_length=MOST_AT_ONCE)] = Field(
        description="the instances to place, in the order in which they are answered"
    )
    order: BatchOrder = Field(
        default="given",
        description="given: each counts in for the next, as they stand; joint: other orders and plans are tried, and "
        "the answers that harm least together are kept",
    )
    time_limit_s: Annotated[float, Field(strict=True, gt=0, le=MOST_SEARCHED_S)] = Field(
        default=5.0, description="after it a joint search tries nothing more; the request's own deadline ends it sooner"
    )

    if TYPE_CHECKING:
        limit: int = 1
        dry_run: bool = False

    def requests(self, find: Find) -> list[PlacementRequest]:
        """The domain's requests, in their order; `find` looks up an instance of the inventory.

        InvalidInput where an instance stands twice, and where a joint answer should have several candidates.
        """
        names = [instance.id for instance in self.instances]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidInput(f"instance {twice[0]} stands twice", field="instances")
        if self.order == "joint" and self.limit > 1:
            raise InvalidInput("a joint answer has one candidate for each instance; leave limit out", field="limit")
        shared = self.converted()
        asked = [instance.to_domain(find) for instance in self.instances]
        return [PlacementRequest(instance, profile, **shared) for instance, profile in asked]


class ReasonOut(AnswerBody):
    """One part of an explanation."""

    resource: str = Field(description="the limiting resource")
    share: Figure = Field(description="share of the loss, 0-1")
    text: str = Field(description="the reason as a sentence")
    neighbour: str | None = Field(description="the instance that presses; null = none")
    kind: ReasonKind = Field(
        default="loss", description="what is lost, beside the next host, what would be if, and what is not sure"
    )
    finding: str = Field(default="", description="the papers' finding with the same mechanism; empty = none")
    ratio: Figure = Field(default=None, description="the throughput ratio that the text speaks of")


class MitigationStepOut(AnswerBody):
    """One step of the isolation ladder as it was tried where a limit would break."""

    action: MitigationAction = Field(description="what kind of setting it changes")
    text: str = Field(description="the step as a sentence")
    changes: dict[str, SettingsOut] = Field(description="by instance, together with the steps that it stands on")
    effects: list[EffectOut] = Field(description="the new VM first; empty where nothing can be predicted")
    satisfies: bool = Field(description="no limit is broken any more: the ladder ends there")
    driver_cpus: list[int] | None = Field(description="where the driver domain would run; null = as it does")
    notes: list[str] = Field(
        default=[],
        description="what keeps its commands from being rendered, and the instances that lose more than "
        "half of their speed",
    )


class CommandOut(AnswerBody):
    """One step to apply and how to undo it; argument lists, never shell text."""

    tool: str = Field(description="the program, such as tc or virsh")
    argv: list[str] = Field(description="the argument list; empty = see note")
    undo: list[str] = Field(description="the argument list that takes it back")
    note: str = Field(default="", description="what cannot be a command, as a sentence")


class NewcomerOut(AnswerBody):
    """The predicted effect on the new VM."""

    throughput_ratio: BandOut = Field(description="T/B")
    latency_ratio: BandOut = Field(description=LATENCY)
    jitter_ratio: BandOut | None = Field(description=JITTER)
    outside_training: bool = Field(description="nothing learned applies, or nothing is known of it")
    cpu: CpuOut | None = Field(default=None, description=CPU)
    basis: BasisOut | None = Field(default=None, description="what T/B rests on; null where no learned model answers")


class HeadroomOut(AnswerBody):
    """What would be left on a host with the new VM, as parts of its capacity; below 0 = more is asked for."""

    cpu: Figure = Field(description="of its CPUs in busy moments (95th percentile of demand)")
    memory: Figure = Field(description="of the memory that may be promised; 1 = unknown")
    nic: Figure = Field(description="of its network in busy moments; 1 = unknown")
    one_numa_node: bool = Field(description="the new VM fits into one NUMA node")
    cpu_before: Figure = Field(default=None, description="of its CPUs without the new VM; null = not known")
    memory_before: Figure = Field(default=None, description="of its memory without the new VM; null = not known")
    nic_before: Figure = Field(default=None, description="of its network without the new VM; null = not known")


class TuningStepOut(AnswerBody):
    """One change to a host as it stands."""

    instance: str = Field(description="whose settings change; empty = the driver domain's")
    why: str = Field(description="what changes, and its effects, as words")
    settings: SettingsOut | None = Field(description="what the instance runs under then; null = the driver domain")
    driver_cpus: list[int] = Field(description="the driver domain's CPUs then; empty = as they are")
    driver_weight: int | None = Field(description="its scheduler weight then; null = as it is")
    effects: list[EffectOut] = Field(description="instances whose T/B it changes by 0.01 or more, with what was before")
    notes: list[str] = Field(description="why a command is missing")


class CandidateOut(AnswerBody):
    """One host that can take the instance, with the pinning and settings that suit it best there."""

    rank: int = Field(description="1 is the best")
    host: str = Field(description="the host")
    score: Score = Field(description="by the objective that was asked for; higher is better")
    tied_with: list[str] = Field(
        description="hosts whose difference lies within the uncertainty, where no instance is visibly worse off"
    )
    headroom: HeadroomOut | None = Field(
        default=None, description="what would stay free there; it decides between equal scores"
    )
    reserved: Score = Field(
        default=0.0, description="by how much the score is reduced because instances that usually arrive need the place"
    )
    crowded: Figure = Field(default=None, description=CROWDED)
    calibration: Calibration = Field(
        default="none",
        description="what has shown how often the ranges hold: outcomes on hosts like this one, windows of hosts or "
        "pairs that the model's training left out, or nothing; only the first makes them 90 % intervals",
    )
    calibration_hosts: int | None = Field(
        default=None, description="of `windows`: of how many hosts they were; null = not known"
    )
    evidence: dict[EvidenceLevel, int] = Field(
        default={}, description="how many residents are known by their size, class, a description, history, and so on"
    )
    combined_score: Score = Field(description="sum of the expected throughput ratios there")
    pinning: dict[str, list[int]] | None = Field(description="the pinning that suits it best there; null = none")
    isolation: Isolation = Field(description="the settings that suit it best there")
    newcomer: NewcomerOut = Field(description="the predicted effect on the new VM")
    neighbours: list[EffectOut] = Field(description="what happens to each neighbour")
    changes: dict[str, SettingsOut] = Field(default={}, description="settings that neighbours get, by instance")
    mitigation: list[MitigationStepOut] = Field(
        default=[], description="steps that were tried here because a limit would break; the last one meets it"
    )
    notes: list[str] = Field(default=[], description="what must be known before the settings are followed")
    reasons: list[ReasonOut] = Field(description="why the host stands where it stands")
    commands: list[CommandOut] = Field(default=[], description="where they were asked for")


class TunedCandidateOut(CandidateOut):
    """A host as it would be after a few changes to who is there; `neighbours[].before` is without them."""

    tuning: list[TuningStepOut] = Field(description="the changes that come first, in their order; undo goes backwards")


class RejectionOut(AnswerBody):
    """A host that cannot take the instance: a stable code and a sentence."""

    host: str = Field(description="the host")
    code: str = Field(description="see docs/answers.md")
    reason: str = Field(description="the code as a sentence")
    mitigation: list[MitigationStepOut] = Field(default=[], description="steps that were tried in vain")


class LevelHeldOut(AnswerBody):
    """How forecasts of such instances held in measured windows of five minutes on contended hosts of this cloud."""

    windows: int = Field(description="windows of hosts, two digits of it")
    coverage: Known = Field(description="share of instances that got what lay in the model's own range")
    error: Known = Field(description="mean absolute error, in CPU delivered as a part of demand")


class EvidenceOut(AnswerBody):
    """What the answer rests on."""

    level: EvidenceLevel = Field(
        description="what is known of the new VM: size, class (others of this cloud), given, history, measured, profile"
    )
    advice: str = Field(description="what to do to know more; empty = nothing comes to mind")
    held: LevelHeldOut | None = Field(
        default=None, description="how answers about instances of that level have held here; null = too few windows"
    )


class PlacementAnswer(AnswerBody):
    """The ranked answer; an empty list of candidates with reasons is an answer too."""

    id: str = Field(description="the answer's id")
    created_at: Time = Field(description="when it was answered")
    model: ModelRef = Field(description="which model answered")
    degraded: bool = Field(description="the learned model failed and the analytic model answered")
    snapshot_age_s: float = Field(description="age of the cloud that the answer is about")
    dry_run: bool = Field(description="it holds no host")
    notes: list[str] = Field(description="what else to know")
    evidence: EvidenceOut | None = Field(default=None, description="what the answer rests on; null = not known")
    advised: Advised = Field(
        default="place",
        description="place: it is on no host, and goes to the first candidate; stay: no candidate is better than as it "
        "is; settings: others where it is; move: to the first candidate; none: no host can take it",
    )
    present: CandidateOut | None = Field(
        default=None,
        description="the instance where it is, with the settings that it has now; tied_with are candidates that are no "
        "better; null = it is on no host",
    )
    candidates: list[CandidateOut] = Field(description="hosts that can take it, best first")
    tuned: list[TunedCandidateOut] = Field(
        default=[],
        description="with `tune`: hosts that are better, for it or for who is there, if settings of others change "
        "first; apart from `candidates`, which need nothing of the kind, and also of hosts that are rejected",
    )
    rejected: list[RejectionOut] = Field(description="hosts that cannot take it")

    @classmethod
    def of(cls, answer: Recommendation) -> PlacementAnswer:
        """From the domain, in the one shape that command line and REST share."""
        return cls.model_validate(recommendation_as_json(answer))


class BurstFiguresOut(AnswerBody):
    """What the answers of a batch do together."""

    placed: int = Field(description="instances that found a host")
    not_kept: int = Field(
        description="instances, on hosts that take new VMs, whose relative throughput falls below their limit, or "
        "0.9 where they have none"
    )
    hosts_used: int = Field(description="hosts of the cloud that hold an instance")
    harm: Score = Field(
        description="what the objective (of pack: worst) counts against all of them at once; lower is better, and of "
        "one instance it is 1 - its score"
    )


class JointSearchOut(AnswerBody):
    """How joint answers were found, and by how much they are better than those in the order given."""

    chosen: BurstTrial = Field(
        description="given: no trial was better; largest_first: answered in turn, the largest first; planned_*: on the "
        "hosts of a plan of that objective"
    )
    tried: list[BurstTrial] = Field(description="the trials that were finished")
    ended: BurstSearchEnd = Field(description="search: all were; time: the time limit kept some from it")
    found: BurstFiguresOut = Field(description="of the answers")
    given: BurstFiguresOut = Field(description="of the answers in the order given")


JOINT = "how joint answers were found; null = answered in the order given"


class BatchAnswer(AnswerBody):
    """The answers, each as that to one question."""

    answers: list[PlacementAnswer] = Field(description="one for each instance, in their order")
    joint: JointSearchOut | None = Field(default=None, description=JOINT)


class OutcomeBody(Schema):
    """What really happened after a placement: measured T/B of each instance on the host it went to."""

    model_config = examples({"host": "h3", "throughput_ratios": {"shop-7": 0.93, "batch-1": 0.98}})

    host: Id = Field(description="the host that it went to")
    throughput_ratios: Annotated[dict[Id, Positive], Field(min_length=1, max_length=10_000)] = Field(
        description="measured T/B by instance"
    )
