"""What is answered: reasons, candidates with their commands, recommendations, moves.

The description of each field stands beside its type: REST, `--json`, the client's types and the reference follow.
What has none (`exclude`) is stored and not sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AliasChoices, BeforeValidator, Field, computed_field

from advisor.domain.cpu_maps import Isolated, Pins, Settings
from advisor.domain.effects import CROWDED, DEGRADED, Effect, Evidence, EvidenceLevel, ModelOrigin, ModelVersion
from advisor.domain.models import Calibration
from advisor.domain.plan_questions import PlacementRequest
from models.figures import Figure, Score, Thousandths
from profiler.observed import Instance, IsolationSettings

# "hit": another question had decided it; "former": on the cloud as it was a moment before; "miss": decided for this one
AnswerSource = Literal["hit", "former", "miss"]
ReasonKind = Literal["loss", "comparison", "counterfactual", "uncertainty"]
MitigationAction = Literal["weight", "cap", "pinning", "network", "disk", "hint", "driver_domain", "host"]
Advised = Literal["none", "place", "stay", "settings", "move"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One part of an explanation."""

    resource: Annotated[
        str, Field(description="the limiting resource: cpu, driver_domain, nic, disk, memory or unknown")
    ]
    share: Annotated[Figure, Field(description="share of the loss, 0-1")]
    text: Annotated[str, Field(description="the reason as a sentence")]
    neighbour: Annotated[str | None, Field(description="the instance that presses; null = none in particular")] = None
    kind: Annotated[
        ReasonKind,
        Field(description="what is lost, beside the next host, what would be if, and what is not sure"),
    ] = "loss"
    finding: Annotated[str, Field(description="the papers' finding with the same mechanism; empty = none")] = ""
    ratio: Annotated[Figure | None, Field(description="the throughput ratio that the text speaks of")] = None


@dataclass(frozen=True, slots=True)
class MitigationStep:
    """One step of the isolation ladder as it was tried on a host where a limit would break.

    A last resort takes more than half from an instance without a limit; the same action then also occurs earlier at a
    milder strength.
    """

    action: Annotated[MitigationAction, Field(description="what kind of setting it changes")]
    text: Annotated[str, Field(description="the step as a sentence")]
    changes: Annotated[
        Mapping[str, Settings],
        Field(description="settings by instance, together with the steps that it builds on; empty for another host"),
    ] = field(default_factory=dict)
    effects: Annotated[
        tuple[Effect, ...],
        Field(
            description="the new VM first, `before` is without the step on the same host; empty where nothing can be "
            "predicted"
        ),
    ] = ()
    satisfies: Annotated[bool, Field(description="no limit is broken any more: the ladder ends there")] = False
    driver_cpus: Annotated[
        tuple[int, ...] | None, Field(description="where the driver domain would run; null = as it does")
    ] = None
    notes: Annotated[
        tuple[str, ...],
        Field(
            description="what keeps its commands from being rendered, and the instances that lose more than half of "
            "their speed"
        ),
    ] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """One step to apply and how to undo it; argument lists, never shell text."""

    tool: Annotated[str, Field(description="the program, such as tc or virsh")]
    argv: Annotated[tuple[str, ...], Field(description="the argument list; empty = see note")]
    undo: Annotated[tuple[str, ...], Field(description="the argument list that takes it back")]
    note: Annotated[str, Field(description="what cannot be a command, as a sentence")] = ""


@dataclass(frozen=True, slots=True)
class Headroom:
    """What would stay free on a host with the new VM, as parts of its capacity; below 0 = more is asked for."""

    cpu: Annotated[Figure, Field(description="of its CPUs in busy moments (95th percentile of demand)")]
    memory: Annotated[Figure, Field(description="of the memory that may be promised; 1 = unknown")]
    nic: Annotated[Figure, Field(description="of its network in busy moments; 1 = unknown")]
    one_numa_node: Annotated[
        bool,
        Field(
            description="the new VM fits into one NUMA node",
            validation_alias=AliasChoices("one_numa_node", "one_node"),
        ),
    ] = True
    cpu_before: Annotated[Figure | None, Field(description="of its CPUs without the new VM; null = not known")] = None
    memory_before: Annotated[Figure | None, Field(description="of its memory without the new VM; null = not known")] = (
        None
    )
    nic_before: Annotated[Figure | None, Field(description="of its network without the new VM; null = not known")] = (
        None
    )

    @property
    def scarcest(self) -> tuple[str, float]:
        """The resource of which the smallest part is left, and that part."""
        return min((("cpu", self.cpu), ("memory", self.memory), ("nic", self.nic)), key=lambda left: left[1])


