"""Changes that are carried out: previewed, approved, applied, measured, taken back, each with lines in the ledger."""

from __future__ import annotations

import logging
import platform
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from advisor.access.audit import Audit, Operation, acting, actor
from advisor.changes.agents import BoxOfAgents, OwnHosts, set_open
from advisor.changes.controller import HOST, OPEN, YES, ChangeFailed, Controller, Executors, Reach
from advisor.changes.from_plans import (
    change_of,
    changes_of,
    predicted_by_answer,
    predicted_by_plan,
    scenes_of,
    steps_of_answer,
)
from advisor.changes.guard import Past, Rules, Span, measure, refusals
from advisor.changes.ledger import StoredLedger, results_of, standing_in
from advisor.domain import (
    Change,
    Freeze,
    Host,
    LedgerLine,
    MeasuredEffect,
    Page,
    Plan,
    PlanStep,
    Recommendation,
    Rollout,
    RolloutStanding,
    RolloutState,
    codec,
)
from advisor.domain.changes import OPEN_STATES, closing, opening
from advisor.errors import AdvisorError, Conflict, InvalidInput
from advisor.inventories import writes
from advisor.placement.requests import new_id
from advisor.serving.orders import OrderService
from advisor.serving.snapshot_cache import SnapshotCache
from advisor.settings import Settings
from advisor.store import hosts, instances, rollouts
from advisor.store.transactions import Transactions
from advisor.telemetry import histories
from profiler.observed import Colocation

log = logging.getLogger(__name__)
MOST_UNDER_WAY = 1_000
_LONGEST = 3  # times the windows that are needed, either side: more windows, narrower intervals
_AUDITED: Mapping[str, Operation] = {
    "planned": "change.plan",
    "approved": "change.approve",
    "carried_out": "change.carry_out",
    "undo_begun": "change.undo",
    "measured": "change.measure",
}
_IN_AUDIT = ("why", "verdict")


@dataclass(frozen=True, slots=True)
class PreviewedChange:
    """A change beside what the system shows now; `why_not` empty = it can be applied."""

    change: Change
    now: Mapping[str, str]
    why_not: str = ""


