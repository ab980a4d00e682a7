"""Events: what became of alarms, plans, models and the inventory, as the audit log has it, without who did it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from advisor.domain import AuditEntry, ServiceEvent, time_as_json


def event_of(entry: AuditEntry) -> ServiceEvent:
    """An entry of the kinds that `store.audit.events` finds, as a reader receives it."""
    name, detail = _read(entry)
    return ServiceEvent(entry.id, name, {"at": time_as_json(entry.at), **detail})


def _read(entry: AuditEntry) -> tuple[str, dict[str, Any]]:
    match entry.operation:
        case "alarm.raise":
            return "alarm.raised", _alarm(entry)
        case "alarm.end":
            return "alarm.ended", _alarm(entry)
        case "plan.answer":
            return "plan.made", {"plan": entry.objects[0], **_some(entry.detail, "kind", "instances")}
        case "model.activate":
            detail = {"version": entry.objects[0], **_some(entry.detail, "before", "cause")}
            return "model.rolled_back" if detail["cause"] == "rollback" else "model.activated", detail
    changed = {"operation": entry.operation, "objects": list(entry.objects), **_some(entry.detail, "generation")}
    return "inventory.changed", changed


def _alarm(entry: AuditEntry) -> dict[str, Any]:
    instance, host, *others = entry.objects
    times = {name: time_as_json(datetime.fromisoformat(entry.detail[name])) for name in ("since", "raised")}
    antagonist = others[0] if others else None
    return {"instance": instance, "host": host, "antagonist": antagonist, **times, "text": entry.detail["why"]}


def _some(detail: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """What an entry says under these names; null where it was written before that was said."""
    return {name: detail.get(name) for name in names}
