"""Plans of a service: asked of the cloud as it is now, kept with an entry in the audit log, listed, and their age."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from advisor.access.audit import Audit
from advisor.domain import Host, Page, Plan, PlanAge, PlanEntry, PlanKind, PlanRequest, Usage
from advisor.errors import NotFound
from advisor.lifecycle import interval_inflation
from advisor.lifecycle.monitoring import Monitor
from advisor.planning import planner
from advisor.planning.planner import Progress
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor
from advisor.serving.snapshot_cache import SnapshotCache
from advisor.settings import Settings
from advisor.store import changes, counters, models, plans, samples
from models.physics.prior import PriorPredictor

LATELY = timedelta(days=1)  # what was measured since says how much of its CPUs an instance uses
Transaction = Callable[[], AbstractContextManager[Connection]]


class PlanService:
    """One per process; thread-safe. A plan holds nothing: it is an answer."""

    def __init__(
        self,
        current: SnapshotCache,
        monitor: Monitor,
        audit: Audit,
        settings: Settings,
        transactions: tuple[Transaction, Transaction],
        clock: Callable[[], datetime],
    ) -> None:
        self._current = current
        self._monitor = monitor
        self._audit = audit
        self._settings = settings
        self._read, self._write = transactions
        self._clock = clock

    def make(self, request: PlanRequest, progress: Progress | None = None) -> Plan:
        """Answer on the cloud with its pending answers, and keep that.

        InvalidInput for what contradicts itself or the cloud, NotFound and BrokenArtifact for the model of an imagined
        one.
        """
        now = self._clock()
        with self._read() as connection:
            view, chosen = self._current.seen_by(connection, now)
        found = planner.plan(
            view.snapshot,
            chosen,
            request,
            now=now,
            fresh_s=self._settings.fresh_s,
            generation=view.counts.inventory,
            models=self._model,
            measured=lambda instances: self._measured(instances, now),
            progress=progress,
        )
        found = self._widened(found, view.inventory.hosts)
        with self._write() as connection:
            plans.add(connection, found)
            told = {"kind": request.kind, "instances": len(request.instances)}
            self._audit.record(connection, "plan.answer", [found.id], **told)
        return found

    def get(self, plan_id: str) -> Plan:
        """A plan that was made; NotFound when there is none such."""
        with self._read() as connection:
            found = plans.get(connection, plan_id)
        if found is None:
            raise NotFound(f"there is no plan {plan_id}")
        return found

    def page(self, *, kind: PlanKind | None, cursor: str | None, limit: int) -> Page[PlanEntry]:
        """Newest first, those of one kind."""
        with self._read() as connection:
            return plans.list_page(connection, kind=kind, cursor=cursor, limit=limit)

    def age(self, plan: Plan) -> PlanAge:
        """Whether the inventory was written since a plan was made, and what of it."""
        with self._read() as connection:
            generation = counters.read(connection).inventory
            if plan.generation is None:
                return PlanAge(None, generation)
            if plan.generation == generation:
                return PlanAge(False, generation, (), ())
            since = changes.since(connection, plan.generation)
        if since is None:
            return PlanAge(True, generation)
        return PlanAge(True, generation, tuple(sorted(since.hosts)), tuple(sorted(since.instances)))

    def _widened(self, found: Plan, hosts: Sequence[Host]) -> Plan:
        """With intervals as wide as each model's must be: an imagined cloud may be told by another one."""
        imagined = found.request.whatif.model if found.request.whatif else None
        with self._read() as connection:
            wide = interval_inflation.plan(found, self._monitor.factors(connection, found.model_version, hosts))
            if imagined is None:
                return wide
            then = interval_inflation.plan(found, self._monitor.factors(connection, imagined, hosts))
        return replace(wide, steps=then.steps, after=then.after)

    def _model(self, version: str) -> ActivePredictor:
        if version == models.PRIOR:
            return ActivePredictor(PriorPredictor())
        with self._read() as connection:
            known = models.get(connection, version)
        if known is None:
            raise NotFound(f"there is no model {version}")
        return ActivePredictor(active.load(self._settings.model_dir / version))

    def _measured(self, instances: Sequence[str], now: datetime) -> Mapping[str, Usage]:
        """What they used of CPUs lately, where samples are kept here."""
        if self._settings.prometheus_url is not None:
            return {}
        with self._read() as connection:
            return samples.usage(connection, instances, (now - LATELY).timestamp())
