"""What is answered: effects, reasons, candidates with their commands, recommendations, moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from advisor.domain.calibration import Calibration
from advisor.domain.evidence import Evidence, EvidenceLevel
from advisor.domain.questions import PlacementRequest
from profiler.observed import Instance, IsolationSettings, Pinning

# "hit": another question had decided it; "former": on the cloud as it was a moment before; "miss": decided for this one
AnswerSource = Literal["hit", "former", "miss"]

LONGEST_KNOWN_LATENCY = 10.0
"""Times as long as alone. A latency interval that reaches further tells nothing about its upper edge, so people are
reported that the edge is not known; programs get the number."""


@dataclass(frozen=True, slots=True)
class Band:
    """A predicted ratio with its range, which is a 90 % interval where outcomes have calibrated it."""

    expected: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class CpuTime:
    """What an instance gets of the CPU time that it wants, by the queueing model whatever model predicts its ratios.

    `share` is run / (run + wait), `worst_share` the same in the worst twentieth of the time, both 0-1. `short` is the
    part of the time in which it gets less than it wants, and `short_before` the same without the newcomer (None for the
    newcomer). `overloaded` = at its busy times more work arrives than it is served: no finite latency is reported.
    """

    share: float
    worst_share: float
    short: float
    short_before: float | None = None
    overloaded: bool = False


@dataclass(frozen=True, slots=True)
class EffectBasis:
    """What the T/B of one instance rests on where a learned model answers: `support`, 0-1, is how much of what was
    learned applies, `correction` the part by which it changed what the analytic model says (-0.04 = 4 % less), after
    `similar` measured co-locations on so many `machines`, and `measured` ones of exactly these instances."""

    support: float
    correction: float
    similar: float
    machines: float
    measured: float

    @property
    def sentence(self) -> str:
        """The same in words."""
        if self.support < NO_SUPPORT:
            return "nothing like it was measured: the analytic model answers"
        own = f" and {round(self.measured)} of exactly these instances" if round(self.measured) else ""
        machines = max(round(self.machines), 1)
        return (
            f"corrected by {100 * self.correction:+.0f} % after {round(self.similar):,} similar measured co-locations "
            f"on {machines} machine{'s' * (machines != 1)}{own} (support {100 * self.support:.0f} %)"
        )


@dataclass(frozen=True, slots=True)
class Effect:
    """What happens to one instance: `before` is its throughput ratio without the newcomer (None for the newcomer).

    `jitter_ratio` and `cpu` are None only in answers that were stored before they were predicted, `basis` also where no
    learned model answers.
    """

    instance: str
    throughput_ratio: Band
    latency_ratio: Band
    before: Band | None = None
    outside_training: bool = False
    jitter_ratio: Band | None = None
    cpu: CpuTime | None = None
    basis: EffectBasis | None = None

    @property
    def overloaded(self) -> bool:
        """Whether more work arrives at its busy times than it is served then: no finite latency is reported."""
        return self.cpu is not None and self.cpu.overloaded


NO_SUPPORT = 0.05  # of what was learned: with less, an answer is the analytic model's
ReasonKind = Literal["loss", "comparison", "counterfactual", "uncertainty"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One part of an explanation: `resource` (cpu, driver_domain, nic, disk, memory, unknown), its `share` of the loss
    (0-1), who presses (`neighbour`, None = no instance in particular) and a sentence.

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


MitigationAction = Literal["weight", "cap", "pinning", "network", "disk", "hint", "driver_domain", "host"]


@dataclass(frozen=True, slots=True)
class MitigationStep:
    """A mitigation step as tried on a host where a limit would be violated.

    `changes` are the settings of instances (newcomer or residents, by id), together with those of the steps that it
    builds on; empty for a hint or another host. `effects` are predicted for every instance, the newcomer first, with
    `before` = without the step on the same host; empty where nothing can be predicted. `satisfies` = no limit is
    violated any more; it is then the last step. Such a step may be a last resort, which takes more than half from an
    instance without a limit; the same action then also occurs earlier at a milder strength. `driver_cpus` are the pCPUs
    of the driver domain, None = unchanged. `notes` say what prevents its commands, and which instances lose more than
    half.
    """

    action: MitigationAction
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
class Headroom:
    """What would be left on a host with the newcomer, as parts of what it has; below 0 = more is asked for.

    `cpu` and `nic` in its busy moments (95th percentile of demand), `memory` of what may be promised; 1 where the
    capacity is unknown. `one_node` = the newcomer fits into one NUMA node. `*_before` is what is left without
    the newcomer, None = not known.
    """

    cpu: float
    memory: float
    nic: float
    one_node: bool = True
    cpu_before: float | None = None
    memory_before: float | None = None
    nic_before: float | None = None

    @property
    def scarcest(self) -> tuple[str, float]:
        """The resource of which the smallest part is left, and that part."""
        return min((("cpu", self.cpu), ("memory", self.memory), ("nic", self.nic)), key=lambda left: left[1])


@dataclass(frozen=True, slots=True)
class TuningStep:
    """One change to a host as it stands: an instance gets `settings`, or ("") the driver domain keeps to `driver_cpus`
    with the scheduler weight `driver_weight`, None = as it is. `effects` are those that it changes by 0.01 or more,
    with what was before. `commands` are there where they were asked for, `notes` say why one is missing."""

    instance: str
    why: str
    settings: IsolationSettings | None = None
    driver_cpus: tuple[int, ...] = ()
    driver_weight: int | None = None
    effects: tuple[Effect, ...] = ()
    commands: tuple[Command, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """What the step is about, for people."""
        return self.instance or "driver domain"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A host that can take the instance, with the best pinning and settings there.

    `crowded` is the part of the time, 0-1, with more vCPUs ready to run there than CPUs, None = not known.
    `rungs` are the mitigation steps tried because the placement alone violates a limit; the last one succeeded.
    `changes` are the settings that it gives residents, `notes` what must be known before they are applied. `expected`
    and `half_width` are of what `score` is a lower bound of. `reserved` was taken off both, for others who may come
    need the place. `evidence` is how many residents are known how well. `tuning` are changes to the host that come
    first, in their order; all figures are with them, but for what residents have `before`.
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
    rungs: tuple[MitigationStep, ...] = ()
    changes: Mapping[str, IsolationSettings] = field(default_factory=dict)
    headroom: Headroom | None = None
    reserved: float = 0.0
    expected: float = 0.0
    half_width: float = 0.0
    crowded: float | None = None
    calibration: Calibration = "none"
    calibration_hosts: int | None = None
    evidence: Mapping[EvidenceLevel, int] = field(default_factory=dict)
    tuning: tuple[TuningStep, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the successful mitigation step."""
        return self.rungs[-1].notes if self.rungs else ()


