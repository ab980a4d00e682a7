"""What a placement does to each instance, and the evidence that this rests on.

The description of each field stands beside its type: REST, `--json`, the client's types and the reference follow.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, get_args

from pydantic import AliasChoices, AliasPath, BeforeValidator, Field, computed_field, field_serializer

from models.figures import Figure, Known, Score
from profiler.demand import DemandOrigin
from profiler.observed import Instance

NO_SUPPORT = 0.05  # of what was learned: with less, an answer is the analytic model's
LONGEST_KNOWN_LATENCY = 10.0
"""Times as long as alone. A latency interval that reaches further says nothing about its upper edge, so people are
reported that the edge is not known; programs get the number."""

CROWDED = "part of the time with more vCPUs ready to run on the host than it has CPUs, 0-1; null = not known"
DEGRADED = "the learned model failed and the analytic model answered"
_PresentName = BeforeValidator(lambda name: "analytic" if name == "prior" else name)  # as earlier versions wrote it
ModelVersion = Annotated[
    str,
    _PresentName,
    Field(
        description="the version of the model that answered",
        validation_alias=AliasChoices("model_version", AliasPath("model", "version")),
    ),
]
ModelOrigin = Annotated[
    str,
    _PresentName,
    Field(
        description="where its training data came from",
        validation_alias=AliasChoices("model_origin", AliasPath("model", "origin")),
    ),
]


@dataclass(frozen=True, slots=True)
class Band:
    """A predicted ratio with its range; 1.0 = as alone. It is a 90 % interval where outcomes have calibrated it."""

    expected: Annotated[Figure, Field(description="the expected ratio")]
    lower: Annotated[Figure, Field(description="lower end of the interval")]
    upper: Annotated[Figure, Field(description="upper end of the interval")]


@dataclass(frozen=True, slots=True)
class CpuTime:
    """CPU delivered to an instance, by the analytic model, also where a learned one answers."""

    share: Annotated[Figure, Field(description="CPU delivered, as a part of its demand: run / (run + wait), 0-1")]
    worst_share: Annotated[Figure, Field(description="the same in the worst twentieth of the time")]
    short: Annotated[
        Figure, Field(description="contended time: the part of the time in which it gets less CPU than its demand, 0-1")
    ]
    short_before: Annotated[
        Figure | None, Field(description="the same without the new VM; null for the new VM itself")
    ] = None
    overloaded: Annotated[
        bool,
        Field(description="more work arrives at its busy times than it is served; its latency has no finite value"),
    ] = False


@dataclass(frozen=True, slots=True)
class EffectBasis:
    """What the T/B of one instance rests on where a learned model answers."""

    support: Annotated[Figure, Field(description="how much of what was learned applies, 0-1")]
    correction: Annotated[
        Figure, Field(description="by which part it changed what the analytic model says, -0.04 = 4 % less")
    ]
    similar: Annotated[Figure, Field(description="how many measured co-locations are like it")]
    machines: Annotated[Figure, Field(description="on how many machines those were measured")]
    measured: Annotated[Figure, Field(description="how many measured outcomes there are of exactly these instances")]

    @computed_field(description="the same in words")  # type: ignore[prop-decorator]
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
    """What happens to one instance."""

    instance: Annotated[str, Field(description="the instance")]
    throughput_ratio: Annotated[Band, Field(description="T/B")]
    latency_ratio: Annotated[Band, Field(description="latency over its latency alone; null where it is overloaded")]
    before: Annotated[
        Band | None, Field(description="T/B without the new VM, or before the change; null for the new VM itself")
    ] = None
    outside_training: Annotated[
        bool, Field(description="nothing that was learned applies, or nothing is known of it")
    ] = False
    jitter_ratio: Annotated[
        Band | None,
        Field(
            description="standard deviation of latency over alone; null where it is overloaded, and in answers stored "
            "before it was predicted"
        ),
    ] = None
    cpu: Annotated[
        CpuTime | None,
        Field(description="CPU delivered, as a part of its demand; null in answers stored before it was predicted"),
    ] = None
    basis: Annotated[
        EffectBasis | None, Field(description="what T/B rests on; null where no learned model answers")
    ] = None

    @property
    def overloaded(self) -> bool:
        """Whether more work arrives at its busy times than it is served then: no finite latency is reported."""
        return self.cpu is not None and self.cpu.overloaded

    @property
    def latency_shown(self) -> Band:
        """The latency that programs and tables receive: infinite, which becomes null, where it is overloaded."""
        return self._shown(self.latency_ratio)

    @field_serializer("latency_ratio", when_used="json")
    def _latency_shown(self, latency: Band) -> Band:
        return self._shown(latency)

    @field_serializer("jitter_ratio", when_used="json")
    def _jitter_shown(self, jitter: Band | None) -> Band | None:
        return None if jitter is None else self._shown(jitter)

    def _shown(self, waiting: Band) -> Band:
        return replace(waiting, expected=math.inf, upper=math.inf) if self.overloaded else waiting


@dataclass(frozen=True, slots=True)
class SceneEffects:
    """What the instances of a scene do to each other, in the scene's order."""

    model_version: ModelVersion
    model_origin: ModelOrigin
    degraded: Annotated[bool, Field(description=DEGRADED)]
    effects: Annotated[tuple[Effect, ...], Field(description="what happens to each instance")]
    combined_score: Annotated[Score, Field(description="sum of the expected throughput ratios")]
    crowded: Annotated[Figure | None, Field(description=CROWDED)] = None


