"""Pages of records: alarms, the audit log, changes that were carried out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import Request, Response
from fastapi.responses import HTMLResponse

from advisor.domain import Anomaly, AuditEntry, RolloutStanding, VmScore
from advisor.errors import Conflict
from advisor.service import ChangeService
from api.html.render import page, see_other
from api.routes.changes import OnlyState
from api.routes.common import (
    AccessDep,
    ChangeDep,
    CloudDep,
    Cursor,
    MaintenanceDep,
    PathId,
    PathName,
    QueryId,
)
from api.routes.state import QueryName
from api.web.cloud import PageNumber
from api.web.signing import Posted
from api.web.sorting import PARAMETER, Order, PageSlice, SortColumn, Value

# Anomalies on `/alarms`: instances whose measured CPU delivered is below the predicted range, and the likely cause.

AT_ONCE = 50  # alarms on a page
READS = (PARAMETER,)
COLUMNS: Mapping[str, SortColumn] = {
    "instance": SortColumn("Instance", figure=False, largest_first=False),
    "host": SortColumn("Host", figure=False, largest_first=False),
    "measured": SortColumn("CPU delivered", largest_first=False, help="Measured, run / (run + wait), since then"),
    "predicted": SortColumn("Predicted", largest_first=False),
    "score": SortColumn("Score", largest_first=False, help="Of the VM now, 100 = uncontended"),
    "since": SortColumn("Since (UTC)", figure=False),
    "cause": SortColumn("Likely cause", figure=False, largest_first=False),
}


def alarms(request: Request, cloud: CloudDep, number: PageNumber = 1) -> HTMLResponse:
    """Alarms that stand, the newest first unless `sort` names another column."""
    order = Order.read(request.query_params, COLUMNS, "-since")
    every = cloud.alarms()
    of_instances = cloud.scores().instances if every else {}
    part = PageSlice.of(len(every), number, AT_ONCE, "/alarms", {PARAMETER: order.text})
    alarms = order.first(
        part.end, every, lambda alarm: _value(order.key, alarm, of_instances), lambda alarm: alarm.instance
    )
    return page(
        request,
        "alarms.html",
        alarms=part.cut(alarms),
        low=cloud.low_scores()[:AT_ONCE] if number == 1 else (),
        scores=of_instances,
        headings=order.headings(COLUMNS, "/alarms", {}),
        part=part,
    )


def _value(key: str, alarm: Anomaly, of_instances: Mapping[str, VmScore]) -> Value:
    values: Mapping[str, Value] = {
        "instance": alarm.instance,
        "host": alarm.host,
        "measured": alarm.observed,
        "predicted": alarm.expected,
        "score": of_instances[alarm.instance].score if alarm.instance in of_instances else None,
        "since": alarm.since.timestamp(),
        "cause": alarm.antagonist or alarm.cause,
    }
    return values[key]


# The audit log on `/audit`, for administrators: changes and answers, newest first.

_ROWS = 50
_MOST_OBJECTS = 5  # ids of an entry that are shown
_LONGEST_TEXT = 200  # letters of the detail


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One entry, ready to be shown."""

    it: AuditEntry
    detail: str
    objects: tuple[str, ...]
    more: int


def audit(
    request: Request, access: AccessDep, actor: QueryId = None, named: QueryName = None, cursor: Cursor = None
) -> HTMLResponse:
    """Entries of the audit log, of one actor or about one object where these are given."""
    entries = access.audit(actor=actor, named=named, cursor=cursor, limit=_ROWS)
    return page(
        request,
        "audit.html",
        rows=[_line(entry) for entry in entries.items],
        next_cursor=entries.next_cursor,
        first=cursor is None,
        actor=actor or "",
        named=named or "",
    )


def _line(entry: AuditEntry) -> AuditLine:
    detail = ", ".join(f"{key} {_text(value)}" for key, value in entry.detail.items())
    shown = entry.objects[:_MOST_OBJECTS]
    cut = f"{detail[:_LONGEST_TEXT]}…" if len(detail) > _LONGEST_TEXT else detail
    return AuditLine(entry, cut, shown, len(entry.objects) - len(shown))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


# Changes that are carried out: the list with verdicts, one with its ledger, approvals, and the freeze button.

_LONGEST = 160  # letters of a line's detail


def changes(request: Request, changes: ChangeDep, state: OnlyState = None, cursor: Cursor = None) -> HTMLResponse:
    """Rollouts with what they brought, newest first, and whether changes are frozen."""
    found = changes.page(state=state, cursor=cursor, limit=_ROWS)
    return page(
        request,
        "changes.html",
        rows=found.items,
        next_cursor=found.next_cursor,
        first=cursor is None,
        state=state or "",
        frozen=changes.frozen(),
    )


def show_change(request: Request, rollout: PathId, changes: ChangeDep) -> HTMLResponse:
    """One rollout: each change, what was predicted and measured of each instance, and the ledger."""
    return _shown(request, changes, changes.get(rollout))


def approve_change(request: Request, rollout: PathId, changes: ChangeDep, form: Posted) -> Response:  # noqa: ARG001 - checked
    """Approve a rollout that is planned."""
    try:
        changes.approve(rollout)
    except Conflict as error:
        return _shown(request, changes, changes.get(rollout), error)
    return see_other(f"/changes/{rollout}")


def maintain(request: Request, host: PathName, maintenance: MaintenanceDep, form: Posted) -> Response:  # noqa: ARG001
    """Plan the maintenance of a host, or its end; what is to be done is shown, and waits for an approval."""
    plan = maintenance.end if form.get("end") else maintenance.start
    return see_other(f"/changes/{plan(host).rollout.id}")


def freeze(request: Request, changes: ChangeDep, form: Posted) -> Response:  # noqa: ARG001
    """Stop all changes."""
    changes.freeze(form.get("reason", "")[:255])
    return see_other("/changes")


def thaw(request: Request, changes: ChangeDep, form: Posted) -> Response:  # noqa: ARG001
    """Let changes be applied again."""
    changes.thaw()
    return see_other("/changes")


def _shown(
    request: Request, changes: ChangeService, standing: RolloutStanding, error: Conflict | None = None
) -> HTMLResponse:
    predicted = {one.instance: one for one in standing.rollout.predicted}
    measured = {one.instance: one for one in standing.effects}
    details = [
        ", ".join(f"{name} {value}" for name, value in line.detail.items() if name != "effects")[:_LONGEST]
        for line in standing.lines
    ]
    return page(
        request,
        "change.html",
        status=409 if error else 200,
        it=standing,
        steps=list(zip(standing.rollout.changes, standing.changes, strict=True)),
        effects=[(name, predicted[name], measured.get(name)) for name in sorted(predicted)],
        lines=list(zip(standing.lines, details, strict=True)),
        frozen=changes.frozen(),
        error=error,
    )
