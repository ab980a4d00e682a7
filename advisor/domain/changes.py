"""Changes that Cotenant carries out: what is set where, how far it came, and what it brought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from advisor.domain.effects import Band
from models.figures import Figure
from profiler.observed import Instance

ChangeKind = Literal["weight", "cap", "pin", "tc", "disk", "move", "host"]  # host = whether it takes new instances
CHANGE_KINDS: tuple[ChangeKind, ...] = get_args(ChangeKind)
ApplyMode = Literal["advise", "ask", "act"]
Verdict = Literal["as predicted", "more", "less", "harmful", "unknown"]
# What a line of the ledger says. Those of one change come in pairs: one before it is done, one after.
LedgerEvent = Literal[
    "planned", "approved", "applying", "applied", "failed", "canary", "continued", "carried_out", "undo_begun",
    "undoing", "undone", "left", "taken_back", "stopped", "measured",
]  # fmt: skip
ChangeState = Literal["planned", "applying", "applied", "failed", "undoing", "undone", "left"]
RolloutState = Literal[
    "planned", "approved", "applying", "canary", "carried_out", "undoing", "taken_back", "stopped"
]  # fmt: skip
# Fitted so that 90 % of 54 measured effects of changes lie in the predicted range, and judged on others
# (research/results/plans.md, changes that are carried out).
SHARED = 0.69
MaintenanceState = Literal["none", "planned", "emptying", "reached", "not reached", "ended"]
OPEN_STATES: frozenset[RolloutState] = frozenset({"approved", "applying", "canary", "undoing"})


CLOSING, OPENING = "maintenance:", "maintenance-end:"  # before the host's id: sources of rollouts


@dataclass(frozen=True, slots=True)
class Change:
    """One change: `before` is as the plan assumes it; what really was there before is read and stands in the ledger."""

    number: Annotated[int, Field(description="its place in the order, from 0")]
    host: Annotated[str, Field(description="the host on which it is made")]
    instance: Annotated[
        str,
        Field(description="the instance that is changed; empty = the driver domain, or the host itself"),
    ]
    kind: Annotated[
        ChangeKind,
        Field(description="weight, cap, pin, tc, disk, move, or host: whether it takes new instances"),
    ]
    executor: Annotated[str, Field(description="the executor that carries it out")]
    target: Annotated[
        str, Field(description="what that addresses, such as a control group below its hierarchy, or a domain")
    ]
    before: Annotated[
        Mapping[str, str],
        Field(description="texts that were read before; as planned where nothing was read yet"),
    ]
    after: Annotated[Mapping[str, str], Field(description="texts that are set, by setting")]
    command: Annotated[tuple[str, ...], Field(description="the same as a command, for people")] = ()
    undo: Annotated[tuple[str, ...], Field(description="the command back")] = ()

    @property
    def subject(self) -> str:
        """What it is about, for people."""
        return self.instance or ("the host" if self.kind == "host" else "driver domain")


@dataclass(frozen=True, slots=True)
class PredictedEffect:
    """The relative throughput of an instance without and with the changes, as the plan has it, and the instances that
    it will be compared with: `controls` were chosen before anything was done; empty = the time before alone."""

    instance: Annotated[str, Field(description="the instance")]
    before: Annotated[Band, Field(description="relative throughput (T/B) without the changes")]
    after: Annotated[Band, Field(description="relative throughput (T/B) with them")]
    controls: Annotated[
        tuple[str, ...],
        Field(description="instances that it is compared with, chosen before; empty = none is similar"),
    ] = ()

    @property
    def change(self) -> Band:
        """The predicted difference. The part `SHARED` of each side's doubt is the same doubt, about the demand and the
        machine, and moves both sides alike; the rest counts as independent."""
        expected = self.after.expected - self.before.expected
        alike = (self.after.lower - self.before.lower, self.after.upper - self.before.upper, expected)
        down = _both(self.after.expected - self.after.lower, self.before.upper - self.before.expected)
        up = _both(self.after.upper - self.after.expected, self.before.expected - self.before.lower)
        down = (1 - SHARED) * down + SHARED * (expected - min(alike))
        up = (1 - SHARED) * up + SHARED * (max(alike) - expected)
        return Band(expected, expected - down, expected + up)


@dataclass(frozen=True, slots=True)
class MeasuredEffect:
    """What became of an instance's CPU delivered (0-1): `effect` is the difference between after and before, less that
    of its controls, with its 90 % interval; None where too few windows are there, and `why` says so."""

    instance: Annotated[str, Field(description="the instance")]
    predicted: Annotated[Band, Field(description="the predicted difference")]
    verdict: Annotated[Verdict, Field(description="the measured difference beside the predicted range")]
    effect: Annotated[
        Band | None, Field(description="the measured difference, less that of its controls; its 90 % interval")
    ] = None
    before: Annotated[Figure | None, Field(description="mean CPU delivered before, 0-1")] = None
    after: Annotated[Figure | None, Field(description="mean CPU delivered after, 0-1")] = None
    windows_before: Annotated[int, Field(description="windows before that count")] = 0
    windows_after: Annotated[int, Field(description="windows after that count")] = 0
    controls: Annotated[
        tuple[str, ...], Field(description="instances that it was compared with; empty = the time before alone")
    ] = ()
    why: Annotated[str, Field(description="the figures in a sentence, or why there are none")] = ""


@dataclass(frozen=True, slots=True)
class Rollout:
    """Changes that belong together, in their order; `source` is the plan or answer that they come from.

    A step that fails takes all back, or where the rollout `keeps` what was done, ends it there.
    """

    id: str
    created_at: datetime
    actor: str
    source: str
    changes: tuple[Change, ...]
    predicted: tuple[PredictedEffect, ...] = ()
    canary: int = 0  # so many changes come first and are measured before the rest; 0 = all at once
    notes: tuple[str, ...] = ()
    # Instances on the hosts that are changed, as they are before and after: what was measured is learned as these
    # scenes.
    there: tuple[Instance, ...] = ()
    then: tuple[Instance, ...] = ()
    keeps: bool = False

    @property
    def instances(self) -> frozenset[str]:
        """The instances that it changes; "" = a driver domain."""
        return frozenset(change.instance for change in self.changes if change.kind != "host")


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One line: `change` is the number of the change that it is about, None = the whole rollout."""

    line: Annotated[int, Field(description="its number, from 0")]
    at: Annotated[datetime, Field(description="when it was written")]
    actor: Annotated[str, Field(description="`local`, `token:ID`, `keystone:USER` or `service`")]
    event: Annotated[LedgerEvent, Field(description="what happened; docs/apply.md lists them")]
    change: Annotated[int | None, Field(description="the change that it is about; null = the rollout")] = None
    detail: Annotated[Mapping[str, Any], Field(description="what was read, set or measured")] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True)
