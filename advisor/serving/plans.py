"""What the store shows of growth: who came and went, and two weeks of the demand of instances that stayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from sqlalchemy import Connection

from advisor.access.audit import Audit
from advisor.deadline import Progress
from advisor.domain import (
    CloudScores,
    Growth,
    Instance,
    ModelCard,
    MoveSeen,
    Page,
    Plan,
    PlanAge,
    PlanEntry,
    PlanKind,
    PlanRequest,
    ScorePoint,
    Usage,
)
from advisor.errors import NotFound, SeriesUnavailable
from advisor.lifecycle import arrivals, monitoring
from advisor.lifecycle.monitoring import Monitor
from advisor.lifecycle.registry import ModelRegistry
from advisor.planning import planner
from advisor.planning.repair import MOST_S
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor
from advisor.reports import files, plan_sentences
from advisor.reports.files import Reported
from advisor.reports.parts import ReportDocument, TextTable, text_tables
from advisor.reports.plan_view import of_plan
from advisor.serving.snapshot_cache import CloudView, SnapshotCache
from advisor.settings import Settings
from advisor.store import answers, counters, models, stays
from advisor.store.rollups import BUCKET_S
from advisor.store.sample_store import SampleStore
from advisor.store.transactions import LaterWrites, Transactions
from models.physics.prior import PriorPredictor
from profiler.metrics import BY_NAME

LOOKED_S = 28 * 86_400.0  # how long it is looked at who comes and goes, at most
WEEK, MOST_APART = timedelta(days=7), timedelta(days=56)  # whose means are compared, and how far apart these are
MOST_SAMPLED = 60  # instances whose means are read: each has 2,016 in a week
LEAST_WINDOWS = 1_008  # of five minutes in such a week: half of it
_METRICS = [(BY_NAME["cpu"].default_scope, "cpu")]


def lately(
    connection: Connection, samples: SampleStore, settings: Settings, instances: Sequence[Instance], now: datetime
) -> tuple[Growth | None, tuple[str, ...]]:
    """How the cloud of these instances grew, None = not beyond doubt, and what was seen, in sentences."""
    came, went, seconds = stays.came_and_went(connection, now.timestamp(), LOOKED_S)
    load = None if settings.only_scraped else _load(connection, samples, settings, instances, now)
    return arrivals.measured(came, went, seconds / 86_400, load)


def _load(
    connection: Connection, samples: SampleStore, settings: Settings, instances: Sequence[Instance], now: datetime
) -> arrivals.LoadTrend | None:
    """By the last week that is kept as means, and the one that is MOST_APART before; later ones where that is not
    kept."""
    there = [one for one in instances if one.host]
    count = min(len(there), MOST_SAMPLED)
    some = [there[at * len(there) // count] for at in range(count)]
    end_s = (now - timedelta(days=settings.keep_samples_days)).timestamp() // BUCKET_S * BUCKET_S
    keys = _series(connection, samples, some)
    later = _means(connection, samples, keys, end_s)
    apart = MOST_APART
    while len(later) >= arrivals.LEAST_PAIRS and apart >= WEEK:
        former = _means(connection, samples, keys, end_s - apart.total_seconds())
        stayed = sorted(former.keys() & later.keys())
        if len(stayed) >= arrivals.LEAST_PAIRS:
            return arrivals.load_trend([(former[name], later[name]) for name in stayed], apart.days)
        apart -= WEEK
    return None


def _series(connection: Connection, samples: SampleStore, some: Iterable[Instance]) -> dict[int, str]:
    """The instance by the number of its series."""
    by_host: dict[str, list[str]] = {}
    for one in some:
        by_host.setdefault(str(one.host), []).append(one.id)
    return {
        number: instance
        for host, names in sorted(by_host.items())
        for number, (_, instance, _) in samples.of_host(connection, host, names, _METRICS).items()
        if instance is not None
    }


def _means(connection: Connection, samples: SampleStore, keys: dict[int, str], end_s: float) -> dict[str, float]:
    """The mean of each instance in the week that ends then, of those with enough windows."""
    found = samples.means(connection, keys, end_s - WEEK.total_seconds(), end_s, BUCKET_S)
    return {name: fmean(values) for name, (times, values) in found.items() if len(times) >= LEAST_WINDOWS}


# Plans of a service: asked of the cloud as it is now, kept with an entry in the audit log, listed, and their age.

LATELY = timedelta(days=1)  # what was measured since says how much of its CPUs an instance uses
T = TypeVar("T")


class PlanService:
    """Plans for the whole cloud, which hold no host; thread-safe. `stored` is called after a plan was stored."""

    def __init__(
        self,
        cache: SnapshotCache,
        monitor: Monitor,
        registry: ModelRegistry,
        audit: Audit,
        settings: Settings,
        transactions: Transactions,
        later: LaterWrites,
        clock: Callable[[], datetime],
        stored: Callable[[], None],
        scored: Callable[[], tuple[CloudScores, tuple[ScorePoint, ...]]],
    ) -> None:
        self._cache = cache
        self._monitor = monitor
        self._registry = registry
        self._audit = audit
        self._settings = settings
        self._read, self._samples = transactions.read, transactions.samples
        self._later = later
        self._clock = clock
        self._stored = stored
        self._scored = scored

    def make(self, request: PlanRequest, progress: Progress | None = None) -> Plan:
        """Plan the cloud with its pending answers, and store the plan; errors as those of `find`."""
        plan = self.find(request, progress)
        self.keep(plan)
        return plan

    def find(self, request: PlanRequest, progress: Progress | None = None) -> Plan:
        """Plan the cloud with its pending answers; nothing is stored.

        InvalidInput for what contradicts itself or the cloud, NotFound and BrokenArtifact for the model of an imagined
        cloud.
        """
        now = self._clock()
        with self._read() as connection:
            view, chosen = self._cache.seen_by(connection, now)
            seen: tuple[str, ...] = ()
            if request.kind == "capacity" and request.growth is None:
                there = view.inventory.instances
                grown, seen = lately(connection, self._samples, self._settings, there, now)
                request = replace(request, growth=grown)
        plan = planner.plan(
            view.snapshot,
            chosen,
            request,
            now=now,
            fresh_s=self._settings.fresh_s,
            generation=view.counts.inventory,
            models=self._model,
            measured=lambda instances: self._measured(instances, now),
            moved=lambda: self._moved(now),
            progress=progress,
        )
        plan = replace(plan, notes=(*plan.notes, *seen))
        return self._widened(plan, view)

    def keep(self, plan: Plan) -> None:
        """Store a plan."""

        def keep(connection: Connection) -> None:
            answers.add_plan(connection, plan)
            detail = {"kind": plan.kind, "instances": len(plan.request.instances)}
            self._audit.record(connection, "plan.answer", [plan.id], **detail)

        self._later.write(keep, key=plan.id, value=plan, synced=True)
        self._stored()

    def get(self, plan_id: str) -> Plan:
        """A stored plan; NotFound when there is none such."""
        waiting = self._later.find(plan_id)
        if isinstance(waiting, Plan):
            return waiting
        with self._read() as connection:
            plan = answers.get_plan(connection, plan_id)
        if plan is None:
            raise NotFound(f"there is no plan {plan_id}")
        return plan

    def page(self, *, kind: PlanKind | None = None, cursor: str | None = None, limit: int = 100) -> Page[PlanEntry]:
        """The stored plans, newest first; those of one kind."""
        with self._read() as connection:
            return answers.list_page(connection, kind=kind, cursor=cursor, limit=limit)

    def age(self, plan: Plan) -> PlanAge:
        """Whether the inventory was written since a plan was made, and what of it."""
        with self._read() as connection:
            generation = counters.read(connection).inventory
            if plan.generation is None:
                return PlanAge(None, generation)
            if plan.generation == generation:
                return PlanAge(False, generation, (), ())
            since = counters.changes_since(connection, plan.generation)
        if since is None:
            return PlanAge(True, generation)
        return PlanAge(True, generation, tuple(sorted(since.hosts)), tuple(sorted(since.instances)))

    def document(self, plan: Plan) -> tuple[ReportDocument, tuple[TextTable, ...]]:
        """What the plan changes, how its search ended, and how far it may be from the best plan; with its tables."""
        made = plan_sentences.document(plan)
        return made, text_tables(*made.sections)

    def report_html(self, plan_id: str) -> str:
        """The report of a stored plan as one HTML file that needs no other; NotFound when there is none such."""
        return self._report(plan_id, plan_sentences.document_as_html)

    def report_data(self, plan_id: str) -> dict[str, Any]:
        """Every word and every number of that report; NotFound when there is none such."""
        return self._report(plan_id, plan_sentences.document_as_data)

    def write_report(
        self, request: PlanRequest, folder: Path, *, keep: int, progress: Progress | None = None
    ) -> Reported:
        """Make a plan and write its report to a new dated folder in `folder`, of which the newest `keep` stay.

        InvalidInput or OutOfSpace when the folder cannot be written. The plan is stored as every plan.
        """
        files.check_folder(folder)
        plan = self.make(request, progress)
        view, active = self._cache.at(self._clock())
        card = self._card(plan)
        ages = dict(zip((host.id for host in view.snapshot.hosts), view.snapshot.age_s.tolist(), strict=True))
        background = of_plan(view.inventory, plan, active.predictor, card.card if card else None)
        scores, history = self._scored()
        background = replace(background, scores=scores, score_history=history)
        return files.write_dated(view.inventory, plan, background, ages, folder, keep=keep)

    def _report(self, plan_id: str, write: Callable[..., T]) -> T:
        plan = self.get(plan_id)
        view, active = self._cache.at(self._clock())
        return write(view.inventory, plan, active, self._card(plan), stale=self.age(plan).stale is not False)

    def _card(self, plan: Plan) -> ModelCard | None:
        return next((card for card in self._registry.listing() if card.version == plan.model_version), None)

    def _widened(self, plan: Plan, view: CloudView) -> Plan:
        """With intervals as wide as each model's must be: an imagined cloud may be predicted by another one."""
        imagined = plan.request.what_if.model if plan.request.what_if else None
        hosts, doubted = view.inventory.hosts, view.doubted
        with self._read() as connection:
            wide = monitoring.inflated_plan(
                plan, self._monitor.how_it_held(connection, plan.model_version, hosts, doubted)
            )
            if imagined is None:
                return wide
            then = monitoring.inflated_plan(plan, self._monitor.how_it_held(connection, imagined, hosts, doubted))
        return replace(wide, steps=then.steps, after=then.after)

    def _model(self, version: str) -> ActivePredictor:
        if version == models.ANALYTIC:
            return ActivePredictor(PriorPredictor())
        with self._read() as connection:
            registered = models.get(connection, version)
        if registered is None:
            raise NotFound(f"there is no model {version}")
        return ActivePredictor(active.load(self._settings.model_dir / version))

    def _moved(self, now: datetime) -> tuple[MoveSeen, ...]:
        with self._read() as connection:
            return stays.moves(connection, now.timestamp() - MOST_S)

    def _measured(self, instances: Sequence[str], now: datetime) -> Mapping[str, Usage]:
        """What they used of CPUs and memory lately, where samples are kept here."""
        if self._settings.only_scraped:
            return {}
        span = (now - LATELY).timestamp(), now.timestamp()
        try:
            with self._read() as connection:
                used = self._samples.usage(connection, instances, *span)
                held = self._samples.memory(connection, instances, *span)
        except SeriesUnavailable:
            return {}
        memory = {name: held.get(name, (None, None)) for name in used}
        return {name: replace(one, memory_mb=memory[name][0], swapped_mb=memory[name][1]) for name, one in used.items()}