@dataclass(frozen=True, slots=True)
class Rejection:
    """A host that cannot take the instance: a stable code, a sentence, and the mitigation steps that failed."""

    host: str
    code: str
    reason: str
    rungs: tuple[MitigationStep, ...] = ()


Advised = Literal["none", "place", "stay", "settings", "move"]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The stored answer to a PlacementRequest. `widened` is by which factor the throughput bands on a host are wider
    than the model's own; hosts whose bands are the model's own are left out. `present` is the instance on its host with
    the settings that it has now, None = it is on no host; its `tied_with` are candidates that are no better. `tuned`
    are hosts as they would be after a few changes to who is there, best first, apart from those that need none."""

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
    evidence: Evidence | None = None
    present: Candidate | None = None
    tuned: tuple[Candidate, ...] = ()

    @property
    def advised(self) -> Advised:
        """What the answer comes to: `place` an instance that is on no host; else `stay` where no candidate is better,
        other `settings` on its host, or `move`; `none` where no host can take it."""
        if not self.candidates:
            return "none"
        best, present = self.candidates[0], self.present
        if present is None:
            return "place"
        if best.host in present.tied_with:
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
    """What schedulers ask for: the `scores` of hosts, best first, and an answer that tells of few of them or none.

    `per_host` = what is said of each host depends on no other host that was asked about, and no other client is
    placing, so that it stands until the caller places an instance there.
    """

    answer: Recommendation
    scores: Mapping[str, float]
    per_host: bool = True


@dataclass(frozen=True, slots=True)
class SceneEffects:
    """The answer to a Scene, one Effect per instance in the scene's order; `crowded` as of a Candidate."""

    model_version: str
    model_origin: str
    degraded: bool
    effects: tuple[Effect, ...]
    combined_score: float
    crowded: float | None = None


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