class ChangeStanding:
    """How far one change came: `before` as it was read from the system just before it was applied."""

    state: ChangeState = "planned"
    before: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True, slots=True)
class RolloutStanding:
    """How far a rollout came, by its lines alone."""

    rollout: Rollout
    state: RolloutState
    changes: tuple[ChangeStanding, ...]
    why: str = ""
    approved_by: str = ""
    applied_from: datetime | None = None  # when the first change began
    applied_at: datetime | None = None  # when the last one was there
    continued: bool = False  # the changes after the canary may be carried out
    undo_begun: bool = False  # it is to be taken back, or was
    effects: tuple[MeasuredEffect, ...] = ()
    lines: tuple[LedgerLine, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of what was measured: harmful, less, unknown, more, as predicted."""
        said = {effect.verdict for effect in self.effects}
        order: tuple[Verdict, ...] = ("harmful", "less", "unknown", "as predicted", "more")
        return next((verdict for verdict in order if verdict in said), "unknown")


@dataclass(frozen=True, slots=True)
class Freeze:
    """While it stands, nothing is applied; what was applied can be taken back."""

    at: datetime
    actor: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Maintenance:
    """How far it is: `reached` = no instance is left there and the host takes none, by what is known of it. `rollout`
    is the last one that closed or opened it, None = there was none; `stays` are the instances that are there still."""

    host: str
    state: MaintenanceState
    rollout: RolloutStanding | None = None
    stays: tuple[str, ...] = ()


def closing(host_id: str) -> str:
    """The source of the rollout that closes and empties a host."""
    return f"{CLOSING}{host_id}"


def opening(host_id: str) -> str:
    """The source of the rollout that opens it again."""
    return f"{OPENING}{host_id}"


def _both(one: float, other: float) -> float:
    return float((one * one + other * other) ** 0.5)