@dataclass(frozen=True, slots=True)
class TuningStep:
    """One change to a host as it stands."""

    instance: Annotated[str, Field(description="whose settings change; empty = the driver domain's")]
    why: Annotated[str, Field(description="what changes, and its effects, as words")]
    settings: Annotated[
        Settings | None, Field(description="what the instance runs under then; null = the driver domain")
    ] = None
    driver_cpus: Annotated[
        tuple[int, ...], Field(description="the driver domain's CPUs then; empty = as they are")
    ] = ()
    driver_weight: Annotated[int | None, Field(description="its scheduler weight then; null = as it is")] = None
    effects: Annotated[
        tuple[Effect, ...],
        Field(description="instances whose T/B it changes by 0.01 or more, with what was before"),
    ] = ()
    commands: Annotated[
        tuple[Command, ...], Field(description="those of this step; empty where none were asked for")
    ] = ()
    notes: Annotated[tuple[str, ...], Field(description="why a command is missing")] = ()

    @property
    def subject(self) -> str:
        """What the step is about, for people."""
        return self.instance or "driver domain"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One host that can take the instance, with the pinning and settings that suit it best there."""

    rank: Annotated[int, Field(description="1 is the best")]
    host: Annotated[str, Field(description="the host")]
    score: Annotated[Score, Field(description="by the objective that was asked for; higher is better")]
    combined_score: Annotated[Score, Field(description="sum of the expected throughput ratios there")]
    pinning: Annotated[Pins | None, Field(description="the pinning that suits it best there; null = none")]
    isolation: Annotated[Isolated, Field(description="the settings that suit it best there")]
    new_vm: Annotated[
        Effect,
        Field(description="the predicted effect on the new VM", validation_alias=AliasChoices("new_vm", "newcomer")),
    ]
    neighbours: Annotated[tuple[Effect, ...], Field(description="what happens to each neighbour")]
    tied_with: Annotated[
        tuple[str, ...],
        Field(description="hosts whose difference lies within the uncertainty, where no instance is visibly worse off"),
    ] = ()
    reasons: Annotated[tuple[Reason, ...], Field(description="why the host stands where it stands")] = ()
    commands: Annotated[tuple[Command, ...], Field(description="empty where none are needed or asked for")] = ()
    mitigation: Annotated[
        tuple[MitigationStep, ...],
        Field(
            description="steps that were tried here because a limit would break; the last one meets it",
            validation_alias=AliasChoices("mitigation", "rungs"),
        ),
    ] = ()
    changes: Annotated[Mapping[str, Settings], Field(description="settings that neighbours get, by instance")] = field(
        default_factory=dict
    )
    headroom: Annotated[
        Headroom | None,
        Field(description="what would stay free there; it decides between equal scores; null in answers of old"),
    ] = None
    reserved: Annotated[
        Score,
        Field(description="by how much the score is reduced because instances that usually arrive need the place"),
    ] = 0.0
    expected: Annotated[float, Field(exclude=True)] = 0.0  # `score` is a lower bound of this
    half_width: Annotated[float, Field(exclude=True)] = 0.0
    crowded: Annotated[Figure | None, Field(description=CROWDED)] = None
    calibration: Annotated[
        Calibration,
        Field(
            description="what has shown how often the ranges hold: outcomes on hosts like this one, windows of hosts "
            "or pairs that the model's training left out, or nothing; only the first makes them 90 % intervals"
        ),
    ] = "none"
    calibration_hosts: Annotated[
        int | None, Field(description="of `windows`: of how many hosts they were; null = not known")
    ] = None
    evidence: Annotated[
        Mapping[EvidenceLevel, int],
        Field(description="how many residents are known by their size, class, a description, history, and so on"),
    ] = field(default_factory=dict)
    tuning: Annotated[
        tuple[TuningStep, ...],
        Field(
            description="of a host in `tuned`: changes to it that come first, in their order; undo goes backwards, and "
            "`neighbours[].before` is without them"
        ),
    ] = ()

    @property
    def tied_elsewhere(self) -> tuple[str, ...]:
        """Other hosts among those that it is tied with: an instance as it stands is compared with its own host, too."""
        return tuple(host for host in self.tied_with if host != self.host)

    @computed_field(description="what must be known before the settings are followed")  # type: ignore[prop-decorator]
    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the successful mitigation step."""
        return self.mitigation[-1].notes if self.mitigation else ()


