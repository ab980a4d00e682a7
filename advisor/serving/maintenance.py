"""Maintenance of hosts as a workflow: a plan that empties the host, a rollout of it in the ledger, the way back."""

from __future__ import annotations

from advisor.domain import Maintenance, PlanRequest, RolloutStanding
from advisor.domain.changes import CLOSING, OPEN_STATES, closing, opening
from advisor.errors import Conflict, NotFound
from advisor.serving.changes import ChangeService
from advisor.serving.inventory import InventoryService
from advisor.serving.plans import PlanService
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
