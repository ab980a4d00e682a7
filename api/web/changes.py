"""Changes that are carried out: the list with verdicts, one with its ledger, approvals, and the freeze button."""

from __future__ import annotations

from fastapi import Request, Response
from fastapi.responses import HTMLResponse

from advisor.domain import RolloutStanding
from advisor.errors import Conflict
from advisor.service import ChangeService
from api.html.render import page, see_other
from api.routes.changes import OnlyState
from api.routes.common import ChangeDep, Cursor, PathId
from api.web.forms import Posted

_ROWS = 50
_LONGEST = 160  # letters of a line's detail


def listing(request: Request, changes: ChangeDep, state: OnlyState = None, cursor: Cursor = None) -> HTMLResponse:
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


def show(request: Request, rollout: PathId, changes: ChangeDep) -> HTMLResponse:
    """One rollout: each change, what was predicted and measured of each instance, and the ledger."""
    return _shown(request, changes, changes.get(rollout))


def approve(request: Request, rollout: PathId, changes: ChangeDep, form: Posted) -> Response:  # noqa: ARG001 - checked
    """Approve a rollout that is planned."""
    try:
        changes.approve(rollout)
    except Conflict as error:
        return _shown(request, changes, changes.get(rollout), error)
    return see_other(f"/changes/{rollout}")


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
