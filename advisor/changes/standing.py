"""How far a rollout came, by the lines of the ledger and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from advisor.domain import ChangeStanding, LedgerLine, MeasuredEffect, Rollout, RolloutStanding, codec
from advisor.domain.changes import ChangeState, RolloutState

_OF_CHANGE: dict[str, ChangeState] = {
    "applying": "applying",
    "applied": "applied",
    "failed": "failed",
    "undoing": "undoing",
    "undone": "undone",
    "left": "left",
}
_OF_ROLLOUT: dict[str, RolloutState] = {
    "planned": "planned",
    "approved": "approved",
    "applying": "applying",
    "canary": "canary",
    "continued": "applying",
    "carried_out": "carried_out",
    "undo_begun": "undoing",
    "taken_back": "taken_back",
    "stopped": "stopped",
}


def standing_of(rollout: Rollout, lines: Iterable[LedgerLine]) -> RolloutStanding:
    """Fold the lines, the oldest first."""
    standing = RolloutStanding(rollout, "planned", tuple(ChangeStanding() for _ in rollout.changes))
    for line in lines:
        standing = after(standing, line)
    return standing


def after(standing: RolloutStanding, line: LedgerLine) -> RolloutStanding:
    """The standing with one more line."""
    state, why = _OF_ROLLOUT.get(line.event, standing.state), line.detail.get("why", "")
    if standing.state == "undoing" and line.event not in ("taken_back", "stopped"):
        state = "undoing"  # what a step reports while all is taken back
    standing = replace(standing, state=state, lines=(*standing.lines, line))
    if line.event in ("undo_begun", "stopped"):
        standing = replace(standing, why=standing.why or why)
    if line.change is not None and line.event in _OF_CHANGE:
        standing = _after_step(standing, line, line.change, why)
    match line.event:
        case "approved":
            return replace(standing, approved_by=line.actor)
        case "applying":
            return replace(standing, applied_from=standing.applied_from or line.at)
        case "applied":
            return replace(standing, applied_at=line.at)
        case "continued":
            # A step that failed is tried again; what was read before the first try is what was there.
            tried = (
                replace(one, state="applying" if one.before else "planned") if one.state == "failed" else one
                for one in standing.changes
            )
            # What the canary brought is not what all brings: it is measured again.
            return replace(standing, continued=True, why="", changes=tuple(tried), effects=())
        case "undo_begun":
            return replace(standing, undo_begun=True)
        case "measured":
            effects = tuple(codec.decode(MeasuredEffect, effect) for effect in line.detail["effects"])
            return replace(standing, effects=effects)
    return standing


def _after_step(standing: RolloutStanding, line: LedgerLine, number: int, why: str) -> RolloutStanding:
    one = standing.changes[number]
    # What was read before the first try is what was there: a second try may find its own half of the work.
    before = one.before or line.detail.get("before", {})
    changed = replace(one, state=_OF_CHANGE[line.event], before=before, why=why or one.why)
    return replace(standing, changes=(*standing.changes[:number], changed, *standing.changes[number + 1 :]))
