"""Answers with throughput intervals as wide as observed outcomes show that they must be; the order of hosts stays."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from advisor.domain import (
    Band,
    Candidate,
    Effect,
    EvidenceLevel,
    Host,
    LevelHeld,
    Plan,
    PlanStep,
    Recommendation,
    SceneEffects,
    listed,
)
from models.evaluation.prediction_checks import WIDEST, widen
from models.physics.prior import CEILING

# By host, at least 1; who is not there keeps the model's own intervals, which no outcome has calibrated.
Factors = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class HowItHeld:
    """What was observed of a model's predictions: the `factors`, and how its forecasts held by what was known of the
    instance. `doubted` are hosts that contradict the model now, whose intervals nothing has calibrated."""

    factors: Factors
    levels: Mapping[EvidenceLevel, LevelHeld]
    doubted: Collection[str] = frozenset()


def recommendation(answer: Recommendation, held: HowItHeld) -> Recommendation:
    """Widen each candidate by the factor of its host, and say so, and how answers about such new VMs have held."""
    if answer.evidence is not None:
        answer = replace(answer, evidence=replace(answer.evidence, held=held.levels.get(answer.evidence.level)))
    factors = held.factors
    shown = (*answer.candidates, *answer.tuned, *filter(None, [answer.present]))
    if not any(given.host in factors for given in shown):
        return answer
    candidates, tuned = (tuple(candidate(given, held) for given in some) for some in (answer.candidates, answer.tuned))
    present = answer.present and candidate(answer.present, held)
    answer = replace(answer, candidates=candidates, tuned=tuned, present=present)
    used = {given.host: factor for given in shown if (factor := factors.get(given.host, 1.0)) > 1}
    if not used:
        return answer
    note = "Intervals on {hosts} are {most:.1f} times as wide as the model's own, which held too rarely of late."
    notes = (*answer.notes, note.format(hosts=listed(sorted(used)), most=max(used.values())))
    return replace(answer, widened=used, notes=notes)


def candidate(given: Candidate, held: HowItHeld) -> Candidate:
    """Widen what happens to every instance on one host."""
    if given.host not in held.factors:
        return given
    factor = held.factors[given.host]
    neighbours = tuple(effect(neighbour, factor) for neighbour in given.neighbours)
    # At the widest it is not known whether it is wide enough.
    calibration = "observed" if factor < WIDEST and given.host not in held.doubted else given.calibration
    return replace(given, new_vm=effect(given.new_vm, factor), neighbours=neighbours, calibration=calibration)


def scene(answer: SceneEffects, host: Host, factors: Factors) -> SceneEffects:
    """Widen the answer about one host."""
    if host.id not in factors:
        return answer
    return replace(answer, effects=tuple(effect(given, factors[host.id]) for given in answer.effects))


def plan(answer: Plan, held: HowItHeld) -> Plan:
    """Widen every step of a plan, and what it says of the hosts before and after."""
    factors = held.factors
    if not factors:
        return answer
    return replace(
        answer,
        steps=tuple(_step(step, factors.get(step.host or "", 1.0)) for step in answer.steps),
        before=_everywhere(answer.before, factors),
        after=_everywhere(answer.after, factors),
    )


def effect(given: Effect, factor: float) -> Effect:
    """Widen the throughput bands of one instance."""
    before = None if given.before is None else _band(given.before, factor)
    return replace(given, throughput_ratio=_band(given.throughput_ratio, factor), before=before)


def _step(step: PlanStep, factor: float) -> PlanStep:
    if step.new_vm is None:
        return step
    neighbours = tuple(effect(given, factor) for given in step.neighbours)
    return replace(step, new_vm=effect(step.new_vm, factor), neighbours=neighbours)


def _everywhere(effects: Mapping[str, tuple[Effect, ...]], factors: Factors) -> dict[str, tuple[Effect, ...]]:
    return {host: tuple(effect(given, factors.get(host, 1.0)) for given in here) for host, here in effects.items()}


def _band(band: Band, factor: float) -> Band:
    lower, upper = (widen(band.expected, edge, factor) for edge in (band.lower, band.upper))
    return Band(band.expected, lower, min(upper, max(band.upper, CEILING)))