class ChangeService:
    """Rollouts of one database; thread-safe. What it reaches is `apply_here` and `apply_uris` of the settings."""

    def __init__(
        self,
        cache: SnapshotCache,
        settings: Settings,
        transactions: Transactions,
        audit: Audit,
        clock: Callable[[], datetime],
        orders: OrderService,
        record: Callable[[Colocation], object],
        *,
        executors: Executors | None = None,
    ) -> None:
        self._cache = cache
        self._settings = settings
        self._transactions = transactions
        self._read, self._write = transactions.read, transactions.write
        self._audit = audit
        self._clock = clock
        self._record = record
        own = {"inventory": OwnHosts(transactions, clock)}
        reach = replace(reach_of(settings), agents=BoxOfAgents(orders))
        self._executors = executors or Executors(reach, own=own)

    def of_plan(self, plan: Plan) -> Rollout:
        """The changes that carry a plan out, for the cloud as it is now; nothing is stored. InvalidInput where a step
        cannot be carried out, or there is none."""
        inventory = self._cache.at(self._clock())[0].inventory
        changes = changes_of(plan.steps, inventory, self._executors)
        made = self._rollout(plan.id, changes)
        there, then = scenes_of(plan.steps, inventory)
        return replace(made, predicted=predicted_by_plan(plan, changes, inventory), there=there, then=then)

    def of_answer(self, answer: Recommendation) -> Rollout:
        """The same of an answer about an instance that runs."""
        inventory = self._cache.at(self._clock())[0].inventory
        steps = steps_of_answer(answer)
        changes = changes_of(steps, inventory, self._executors)
        there, then = scenes_of(steps, inventory)
        predicted = predicted_by_answer(answer, changes, inventory)
        return replace(self._rollout(answer.id, changes), predicted=predicted, there=there, then=then)

    def of_maintenance(self, host: Host, plan: Plan) -> Rollout:
        """The changes that close a host and empty it as a plan says, with what stays and why in the notes. A failed
        move ends it, and takes nothing back."""
        inventory = self._cache.at(self._clock())[0].inventory
        moves = [step for step in plan.steps if step.host is not None and step.action == "move"]
        stays = [f"{step.subject} stays on {host.id}: {_refusal(step)}" for step in plan.steps if step.host is None]
        planned = {step.instance for step in plan.steps}
        stays += [
            f"{one.id} stays on {host.id}: {'it never moves' if one.never_moves else 'no step moves it'}"
            for one in inventory.instances
            if one.host == host.id and one.id not in planned
        ]
        changes = (self._closed(host), *changes_of(moves, inventory, self._executors, left=stays))
        numbered = tuple(replace(change, number=number) for number, change in enumerate(changes))
        made = replace(self._rollout(closing(host.id), numbered), canary=0, keeps=True, notes=tuple(stays))
        return replace(made, predicted=predicted_by_plan(plan, numbered, inventory))

    def of_opening(self, host: Host) -> Rollout:
        """The change that lets a host take new instances."""
        closed = self._closed(host)
        opened = replace(closed, before=closed.after, after=closed.before, command=closed.undo, undo=closed.command)
        return self._rollout(opening(host.id), (opened,))

    def _closed(self, host: Host) -> Change:
        name, meaning = self._executors.closing(host)
        return change_of(0, host, name, meaning)

    def preview(self, rollout: Rollout) -> tuple[tuple[PreviewedChange, ...], tuple[str, ...]]:
        """Each change beside what the system shows, and why the rollout may not be carried out now, if approved."""
        previewed: list[PreviewedChange] = []
        moved: set[str] = set()
        for change in rollout.changes:
            if change.instance in moved and change.kind != "move":  # it is not there yet
                previewed.append(PreviewedChange(change, {}))
                continue
            moved |= {change.instance} if change.kind == "move" else set()
            try:
                previewed.append(PreviewedChange(change, self._executors.named(change.executor).read(change)))
            except (ChangeFailed, InvalidInput) as error:
                previewed.append(PreviewedChange(change, {}, error.message))
        return tuple(previewed), tuple(self._refusals(rollout, approved=True))

    def store(self, rollout: Rollout) -> RolloutStanding:
        """Keep a rollout with its first line, before anything is done; its control groups are chosen by that."""
        with self._write() as connection:
            rollouts.add(connection, rollout)
            line = LedgerLine(0, self._clock(), actor(), "planned", None, {"source": rollout.source})
            rollouts.append(connection, rollout.id, line, "planned")
            self._note(connection, rollout.id, line)
        return self.get(rollout.id)

    def approve(self, rollout_id: str) -> RolloutStanding:
        """Approve a rollout that is planned; Conflict for another one, NotFound."""
        return self._approve(self._ledger(), rollout_id)

    def carry_out(self, rollout_id: str, *, stop: Callable[[], bool] = lambda: False) -> RolloutStanding:
        """Apply what is approved, or what needs no approval, or go on with what was interrupted.

        Conflict with one sentence for each guard rail in the way.
        """
        ledger = self._ledger()
        with ledger.held():  # first, so that two controllers do not both find that there is room
            standing = ledger.standing(rollout_id)
            began = standing.state not in ("planned", "approved")
            reasons = self._refusals(standing.rollout, approved=bool(standing.approved_by), began=began)
            if reasons and standing.state != "undoing":
                raise Conflict("; ".join(reasons))
            if standing.state == "planned":
                ledger.add(rollout_id, "approved")
            return Controller(ledger, self._executors.named, stop=stop).carry_out(rollout_id)

    def undo(self, rollout_id: str, why: str) -> RolloutStanding:
        """Take back what was applied; Conflict where nothing was, or another controller acts."""
        ledger = self._ledger()
        with ledger.held():
            return Controller(ledger, self._executors.named).undo(rollout_id, why)

    def watch(self, rollout_id: str, *, reach: bool = True) -> RolloutStanding:
        """Measure what a rollout brought once enough windows are over; take it back where an instance was harmed beyond
        doubt, go on after a canary that was not. Without `reach` only measure."""
        standing = self.get(rollout_id)
        if standing.state not in ("carried_out", "canary") or (standing.effects and standing.state != "canary"):
            return standing
        span, over = self._span(standing)
        if not over:
            return standing
        effects = self._effects(standing, span)
        enough = all(min(one.windows_before, one.windows_after) >= self._fewest for one in effects)
        waited = self._clock().timestamp() > span.settled + _LONGEST * self._fewest * span.window_s
        if not enough and not waited:
            return standing
        ledger = self._ledger()
        judged = replace(standing, effects=effects)
        harmed = sorted(one.instance for one in effects if one.verdict == "harmful")
        with ledger.held():
            ledger.standing(rollout_id)
            ledger.add(rollout_id, "measured", effects=codec.encode(effects), verdict=judged.verdict)
            if standing.state != "canary":  # half of the changes are neither scene
                self._learn(judged)
            controller = Controller(ledger, self._executors.named)
            if harmed and reach:
                return controller.undo(rollout_id, f"{', '.join(harmed)} fell beyond doubt below what was predicted")
            if not harmed and standing.state == "canary":
                ledger.add(rollout_id, "continued")
                return controller.carry_out(rollout_id) if reach else ledger.standing(rollout_id)
        return self.get(rollout_id)

    def _learn(self, standing: RolloutStanding) -> None:
        """Keep what was measured as results, which move the next answers and are learned; what does not fit is left."""
        for result in results_of(standing):
            try:
                with acting("changes", standing.rollout.id):
                    self._record(result)
            except AdvisorError as error:
                log.warning("what rollout %s brought is not learned: %s", standing.rollout.id, error)

    def get(self, rollout_id: str) -> RolloutStanding:
        """A rollout with its lines; NotFound."""
        with self._read() as connection:
            return standing_in(connection, rollout_id)

    def page(
        self, *, state: RolloutState | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[RolloutStanding]:
        """Rollouts with their lines, newest first; those of one state."""
        with self._read() as connection:
            found = rollouts.list_page(connection, state=state, cursor=cursor, limit=limit)
            return Page(tuple(standing_in(connection, one.id) for one in found.items), found.next_cursor)

    def under_way(self) -> tuple[str, ...]:
        """Rollouts that are not at their end, or not measured, the oldest first."""
        with self._read() as connection:
            return _under_way(connection)

    def numbers(self) -> Mapping[str, int]:
        """How many rollouts are in each state."""
        with self._read() as connection:
            return rollouts.numbers(connection)

    def verdicts(self) -> Mapping[str, int]:
        """How many measurements of rollouts came to each verdict."""
        with self._read() as connection:
            return rollouts.verdicts(connection)

    def freeze(self, reason: str = "") -> Freeze:
        """Let nothing be applied from now on, by any controller; what was applied can be taken back."""
        now = self._clock()
        with self._write() as connection:
            rollouts.freeze(connection, actor(), now, reason)
            self._audit.record(connection, "change.freeze", [], reason=reason)
        return Freeze(now, actor(), reason)

    def thaw(self) -> None:
        """Let changes be applied again."""
        with self._write() as connection:
            if rollouts.thaw(connection):
                self._audit.record(connection, "change.thaw", [])

    def frozen(self) -> Freeze | None:
        """Who froze changes, when and why; None = they are not frozen."""
        with self._read() as connection:
            row = rollouts.control(connection, "freeze")
        if row is None:
            return None
        return Freeze(
            datetime.fromtimestamp(row["until_s"], self._clock().tzinfo), row["holder"], row["detail"].get("reason", "")
        )

    @property
    def _fewest(self) -> int:
        return self._settings.apply_measure_windows

    def _rollout(self, source: str, changes: tuple[Change, ...]) -> Rollout:
        if not changes:
            raise InvalidInput(f"{source} changes nothing that is not so already", field="source")
        now = self._clock()
        first = changes[0].instance
        canary = next((one.number for one in changes if one.instance != first), 0) if self._settings.apply_canary else 0
        return Rollout(new_id(now), now, actor(), source, changes, canary=canary)

    def _ledger(self) -> StoredLedger:
        return StoredLedger(self._transactions, self._clock, noted=self._note)

    def _approve(self, ledger: StoredLedger, rollout_id: str) -> RolloutStanding:
        with ledger.held():
            standing = ledger.standing(rollout_id)
            if standing.state != "planned":
                raise Conflict(f"rollout {rollout_id} is {standing.state.replace('_', ' ')}: it waits for no approval")
            ledger.add(rollout_id, "approved")
            return ledger.standing(rollout_id)

    def _note(self, connection: Connection, rollout: str, line: LedgerLine) -> None:
        """What becomes of a rollout is in the audit log, too, from where events come."""
        if line.event in _AUDITED:
            details = {name: line.detail[name] for name in _IN_AUDIT if name in line.detail}
            self._audit.record(connection, _AUDITED[line.event], [rollout], **details)
        if line.change is not None and line.event in ("applied", "undone") and "found" in line.detail:
            change = standing_in(connection, rollout).rollout.changes[line.change]
            self._known(connection, change, line.detail["found"])

    def _known(self, connection: Connection, change: Change, found: Mapping[str, str]) -> None:
        """The inventory has at once what the next sync would bring: where an instance is, and which hosts are open."""
        if change.kind == "host" and (host := hosts.get(connection, change.host)) is not None:
            set_open(connection, host, found[OPEN] == YES, self._clock())
        if change.kind != "move" or (one := instances.get(connection, change.instance)) is None:
            return
        if one.host != found[HOST] and hosts.get(connection, found[HOST]) is not None:
            freed = replace(one.settings, pinning=None)  # pins speak of the CPUs of one host
            writes.put_instance(connection, replace(one, host=found[HOST], settings=freed))

    def _refusals(self, rollout: Rollout, *, approved: bool, began: bool = False) -> list[str]:
        rules, now, freeze = Rules.of(self._settings), self._clock(), self.frozen()
        if rollout.keeps:  # who must leave a host is not asked whether it was changed lately
            rules = replace(rules, cooldown=timedelta())
        if all(change.kind == "host" for change in rollout.changes):
            rules = replace(rules, at_once=10**9)
        frozen = "" if freeze is None else f"{freeze.actor} froze changes at {freeze.at:%Y-%m-%d %H:%M} UTC"
        frozen += f" ({freeze.reason})" if freeze and freeze.reason else ""
        if began:  # it counts already, and half of it is worse than the whole
            rules = replace(rules, windows=())
        past = Past() if began else self._past(rollout.id, rules, now)
        if began:
            rules = replace(rules, per_hour=10**9, per_day=10**9)
        return refusals(rollout, rules, past, now, approved=approved or began, frozen=frozen)

    def _past(self, rollout_id: str, rules: Rules, now: datetime) -> Past:
        since = now - max(rules.cooldown, timedelta(days=1))
        with self._read() as connection:
            began = rollouts.applied_since(connection, since)
            ids = {name for _, name, _ in began} | set(_under_way(connection))
            known = {name: standing_in(connection, name) for name in sorted(ids - {rollout_id})}
        changed: dict[str, datetime] = {}
        for at, name, number in began:
            if name in known:
                changed[known[name].rollout.changes[number].instance] = at
        under_way = {name: one.rollout.instances for name, one in known.items() if self._is_open(one, now)}
        return Past([at for at, _, _ in began if at > now - timedelta(days=1)], changed, under_way)

    def _is_open(self, standing: RolloutStanding, now: datetime) -> bool:
        """Whether it is under way, or applied and not measured yet although it may be."""
        if standing.state in OPEN_STATES - {"approved"}:
            return True
        if standing.state != "carried_out" or standing.effects or standing.applied_at is None:
            return False
        return now - standing.applied_at < timedelta(
            seconds=(_LONGEST * self._fewest + 2) * self._settings.apply_window_s
        )

    def _span(self, standing: RolloutStanding) -> tuple[Span, bool]:
        """The windows that count, and whether enough are over."""
        width, now = self._settings.apply_window_s, self._clock().timestamp()
        began = standing.applied_from.timestamp() if standing.applied_from else now
        settled = (standing.applied_at.timestamp() if standing.applied_at else now) + width
        most = _LONGEST * self._fewest * width
        return Span(began - most, began, settled, min(now, settled + most), width), now >= settled + (
            self._fewest + 1
        ) * width

    def _effects(self, standing: RolloutStanding, span: Span) -> tuple[MeasuredEffect, ...]:
        predicted = standing.rollout.predicted
        names: Collection[str] = {one.instance for one in predicted}.union(*(one.controls for one in predicted))
        with self._read() as connection:
            capped = {change.instance for change in standing.rollout.changes if change.kind == "cap"}
            series = histories.delivered(
                connection, names, span.begin, span.end, span.window_s, capped, self._transactions.samples
            )
        return tuple(
            measure(one, series[one.instance], {name: series[name] for name in one.controls}, span, self._fewest)
            for one in predicted
        )


def _under_way(connection: Connection) -> tuple[str, ...]:
    found = {
        *rollouts.in_states(connection, OPEN_STATES, MOST_UNDER_WAY),
        *rollouts.unmeasured(connection, MOST_UNDER_WAY),
    }
    return tuple(sorted(found))


def _refusal(step: PlanStep) -> str:
    """Why no host takes an instance: the most frequent reason."""
    reasons = Counter(one.reason for one in step.rejected)
    return reasons.most_common(1)[0][0] if reasons else step.why or "no host takes it"


def reach_of(settings: Settings) -> Reach:
    """What the settings let this process change; InvalidInput for connections that are none."""
    here = frozenset(_parts(settings.apply_here)) or frozenset({platform.node()})
    uris = {}
    for part in _parts(settings.apply_uris):
        host, equals, uri = part.partition("=")
        if not (equals and host and uri) or uri.startswith("-"):
            raise InvalidInput(f"apply_uris: {part[:60]!r} is no HOST=URI", field="apply_uris")
        uris[host] = uri
    return Reach(here, uris, move_s=settings.apply_move_s)


def _parts(text: str) -> Sequence[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
