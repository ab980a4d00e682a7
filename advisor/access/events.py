"""Events: what became of alarms, plans, changes, models and the inventory, as the audit log has it, not who did it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from advisor.domain import AuditEntry, ServiceEvent, codec

_CHANGES = {
    "change.plan": "change.planned",
    "change.carry_out": "change.carried_out",
    "change.undo": "change.undo_begun",
    "change.measure": "change.measured",
}


def event_of(entry: AuditEntry) -> ServiceEvent:
    """An entry of the kinds that `store.audit.events` finds, as a reader receives it."""
    name, detail = _read(entry)
    return ServiceEvent(entry.id, name, {"at": codec.encode(entry.at), **detail})


def _read(entry: AuditEntry) -> tuple[str, dict[str, Any]]:
    match entry.operation:
        case "alarm.raise":
            return "alarm.raised", _alarm(entry)
        case "alarm.end":
            return "alarm.ended", _alarm(entry)
        case "plan.answer":
            return "plan.made", {"plan": entry.objects[0], **_some(entry.detail, "kind", "instances")}
        case "change.freeze" | "change.thaw":
            return "change.frozen" if entry.operation == "change.freeze" else "change.thawed", {}
        case "change.plan" | "change.carry_out" | "change.undo" | "change.measure":
            detail = {"rollout": entry.objects[0], **_some(entry.detail, "why", "verdict")}
            return _CHANGES[entry.operation], detail
        case "model.activate":
            detail = {"version": entry.objects[0], **_some(entry.detail, "before", "cause")}
            return "model.rolled_back" if detail["cause"] == "rollback" else "model.activated", detail
    changed = {"operation": entry.operation, "objects": list(entry.objects), **_some(entry.detail, "generation")}
    return "inventory.changed", changed


def _alarm(entry: AuditEntry) -> dict[str, Any]:
    instance, host, *others = entry.objects
    times = {name: codec.encode(datetime.fromisoformat(entry.detail[name])) for name in ("since", "raised")}
    antagonist = others[0] if others else None
    score = entry.detail.get("score")  # null = of CPU delivered below the predicted range
    return {
        "instance": instance, "host": host, "antagonist": antagonist, **times, "text": entry.detail["why"],
        "score": score,
    }  # fmt: skip


def _some(detail: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """What an entry says under these names; null where it was written before that was said."""
    return {name: detail.get(name) for name in names}
