"""Maintenance of hosts as a workflow: a plan that empties the host, a rollout of it in the ledger, the way back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from advisor.access.audit import acting
from advisor.changes.guard import Rules
from advisor.domain import Maintenance, Plan, PlanKind, PlanRequest, Rollout, RolloutStanding
from advisor.domain.changes import CLOSING, OPEN_STATES, closing, opening
from advisor.errors import AdvisorError, Conflict, NotFound
from advisor.serving.changes import ChangeService
from advisor.serving.inventory import InventoryService
from advisor.serving.plans import PlanService
from advisor.settings import Settings
from advisor.store import rollouts
from advisor.store.transactions import Transactions

MOST_STAY = 1_000  # instances that are named
MOST_HOSTS = 1_000


class MaintenanceService:
    """Which hosts are closed and emptied, and what is left there. What is planned here `ChangeService` carries out."""

    def __init__(
        self, changes: ChangeService, plans: PlanService, inventory: InventoryService, transactions: Transactions
    ) -> None:
        self._changes = changes
        self._plans = plans
        self._inventory = inventory
        self._read = transactions.read

    def start(self, host_id: str) -> RolloutStanding:
        """Plan where the instances of a host go, and store the rollout that closes the host and moves them.

        Instances that no host takes, or that no executor moves, stay, and its notes say which. NotFound for the host;
        Conflict while a rollout of its maintenance is under way.
        """
        self._check_at_rest(host_id)
        host = self._inventory.host(host_id)
        plan = self._plans.make(PlanRequest(kind="evacuate", empty=(host_id,), commands=False))
        return self._changes.store(self._changes.of_maintenance(host, plan))

    def end(self, host_id: str) -> RolloutStanding:
        """Store the rollout that lets a host take instances again; NotFound, Conflict likewise."""
        self._check_at_rest(host_id)
        return self._changes.store(self._changes.of_opening(self._inventory.host(host_id)))

    def of(self, host_id: str) -> Maintenance:
        """How far the maintenance of a host is; NotFound for the host."""
        host = self._inventory.host(host_id)
        with self._read() as connection:
            ids = rollouts.of_sources(connection, (closing(host_id), opening(host_id)), 1)
        last = self._changes.get(ids[0]) if ids else None
        stays = tuple(one.id for one in self._inventory.instances(host=host_id, limit=MOST_STAY).items)
        if last is None or last.state == "taken_back":
            return Maintenance(host_id, "none", last)
        if last.rollout.source == opening(host_id):
            return Maintenance(host_id, "ended" if last.state == "carried_out" else "planned", last)
        if last.state == "planned":
            return Maintenance(host_id, "planned", last, stays)
        if last.state in OPEN_STATES:
            return Maintenance(host_id, "emptying", last, stays)
        reached = last.state == "carried_out" and not stays and not host.enabled
        return Maintenance(host_id, "reached" if reached else "not reached", last, stays)

    def listing(self) -> tuple[Maintenance, ...]:
        """The hosts whose maintenance was begun and not ended, by id."""
        with self._read() as connection:
            sources = rollouts.sources_like(connection, CLOSING, MOST_HOSTS)
        found = []
        for host in sorted({source.removeprefix(CLOSING) for source in sources}):
            try:
                found.append(self.of(host))
            except NotFound:  # it is not in the inventory any more
                continue
        return tuple(one for one in found if one.state not in ("none", "ended"))

    def _check_at_rest(self, host_id: str) -> None:
        now = self.of(host_id)
        if now.rollout is not None and now.rollout.state in OPEN_STATES:
            state = now.rollout.state.replace("_", " ")
            raise Conflict(
                f"rollout {now.rollout.rollout.id} of {host_id} is {state}: let it end, or take it back first"
            )


# The controller that goes on by itself: it finishes and watches rollouts, and in the modes ask and act makes its own.
#
# In mode ask what it makes waits for an approval; in mode act it carries out what kinds and hosts allow, and the rest
# waits. All guard rails hold for it as for an operator. It makes one rollout at a time, of one host or of one plan of
# moves, and leaves a host alone on which a change was not as good as predicted.

ACTOR = "controller"
REST = timedelta(days=1)  # of a host on which a change was less than predicted, harmful, or could not be made
_LATELY = 200  # rollouts
_WORSE = ("harmful", "less")


class Autopilot:
    """One per process that may act; for one thread. Several processes keep out of each other's way by the one lease."""

    def __init__(
        self,
        changes: ChangeService,
        plans: PlanService,
        settings: Settings,
        clock: Callable[[], datetime],
        hosts: Callable[[], Sequence[str]],
    ) -> None:
        self._changes = changes
        self._plans = plans
        self._settings = settings
        self._clock = clock
        self._hosts = hosts
        self._looked: datetime | None = None

    def step(self, stop: Callable[[], bool] = lambda: False) -> tuple[str, ...]:
        """Go over everything once; what was done and what was refused, a sentence each."""
        with acting(ACTOR, ""):
            said = [*self._go_on(stop)]
            if not stop():
                said += self._propose(stop)
            return tuple(said)

    def _go_on(self, stop: Callable[[], bool]) -> Iterator[str]:
        """Carry out what is approved, end what was interrupted, and measure what was carried out."""
        for rollout in self._changes.under_way():
            if stop():
                return
            before = self._changes.get(rollout)
            try:
                if before.state in ("carried_out", "canary"):
                    after = self._changes.watch(rollout)
                else:
                    after = self._changes.carry_out(rollout, stop=stop)
            except AdvisorError as error:  # such as another controller that acts
                yield f"rollout {rollout}: {error.message}"
                continue
            if (after.state, after.effects) != (before.state, before.effects):
                yield _said(after)

    def _propose(self, stop: Callable[[], bool]) -> Iterator[str]:
        rules, now = Rules.of(self._settings), self._clock()
        since = timedelta(seconds=self._settings.apply_every_s)
        if rules.mode == "advise" or (self._looked is not None and now - self._looked < since):
            return
        if self._changes.frozen() is not None or (rules.windows and not any(one.holds(now) for one in rules.windows)):
            return
        lately = self._changes.page(limit=_LATELY).items
        if any(one.state in ("applying", "canary", "undoing") for one in lately):
            return
        self._looked = now
        resting = _resting(lately, now)
        hosts = [name for name in self._hosts() if self._allows(rules, name) and name not in resting]
        kinds: list[PlanKind] = ["tune"] if rules.kinds - {"move"} else []
        for kind in [*kinds, "rebalance"] if "move" in rules.kinds else kinds:
            found = self._best(kind, hosts) if hosts else None
            if found is not None:
                yield from self._begin(*found, rules, stop)
                return

    def _allows(self, rules: Rules, host: str) -> bool:
        """Whether a host may be changed: without any pattern, mode ask proposes for all and mode act for none."""
        return any(fnmatchcase(host, one) for one in rules.hosts) if rules.hosts or rules.mode == "act" else True

    def _best(self, kind: PlanKind, hosts: Sequence[str]) -> tuple[Plan, Rollout] | None:
        """What gains most of what is advised, and the whole plan; None where nothing is, or no executor carries it
        out."""
        request = PlanRequest(kind=kind, hosts=tuple(hosts), time_limit_s=self._settings.apply_plan_s)
        plan = self._plans.find(request)
        parts = [plan] if kind == "rebalance" else sorted(_by_host(plan), key=_gain, reverse=True)
        for part in parts:
            if not part.steps:
                continue
            try:
                return plan, self._changes.of_plan(part)
            except AdvisorError:  # a step that is done by hand: another host's advice may do without
                continue
        return None

    def _begin(self, plan: Plan, rollout: Rollout, rules: Rules, stop: Callable[[], bool]) -> Iterator[str]:
        asks = any(rules.asks(change) for change in rollout.changes)
        previewed, refused = self._changes.preview(rollout)
        reasons = [*(one.why_not for one in previewed if one.why_not), *refused]
        if reasons:
            yield f"nothing is begun: {'; '.join(reasons)}"
            return
        self._plans.keep(plan)
        self._changes.store(rollout)
        if asks:
            yield f"rollout {rollout.id} waits for an approval: {len(rollout.changes)} changes on {_hosts_of(rollout)}"
            return
        try:
            yield _said(self._changes.carry_out(rollout.id, stop=stop))
        except Conflict as error:  # another controller was faster
            yield f"rollout {rollout.id}: {error.message}"


