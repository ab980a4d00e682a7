"""Schemas of changes that are carried out: rollouts, their steps, what they brought, and the lines of the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from advisor.domain import (
    Change,
    ChangeState,
    Freeze,
    LedgerLine,
    Maintenance,
    MaintenanceState,
    MeasuredEffect,
    PredictedEffect,
    RolloutStanding,
    codec,
)
from advisor.service import PreviewedChange, SignedText
from api.schemas.base import TEXT_PATTERN, AnswerBody, Id, Schema, Text, Time, examples
from profiler.acting.orders import MOST_BYTES

AT_ONCE = 100  # reports in one call


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOut(Change):
    """One change of a rollout, and how far it came."""

    state: Annotated[
        ChangeState,
        Field(description="planned, applying, applied, failed, undoing, undone or left (as another set it)"),
    ]
    why: Annotated[str, Field(description="why it failed or was left; empty = it did not")]


class RolloutOut(AnswerBody):
    """Changes that belong together, how far they came, and what they brought."""

    id: str = Field(description="its id, which sorts by time")
    created_at: Time = Field(description="when it was made")
    actor: str = Field(description="who made it")
    source: str = Field(description="the plan or answer that it carries out, or maintenance:HOST")
    state: str = Field(
        description="planned, approved, applying, canary, carried_out, undoing, taken_back, or stopped until the "
        "operator has looked"
    )
    verdict: str = Field(description="the worst of what was measured; unknown = nothing yet")
    why: str = Field(description="why it is taken back, or stopped; empty = it is not")
    approved_by: str = Field(description="the user that approved it; empty = no user yet")
    notes: list[str] = Field(description="what else to know, such as instances that stay on a host that is emptied")
    keeps: bool = Field(description="true = a failed step ends it and takes nothing back, as in maintenance")
    canary: int = Field(description="so many changes come first and are measured before the rest; 0 = all at once")
    steps: list[StepOut] = Field(description="its changes in order")
    predicted: list[PredictedEffect] = Field(description="what was predicted of each instance")
    effects: list[MeasuredEffect] = Field(description="what was measured of each instance; empty = nothing yet")
    lines: list[LedgerLine] = Field(description="the ledger")

    @classmethod
    def of(cls, standing: RolloutStanding) -> RolloutOut:
        made = standing.rollout
        return cls(
            id=made.id,
            created_at=made.created_at,
            actor=made.actor,
            source=made.source,
            state=standing.state,
            verdict=standing.verdict,
            why=standing.why,
            approved_by=standing.approved_by,
            notes=list(made.notes),
            keeps=made.keeps,
            canary=made.canary,
            steps=[_step(standing, number) for number in range(len(made.changes))],
            predicted=list(made.predicted),
            effects=list(standing.effects),
            lines=list(standing.lines),
        )


class MaintenanceOut(AnswerBody):
    """How far the maintenance of a host is."""

    host: str = Field(description="the host")
    state: MaintenanceState = Field(
        description="none, planned (a rollout waits for an approval), emptying, reached (no instance is left there, "
        "and it takes none), not reached, or ended"
    )
    rollout: str | None = Field(description="the rollout that closed or opened it last; null = there was none")
    stays: list[str] = Field(description="instances that are there still")
    notes: list[str] = Field(description="why instances stay, as far as the plan knew")

    @classmethod
    def of(cls, one: Maintenance) -> MaintenanceOut:
        made = one.rollout.rollout if one.rollout else None
        return cls(
            host=one.host,
            state=one.state,
            rollout=made.id if made else None,
            stays=list(one.stays),
            notes=[*(made.notes if made else ()), *([one.rollout.why] if one.rollout and one.rollout.why else [])],
        )


class PreviewOut(AnswerBody):
    """What `cotenant apply` would do."""

    rollout: RolloutOut = Field(description="the changes; nothing is stored")
    now: list[dict[str, str]] = Field(description="what the system shows of each change now, in their order")
    refused: list[str] = Field(description="why it may not be carried out now, a sentence each")

    @classmethod
    def preview(
        cls, standing: RolloutStanding, previewed: tuple[PreviewedChange, ...], refused: tuple[str, ...]
    ) -> PreviewOut:
        return cls(
            rollout=RolloutOut.of(standing),
            now=[dict(one.now) for one in previewed],
            refused=[*(one.why_not for one in previewed if one.why_not), *refused],
        )


class FreezeBody(Schema):
    """Freeze changes: nothing is applied until they are thawed."""

    model_config = examples({"reason": "release week"})

    reason: Text = Field(default="", description="why, for other people")


class SignedBody(Schema):
    """What the agent of a host reports on an order, as it signed it; the service passes it on."""

    order: str = Field(pattern=r"^[0-9a-f]{32}$", description="the id of the order")
    text: str = Field(max_length=MOST_BYTES, pattern=TEXT_PATTERN, description="the report, a text in JSON")
    signature: str = Field(pattern=r"^[0-9a-f]{64}$", description="HMAC-SHA256 of it with the key of the host")


class OrdersBody(Schema):
    """What the agent of a host that may change settings says when it asks for orders."""

    model_config = examples({"host": "kvm01", "reports": []})

    host: Id = Field(description="the host")
    reports: list[SignedBody] = Field(default=[], max_length=AT_ONCE, description="on orders that it got before")

    def to_domain(self) -> list[SignedText]:
        return [SignedText(one.order, one.text, one.signature) for one in self.reports]


class OrderOut(AnswerBody):
    """An order, as a controller signed it."""

    text: str = Field(description="the order, a text in JSON")
    signature: str = Field(description="HMAC-SHA256 of it with the key of the host")


class OrdersOut(AnswerBody):
    """Orders that wait for a host."""

    orders: list[OrderOut] = Field(description="the oldest first; one comes again until its report is there")


class FreezeOut(AnswerBody):
    """Whether changes are frozen."""

    frozen: bool = Field(description="true = nothing is applied")
    at: Time | None = Field(description="since when; null = they are not frozen")
    actor: str = Field(description="who froze them")
    reason: str = Field(description="why")

    @classmethod
    def of(cls, freeze: Freeze | None) -> FreezeOut:
        if freeze is None:
            return cls(frozen=False, at=None, actor="", reason="")
        return cls(frozen=True, at=freeze.at, actor=freeze.actor, reason=freeze.reason)


def _step(standing: RolloutStanding, number: int) -> StepOut:
    change, one = standing.rollout.changes[number], standing.changes[number]
    known = {**codec.columns(change), "before": one.before or change.before}
    return StepOut(**known, state=one.state, why=one.why)
