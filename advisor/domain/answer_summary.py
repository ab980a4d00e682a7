"""Recommendations as a light JSON for programs that place: who can take it, how well, and why the others cannot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from advisor.domain.answer_json import pinning_as_json, time_as_json
from advisor.domain.answers import Band, Candidate, Effect, Headroom, Recommendation, Rejection
from advisor.domain.figures import decimals, score_figure

Json = dict[str, Any]
MOST_TIED = 10  # hosts that a candidate names as tied; the rest is in the whole answer
RATIO_DECIMALS = 3


def summary_as_json(recommendation: Recommendation) -> Json:
    """The answer to `POST /v1/placements?summary=true`: ratios to three decimals, scores to four."""
    return {
        "id": recommendation.id,
        "created_at": time_as_json(recommendation.created_at),
        "degraded": recommendation.degraded,
        "dry_run": recommendation.request.dry_run,
        "notes": list(recommendation.notes),
        "candidates": [_candidate(candidate) for candidate in recommendation.candidates],
        "rejected": _rejected(recommendation.rejected),
    }


def _candidate(candidate: Candidate) -> Json:
    return {
        "rank": candidate.rank,
        "host": candidate.host,
        "score": score_figure(candidate.score),
        "throughput_ratio": _band(candidate.newcomer.throughput_ratio),
        "worst_neighbour": _worst(candidate.neighbours),
        "tied_with": list(candidate.tied_with[:MOST_TIED]),
        "pinning": pinning_as_json(candidate.pinning),
        "changes_neighbours": bool(candidate.changes),
        "headroom": None if candidate.headroom is None else _headroom(candidate.headroom),
    }


def _worst(neighbours: Sequence[Effect]) -> Json | None:
    worst = min(neighbours, key=lambda effect: effect.throughput_ratio.expected, default=None)
    return None if worst is None else {"instance": worst.instance, "throughput_ratio": _band(worst.throughput_ratio)}


def _headroom(headroom: Headroom) -> Json:
    parts = {"cpu": headroom.cpu, "memory": headroom.memory, "nic": headroom.nic}
    return {
        **{name: decimals(part, RATIO_DECIMALS) for name, part in parts.items()},
        "one_numa_node": headroom.one_node,
    }


def _rejected(rejections: Sequence[Rejection]) -> list[Json]:
    """Hosts by code and sentence, in the order of the first of each."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for rejection in rejections:
        hosts.setdefault((rejection.code, rejection.reason), []).append(rejection.host)
    return [{"code": code, "reason": reason, "hosts": names} for (code, reason), names in hosts.items()]


def _band(band: Band) -> Json:
    return {name: decimals(getattr(band, name), RATIO_DECIMALS) for name in ("expected", "lower", "upper")}
