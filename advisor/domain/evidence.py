"""What is known of instances, from their size alone to a profile: the level of evidence that an answer rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field

from advisor.domain.figures import Known
from profiler.demand import DemandOrigin
from profiler.observed import Instance

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
    """One sentence on who is on a host; empty where no instance is."""
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