def _resting(lately: Sequence[RolloutStanding], now: datetime) -> Collection[str]:
    """Hosts that are left alone: an answer is waited for, a person is to look, or a change there was no success."""
    found: set[str] = set()
    for one in lately:
        recent = now - one.rollout.created_at < REST
        waits = one.state in ("planned", "approved") and recent
        failed = recent and (one.state == "taken_back" or (one.effects and one.verdict in _WORSE))
        if waits or failed or one.state == "stopped":
            found |= {change.host for change in one.rollout.changes}
    return found


def _by_host(plan: Plan) -> Iterator[Plan]:
    """A tuning of several hosts as one of each."""
    for host in dict.fromkeys(step.host for step in plan.steps):
        if host is not None and host in plan.after:
            steps = tuple(step for step in plan.steps if step.host == host)
            yield replace(plan, steps=steps, before={host: plan.before[host]}, after={host: plan.after[host]})


def _gain(plan: Plan) -> float:
    """How much the most affected instance of a host gains."""
    lowest = [
        min((one.throughput_ratio.expected for effects in side.values() for one in effects), default=1.0)
        for side in (plan.before, plan.after)
    ]
    return lowest[1] - lowest[0]


def _hosts_of(rollout: Rollout) -> str:
    return ", ".join(sorted({change.host for change in rollout.changes}))


def _said(standing: RolloutStanding) -> str:
    verdict = f", {standing.verdict}" if standing.effects else ""
    why = f": {standing.why}" if standing.why else ""
    where = _hosts_of(standing.rollout)
    return f"rollout {standing.rollout.id} on {where}: {standing.state.replace('_', ' ')}{verdict}{why}"
