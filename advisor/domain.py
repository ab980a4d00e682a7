"""The advisor's words: requests, candidates, recommendations, inventories; frozen values without behaviour or I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from models.estimates import Estimate
from models.profile import WorkloadProfile
from models.profiling import InstanceProfile, PhaseProfile
from models.quality import Group as ModelGroup
from models.quality import Quality as ModelQuality
from profiler.observed import Host, Instance, IsolationSettings, Pinning

__all__ = [
    "TOKEN_SCOPES",
    "Activation",
    "AuditEntry",
    "Band",
    "Caller",
    "Candidate",
    "Command",
    "Constraints",
    "Effect",
    "Estimate",
    "Host",
    "Instance",
    "InstanceProfile",
    "Inventory",
    "IsolationSettings",
    "ModelCard",
    "ModelGroup",
    "ModelQuality",
    "Move",
    "Objective",
    "Page",
    "PhaseProfile",
    "Pinning",
    "PlacementRequest",
    "Plan",
    "PlanStep",
    "ProbeDecision",
    "ProbePair",
    "ProbePlan",
    "ProbeRequest",
    "ProbeStep",
    "ProbeTurn",
    "Reason",
    "Recommendation",
    "Rejection",
    "Rung",
    "RungAction",
    "Scene",
    "SceneEffects",
    "Token",
    "TokenScope",
    "WorkloadProfile",
]

T = TypeVar("T")

Objective = Literal["worst", "total", "pack"]
OBJECTIVES: tuple[Objective, ...] = ("worst", "total", "pack")


@dataclass(frozen=True, slots=True)
class Inventory:
    """A whole cloud as the caller sees it. `observed_at` is when hosts were last seen (UTC); None = now."""

    hosts: tuple[Host, ...] = ()
    instances: tuple[Instance, ...] = ()
    workloads: tuple[WorkloadProfile, ...] = ()
    observed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Constraints:
    """What a host must satisfy: every label, not in `exclude`, beside all of `affinity`, apart from `anti_affinity`."""

    labels: Mapping[str, str] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    affinity: tuple[str, ...] = ()
    anti_affinity: tuple[str, ...] = ()
    kind: str | None = None
    allow_stale: bool = False


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """Where should this instance go? `profile` may replace the instance's workload; with neither it is unknown."""

    instance: Instance
    profile: WorkloadProfile | None = None
    hosts: tuple[str, ...] | None = None
    constraints: Constraints = field(default_factory=Constraints)
    objective: Objective = "worst"
    limit: int = 5
    explain: bool = True
    commands: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Band:
    """A predicted ratio with its 90 % interval."""

    expected: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Effect:
    """What happens to one instance: `before` is its throughput ratio without the newcomer (None for the newcomer).

    `jitter_ratio` is None only in answers that were stored before it was predicted.
    """

    instance: str
    throughput_ratio: Band
    latency_ratio: Band
    before: Band | None = None
    outside_training: bool = False
    jitter_ratio: Band | None = None


