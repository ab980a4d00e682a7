"""Recommendations as the JSON of the public contract, section 4; the one place that knows that shape."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from advisor.domain.answers import (
    Band,
    Candidate,
    Command,
    CpuTime,
    Effect,
    EffectBasis,
    Headroom,
    MitigationStep,
    Reason,
    Recommendation,
    Rejection,
    TuningStep,
)
from advisor.domain.evidence import Evidence
from advisor.domain.figures import decimals, score_figure, significant
from profiler.observed import IsolationSettings, Pinning

Json = dict[str, Any]


def recommendation_as_json(recommendation: Recommendation) -> Json:
    """The answer to `POST /v1/placements`: figures with the digits that are known; null for what is not finite."""
    return head_as_json(recommendation) | body_as_json(recommendation)


def head_as_json(recommendation: Recommendation) -> Json:
    """What is of this one answer: when, by which model, on what."""
    return {
        "id": recommendation.id,
        "created_at": time_as_json(recommendation.created_at),
        "model": {"version": recommendation.model_version, "origin": recommendation.model_origin},
        "degraded": recommendation.degraded,
        "snapshot_age_s": decimals(recommendation.snapshot_age_s, 3),
        "dry_run": recommendation.request.dry_run,
    }


def body_as_json(recommendation: Recommendation) -> Json:
    """What was decided."""
    commands = recommendation.request.commands
    return {
        "candidates": [_candidate(candidate, commands=commands) for candidate in recommendation.candidates],
        "tuned": [
            {**_candidate(candidate, commands=commands), "tuning": [_tuning(step) for step in candidate.tuning]}
            for candidate in recommendation.tuned
        ],
        "rejected": [_rejection(rejection) for rejection in recommendation.rejected],
        "notes": list(recommendation.notes),
        "evidence": _evidence(recommendation.evidence),
        "present": recommendation.present and _candidate(recommendation.present, commands=False),
        "advised": recommendation.advised,
    }


def _candidate(candidate: Candidate, *, commands: bool) -> Json:
    answer: Json = {
        "rank": candidate.rank,
        "host": candidate.host,
        "score": score_figure(candidate.score),
        "tied_with": list(candidate.tied_with),
        "headroom": _headroom(candidate.headroom),
        "reserved": score_figure(candidate.reserved),
        "crowded": None if candidate.crowded is None else significant(candidate.crowded),
        "calibration": candidate.calibration,
        "calibration_hosts": candidate.calibration_hosts,
        "evidence": dict(candidate.evidence),
        "combined_score": score_figure(candidate.combined_score),
        "pinning": pinning_as_json(candidate.pinning),
        "isolation": _isolation(candidate.isolation),
        "newcomer": _effect(candidate.newcomer),
        "neighbours": _effects(candidate.neighbours),
        "changes": _changes(candidate.changes),
        "mitigation": _mitigation(candidate.rungs),
        "notes": list(candidate.notes),
        "reasons": [_reason(reason) for reason in candidate.reasons],
    }
    if commands:
        answer["commands"] = [_command(command) for command in candidate.commands]
    return answer


def _evidence(evidence: Evidence | None) -> Json | None:
    if evidence is None:
        return None
    held = evidence.held
    return asdict(evidence) | {
        "held": held
        and {"windows": held.windows, "coverage": significant(held.coverage), "error": significant(held.error)}
    }


def _headroom(headroom: Headroom | None) -> Json | None:
    if headroom is None:  # of an answer that was stored before it was known
        return None
    parts = {"cpu": headroom.cpu, "memory": headroom.memory, "nic": headroom.nic}
    return {
        **{name: significant(part) for name, part in parts.items()},
        "one_numa_node": headroom.one_node,
        **{
            name: significant(math.inf if (left := getattr(headroom, name)) is None else left)
            for name in ("cpu_before", "memory_before", "nic_before")
        },
    }


def _mitigation(steps: Sequence[MitigationStep]) -> list[Json]:
    """The mitigation steps that were tried, in their order."""
    return [
        {
            "action": step.action,
            "text": step.text,
            "changes": _changes(step.changes),
            "effects": _effects(step.effects),
            "satisfies": step.satisfies,
            "driver_cpus": None if step.driver_cpus is None else list(step.driver_cpus),
            "notes": list(step.notes),
        }
        for step in steps
    ]


def _tuning(step: TuningStep) -> Json:
    settings = step.settings
    return {
        "instance": step.instance,
        "why": step.why,
        "settings": None
        if settings is None
        else {"pinning": pinning_as_json(settings.pinning), "isolation": _isolation(settings)},
        "driver_cpus": list(step.driver_cpus),
        "driver_weight": step.driver_weight,
        "effects": _effects(step.effects),
        "notes": list(step.notes),
    }


def _rejection(rejection: Rejection) -> Json:
    return {
        "host": rejection.host,
        "code": rejection.code,
        "reason": rejection.reason,
        "mitigation": _mitigation(rejection.rungs),
    }


def _changes(changes: Mapping[str, IsolationSettings]) -> Json:
    """What instances would run under, by id."""
    return {
        name: {"pinning": pinning_as_json(settings.pinning), "isolation": _isolation(settings)}
        for name, settings in changes.items()
    }


def _effects(effects: Sequence[Effect]) -> list[Json]:
    return [{"instance": effect.instance, **_effect(effect)} for effect in effects]


def _effect(effect: Effect) -> Json:
    before = {} if effect.before is None else {"before": _band(effect.before)}
    return {
        **before,
        "throughput_ratio": _band(effect.throughput_ratio),
        "latency_ratio": _band(waiting_shown(effect, effect.latency_ratio)),
        "jitter_ratio": None if effect.jitter_ratio is None else _band(waiting_shown(effect, effect.jitter_ratio)),
        "outside_training": effect.outside_training,
        "cpu": None if effect.cpu is None else _cpu(effect.cpu),
        "basis": None if effect.basis is None else _basis(effect.basis),
    }


def _basis(basis: EffectBasis) -> Json:
    return {
        "support": significant(basis.support),
        "correction": significant(basis.correction),
        "similar": significant(basis.similar),
        "machines": significant(basis.machines),
        "measured": significant(basis.measured),
        "sentence": basis.sentence,
    }


def time_as_json(time: datetime) -> str:
    """RFC 3339, in UTC."""
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def waiting_shown(effect: Effect, waiting: Band) -> Band:
    """The latency or jitter that programs receive: infinite, which becomes null, where the instance is overloaded."""
    return Band(math.inf, waiting.lower, math.inf) if effect.overloaded else waiting


def _cpu(cpu: CpuTime) -> Json:
    return {
        "share": significant(cpu.share),
        "worst_share": significant(cpu.worst_share),
        "short": significant(cpu.short),
        "short_before": None if cpu.short_before is None else significant(cpu.short_before),
        "overloaded": cpu.overloaded,
    }


def _band(band: Band) -> Json:
    return {"expected": significant(band.expected), "lower": significant(band.lower), "upper": significant(band.upper)}


def pinning_as_json(pinning: Pinning | None) -> dict[str, list[int]] | None:
    """The pCPUs of each vCPU; None = not pinned."""
    return None if pinning is None else {str(vcpu): list(cpus) for vcpu, cpus in enumerate(pinning.cpus)}


def _isolation(settings: IsolationSettings) -> Json:
    network = settings.network
    return {
        "cap_percent": settings.cap_percent,
        "weight": settings.weight,
        "network": network and {"mode": network.mode, "rate_mbit": network.rate_mbit, "ceil_mbit": network.ceil_mbit},
        "disk_limit_mb_s": settings.disk_limit_mb_s,
    }


def _reason(reason: Reason) -> Json:
    return {
        "resource": reason.resource,
        "share": significant(reason.share),
        "text": reason.text,
        "neighbour": reason.neighbour,
        "kind": reason.kind,
        "finding": reason.finding,
        "ratio": None if reason.ratio is None else significant(reason.ratio),
    }


def _command(command: Command) -> Json:
    note = {"note": command.note} if command.note else {}
    return {"tool": command.tool, "argv": list(command.argv), "undo": list(command.undo), **note}