_PRESENT_CODE = BeforeValidator(  # earlier versions called the new VM so
    lambda code: code.replace("limit.newcomer", "limit.new_vm") if isinstance(code, str) else code
)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A host that cannot take the instance: a stable code and a sentence."""

    host: Annotated[str, Field(description="the host")]
    code: Annotated[str, _PRESENT_CODE, Field(description="see docs/answers.md")]
    reason: Annotated[str, Field(description="the code as a sentence")]
    mitigation: Annotated[
        tuple[MitigationStep, ...],
        Field(description="steps that were tried in vain", validation_alias=AliasChoices("mitigation", "rungs")),
    ] = ()


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The ranked answer to a question of a placement; an empty list of candidates with reasons is an answer too."""

    id: Annotated[str, Field(description="the answer's id")]
    created_at: Annotated[datetime, Field(description="when it was answered")]
    request: Annotated[PlacementRequest, Field(exclude=True)]
    model_version: ModelVersion
    model_origin: ModelOrigin
    degraded: Annotated[bool, Field(description=DEGRADED)]
    snapshot_age_s: Annotated[Thousandths, Field(description="age of the cloud that the answer is about")]
    candidates: Annotated[tuple[Candidate, ...], Field(description="hosts that can take it, best first")]
    rejected: Annotated[tuple[Rejection, ...], Field(description="hosts that cannot take it")]
    notes: Annotated[tuple[str, ...], Field(description="what else to know")] = ()
    # By which factor the throughput bands on a host are wider than the model's own; other hosts are left out.
    widened: Annotated[Mapping[str, float], Field(exclude=True)] = field(default_factory=dict)
    evidence: Annotated[Evidence | None, Field(description="what the answer rests on; null = not known")] = None
    present: Annotated[
        Candidate | None,
        Field(
            description="the instance where it is, with the settings that it has now; tied_with are candidates that "
            "are neither better nor worse; null = it is on no host"
        ),
    ] = None
    tuned: Annotated[
        tuple[Candidate, ...],
        Field(
            description="with `tune`: hosts that are better, for it or for the residents, if settings of residents "
            "change first; apart from `candidates`, which need nothing of the kind, and also of hosts that are rejected"
        ),
    ] = ()

    @computed_field(description="it holds no host")  # type: ignore[prop-decorator]
    @property
    def dry_run(self) -> bool:
        """Whether it holds no host."""
        return self.request.dry_run

    @computed_field(  # type: ignore[prop-decorator]
        description="place: it is on no host, and goes to the first candidate; stay: no candidate is better than as it "
        "is; settings: others where it is; move: to the first candidate; none: no host can take it"
    )
    @property
    def advised(self) -> Advised:
        """What the answer comes to: `place` an instance that is on no host; else `stay` where no candidate is better,
        other `settings` on its host, or `move`; `none` where no host can take it."""
        if not self.candidates:
            return "none"
        best, present = self.candidates[0], self.present
        if present is None:
            return "place"
        if best.host in present.tied_with or best.score < present.score:
            return "stay"
        return "settings" if self.best.host == present.host else "move"

    def unpins(self, candidate: Candidate) -> bool:
        """Whether a candidate takes the pinning off that the instance has on that host now."""
        now = self.present
        if now is None or now.host != candidate.host:
            return False
        return now.isolation.pinning is not None and candidate.isolation.pinning is None

    @property
    def best(self) -> Candidate:
        """The candidate that is advised: of those that are tied with the first the one on its own host."""
        first = self.candidates[0]
        if self.present is None or self.present.host not in first.tied_with:
            return first
        return next((each for each in self.candidates if each.host == self.present.host), first)


@dataclass(frozen=True, slots=True)
class HostRanking:
    """What schedulers ask for: the `scores` of hosts, best first, and an answer that lists few of them or none.

    `per_host` = what is said of each host depends on no other host that was asked about, and no other client is
    placing, so that it stands until the caller places an instance there.
    """

    answer: Recommendation
    scores: Mapping[str, float]
    per_host: bool = True


@dataclass(frozen=True, slots=True)
class Move:
    """A resident that should go from one host to another; `target` None = it should, and no host can take it.

    `gain` is the harm that it takes away, as of a step of a rebalance (`PlanStep.gain`); None where that is not why.
    """

    instance: str
    source: str
    target: str | None
    why: str
    gain: float | None = None


def settings_there(asked: Instance, first: Candidate) -> IsolationSettings:
    """What the instance will run under: the advised settings, and its own where nothing is advised."""
    advised, own = first.isolation, asked.settings
    return IsolationSettings(
        pinning=first.pinning or advised.pinning or own.pinning,
        cap_percent=advised.cap_percent if advised.cap_percent is not None else own.cap_percent,
        weight=advised.weight if advised.weight is not None else own.weight,
        network=advised.network if advised.network is not None else own.network,
        disk_limit_mb_s=advised.disk_limit_mb_s if advised.disk_limit_mb_s is not None else own.disk_limit_mb_s,
    )