ReasonKind = Literal["loss", "comparison", "counterfactual", "uncertainty"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One part of an explanation: `resource` (cpu, driver_domain, nic, disk, memory, unknown), its `share` of the loss
    (0-1), who presses (`neighbour`, None = nobody in particular) and a sentence.

    `kind`: what is lost, how the host compares with the next one, what would be if, and what is not sure. `finding` is
    the papers' finding with the same mechanism ("" = none), `ratio` the T/B the sentence speaks of, None = none.
    """

    resource: str
    share: float
    text: str
    neighbour: str | None = None
    kind: ReasonKind = "loss"
    finding: str = ""
    ratio: float | None = None


RungAction = Literal["weight", "cap", "pinning", "network", "disk", "hint", "driver_domain", "host"]


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the isolation ladder as it was tried on a host where a limit would break.

    `changes` are the settings that instances (the newcomer or residents, by id) would run under, together with those of
    the rungs it stands on; empty where no setting says it (a hint, or another host). `effects` is what is predicted
    for everybody with it, the newcomer first, with `before` = without it on the same host; empty where nothing can be
    predicted. `satisfies` = no limit is broken any more: the ladder ends there. Such a step may be the last resort,
    which takes more than half from whom no limit protects; the same step then also stands before, at a milder strength.
    `driver_cpus` are the pCPUs that the driver domain would run on, None = as it does. `notes` are what must be known
    before it is followed: what keeps its commands from being rendered, and whom it takes more than half from.
    """

    action: RungAction
    text: str
    changes: Mapping[str, IsolationSettings] = field(default_factory=dict)
    effects: tuple[Effect, ...] = ()
    satisfies: bool = False
    driver_cpus: tuple[int, ...] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """One step to apply and how to undo it; argv lists, never shell text."""

    tool: str
    argv: tuple[str, ...]
    undo: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One host that can take the instance, with the pinning and settings that suit it best there.

    `rungs` are the steps of the isolation ladder that were tried because the placement alone broke a limit, the last
    one mended it; `changes` are the settings that residents get by it, `notes` what must be known before that.
    """

    rank: int
    host: str
    score: float
    combined_score: float
    pinning: Pinning | None
    isolation: IsolationSettings
    newcomer: Effect
    neighbours: tuple[Effect, ...]
    tied_with: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    commands: tuple[Command, ...] = ()
    rungs: tuple[Rung, ...] = ()
    changes: Mapping[str, IsolationSettings] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        return self.rungs[-1].notes if self.rungs else ()


@dataclass(frozen=True, slots=True)
class Rejection:
    """A host that cannot take the instance: a stable code, a sentence, and which rungs did not mend a broken limit."""

    host: str
    code: str
    reason: str
    rungs: tuple[Rung, ...] = ()


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The stored answer to a PlacementRequest. `widened` is by which factor the throughput bands on a host are wider
    than the model's own; hosts whose bands are the model's own are left out."""

    id: str
    created_at: datetime
    request: PlacementRequest
    model_version: str
    model_origin: str
    degraded: bool
    snapshot_age_s: float
    candidates: tuple[Candidate, ...]
    rejected: tuple[Rejection, ...]
    notes: tuple[str, ...] = ()
    widened: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scene:
    """A host and who shares it: the question of `predict`. Workloads not among `workloads` are looked up by name."""

    host: Host
    instances: tuple[Instance, ...]
    workloads: tuple[WorkloadProfile, ...] = ()


@dataclass(frozen=True, slots=True)
class SceneEffects:
    """The answer to a Scene, one Effect per instance in the scene's order."""

    model_version: str
    model_origin: str
    degraded: bool
    effects: tuple[Effect, ...]
    combined_score: float


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One placement of a plan: `host` None = no host could take it, with the reasons in `rejected`."""

    instance: str
    host: str | None
    candidate: Candidate | None
    rejected: tuple[Rejection, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Instances placed one after another, with what is predicted for everybody before and after."""

    id: str
    created_at: datetime
    model_version: str
    model_origin: str
    steps: tuple[PlanStep, ...]
    before: Mapping[str, tuple[Effect, ...]]
    after: Mapping[str, tuple[Effect, ...]]


@dataclass(frozen=True, slots=True)
class Move:
    """A resident that should go from one host to another; `target` None = it should, and no host can take it.

    `score` is what the target is ranked by, `gain` how much that is more than staying; None where it has no say.
    """

    instance: str
    source: str
    target: str | None
    why: str
    score: float | None = None
    gain: float | None = None


ProbePinning = Literal["same", "different", "shared"]
PROBE_PINNINGS: tuple[ProbePinning, ...] = ("same", "different", "shared")


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """Which measurements would change a decision? `instances` None = every one of the cloud, as if yet to be placed.

    `pinnings` are the forms that can be measured; a run takes `seconds_per_run` and what the lab needs around it.
    """

    budget_s: float
    instances: tuple[Instance, ...] | None = None
    seconds_per_run: int = 20
    rounds: int = 3
    pinnings: tuple[ProbePinning, ...] = PROBE_PINNINGS
    objective: Objective = "worst"
    seed: int = 1


@dataclass(frozen=True, slots=True)
class ProbePair:
    """Two workloads to be measured together on hosts of one kind and platform ("" = none is named).

    `pinning`: `same` = they have fewer pCPUs together than vCPUs, `different` = pCPUs of their own, `shared` = pCPUs
    that both may use and that are enough for both.
    """

    first: str
    second: str
    pinning: ProbePinning
    kind: str
    platform: str


@dataclass(frozen=True, slots=True)
class ProbeTurn:
    """A decision that a measurement could turn: from which host to which, and how probably."""

    instance: str
    before: str
    after: str
    probability: float
    gain: float


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """One pair to measure: on which `hosts` of the decisions it meets, what it could turn and gain beyond the steps
    before it (T/B of the worst-off, summed over decisions), and the time it adds."""

    pair: ProbePair
    hosts: tuple[str, ...]
    turns: tuple[ProbeTurn, ...]
    probability: float
    gain: float
    seconds: float
    cumulative_s: float


@dataclass(frozen=True, slots=True)
class ProbeDecision:
    """A decision: today's host, how probably full knowledge would choose otherwise, and the expected regret."""

    instance: str
    host: str
    probability_before: float
    probability_after: float
    regret_before: float
    regret_after: float


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """What to measure next. `ended`: every choice is `settled`, the `budget` is spent, or there is `no gain` left."""

    request: ProbeRequest
    model_version: str
    model_origin: str
    degraded: bool
    run_s: float
    steps: tuple[ProbeStep, ...]
    decisions: tuple[ProbeDecision, ...]
    ended: Literal["settled", "budget", "no gain"]
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """What all steps take together."""
        return self.steps[-1].cumulative_s if self.steps else 0.0


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A registered model: `status` is candidate, shadow, active or retired; `card` is the artifact's card.json.

    `verdict` is what the gate last said of it (`models.gate.Verdict` as plain values), None for the queueing prior.
    """

    version: str
    status: str
    created_at: datetime
    origin: str
    card: Mapping[str, Any]
    verdict: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Activation:
    """One change of the model that answers: `before` and `after` are versions, "prior" for the queueing prior alone;
    `cause` is activate, force (against the gate) or rollback."""

    at: datetime
    before: str
    after: str
    cause: str


TokenScope = Literal["read", "write", "admin"]
TOKEN_SCOPES: tuple[TokenScope, ...] = ("read", "write", "admin")  # each includes those before it


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is listed: its secret is known only to who got it. `expires_at` None = never."""

    id: str
    name: str
    scope: TokenScope
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and what they may: `actor` is `local`, `token:ID` or `keystone:USER`."""

    actor: str
    scope: TokenScope


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who changed or was told what: `objects` are the ids it is about, `detail` what else there is to say.

    `request_id` is empty where it was a command. Bulk calls name no objects, their counts stand in `detail`.
    """

    id: str
    at: datetime
    actor: str
    request_id: str
    operation: str
    objects: tuple[str, ...]
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A slice of a listing; `next_cursor` None = the end."""

    items: tuple[T, ...]
    next_cursor: str | None = None