# What is known of instances, from their size alone to a profile: the level of evidence that an answer rests on.

EvidenceLevel = Literal["size", "class", "given", "history", "measured", "profile"]
EVIDENCE_LEVELS: tuple[EvidenceLevel, ...] = get_args(EvidenceLevel)  # the weakest first
EVIDENCE_WORDS: Mapping[EvidenceLevel, str] = {
    "size": "known by their size only",
    "class": "estimated from similar ones of this cloud",
    "given": "known by the demand that a user gave",
    "history": "known from another system's history",
    "measured": "measured by the agent",
    "profile": "known by the profile of their workload",
}
WEAK: frozenset[EvidenceLevel] = frozenset({"size", "class"})
_OF_ORIGIN: Mapping[DemandOrigin, EvidenceLevel] = {
    "assumed": "size",
    "class": "class",
    "given": "given",
    "trace": "given",
    "history": "history",
    "measured": "measured",
}


@dataclass(frozen=True, slots=True)
class LevelHeld:
    """How forecasts of such instances held in measured windows of five minutes on contended hosts of this cloud."""

    windows: Annotated[int, Field(description="windows of hosts, two digits of it")]
    coverage: Annotated[Known, Field(description="share of instances that got what lay in the model's own range")]
    error: Annotated[Known, Field(description="mean absolute error, in CPU delivered as a part of demand")]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the answer rests on."""

    level: Annotated[
        EvidenceLevel,
        Field(
            description="what is known of the new VM: size, class (others of this cloud), given, history, measured, "
            "profile"
        ),
    ]
    advice: Annotated[str, Field(description="what to do to know more; empty = nothing comes to mind")]
    held: Annotated[
        LevelHeld | None,
        Field(description="how answers about instances of that level have held here; null = too few windows"),
    ] = None


def evidence_level(instance: Instance, profiled: Collection[str]) -> EvidenceLevel:
    """What is known of one instance; `profiled` are the workloads that have a profile."""
    if instance.workload in profiled:
        return "profile"
    known = instance.demand.get("cpu")
    if known is not None:
        return _OF_ORIGIN[known.origin]
    return "size" if instance.load == 1.0 else "given"


def evidence_counts(instances: Iterable[Instance], profiled: Collection[str]) -> Mapping[EvidenceLevel, int]:
    """How many instances there are of each level, the weakest first; levels that no instance has are left out."""
    counts = Counter(evidence_level(instance, profiled) for instance in instances)
    return {level: counts[level] for level in EVIDENCE_LEVELS if counts[level]}


def held_in_words(evidence: Evidence) -> str:
    """One sentence on how answers about instances of its level have held; empty where nothing is known."""
    held = evidence.held
    if held is None:
        return ""
    return (
        f"In {held.windows} contended windows of this cloud {100 * held.coverage:.0f} % of the instances "
        f"{EVIDENCE_WORDS[evidence.level]} got what was predicted before, {held.error:.2f} off on average."
    )


def evidence_in_words(counts: Mapping[EvidenceLevel, int], host: str) -> str:
    """One sentence on the instances of a host; empty where no instance is."""
    total = sum(counts.values())
    if not total:
        return ""
    if len(counts) == 1:
        (level,) = counts
        several = f"Both residents of {host} are" if total == 2 else f"All {total} residents of {host} are"
        who = f"The only resident of {host} is" if total == 1 else several
        return f"{who} {_words(level, total)}."
    parts = [f"{count} {'is' if count == 1 else 'are'} {_words(level, count)}" for level, count in counts.items()]
    return f"Of the {total} residents of {host} {', '.join(parts)}."


def _words(level: EvidenceLevel, count: int) -> str:
    words = EVIDENCE_WORDS[level]
    return words.replace("their", "its") if count == 1 else words


def is_guessed(instance: Instance, profiled: Collection[str]) -> bool:
    """Whether its demand is an estimate from its size or from similar instances."""
    return evidence_level(instance, profiled) in WEAK


def rests_on(guessed: int, instances: int) -> str:
    """What a statement that nothing is wrong with so many instances rests on; empty where all demand is known."""
    if not guessed:
        return ""
    return (
        f"Demand is known for {instances - guessed:,} of {instances:,} instances; that of {guessed:,} is estimated "
        "from their size or from similar instances."
    )
