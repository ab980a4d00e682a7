"""Advisor: everything that REST, command line and web page may call; owns engine, snapshot and predictor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection

from advisor import deadline
from advisor.access.audit import Audit, Operation, acting, actor
from advisor.access.keystone import Keystone
from advisor.access.sessions import Sessions, form_key
from advisor.access.tokens import Tokens
from advisor.domain import (
    Activation,
    AnsweredAs,
    AuditEntry,
    CloudNow,
    Histories,
    Host,
    HostDetail,
    Instance,
    InstanceProfile,
    Inventory,
    ModelCard,
    ModelQuality,
    Move,
    Page,
    PlacementRequest,
    Plan,
    PlanAge,
    PlanEntry,
    PlanKind,
    PlanRequest,
    ProbePlan,
    ProbeRequest,
    Recommendation,
    RecommendationOutcome,
    Scene,
    SceneEffects,
    WorkloadProfile,
)
from advisor.errors import InvalidInput, NotFound, SchemaMismatch, StaleGeneration
from advisor.experiments import probe_planning
from advisor.inventories import sync
from advisor.inventories import writes as cloud
from advisor.inventories.reading import Reading, Source
from advisor.inventories.sources import SOURCES, open_source
from advisor.inventories.sync import SyncDiff
from advisor.inventories.writes import Only, anyway
from advisor.lifecycle import interval_inflation, outcomes
from advisor.lifecycle.monitoring import Monitor, shadows
from advisor.lifecycle.outcome_checks import OutcomeScorer, source_of
from advisor.lifecycle.registry import Registry
from advisor.placement import questions
from advisor.planning.planner import Progress
from advisor.prediction.active import ActivePredictor
from advisor.reports import plan_reading
from advisor.reports.folders import REPORT_KINDS, Reported, check_folder, every_s, repeat
from advisor.reports.folders import write as write_report
from advisor.reports.plan_background import of_plan
from advisor.serving import overview, vitals
from advisor.serving.placements import PlacementService
from advisor.serving.plans import PlanService
from advisor.serving.snapshot_cache import CloudView, SnapshotCache
from advisor.serving.vitals import Vitals
from advisor.settings import Settings
from advisor.store import counters, hosts, instances, migrate, recommendations, workloads
from advisor.store.backup import backup_database, restore_database
from advisor.store.engine import Database
from advisor.store.recommendations import RecordedOutcome
from advisor.store.retention import Retention
from advisor.telemetry import histories, ingest, profiles, promql
from advisor.validation import check_value
from profiler.observed import Colocation, MetricSample

__all__ = [
    "REPORT_KINDS",
    "SOURCES",
    "Advisor",
    "Keystone",
    "Progress",
    "Reading",
    "Reported",
    "Source",
    "SyncDiff",
    "acting",
    "actor",
    "backup_database",
    "every_s",
    "form_key",
    "open_source",
    "repeat",
    "restore_database",
]

T = TypeVar("T")
FOLLOW_TRIES = 3  # of comparing what another system told while others may write


class Advisor:
    """One per process; thread-safe: each call opens its own transaction, the snapshot is swapped whole.

    Brings an empty database to the newest tables. Raises SchemaMismatch on the database of a newer version or another
    program; on one of an older version every call does, until `upgrade_database`. `clock` is for tests.
    """

    def __init__(self, settings: Settings, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._settings = settings
        self._clock = clock
        self._database = Database(settings.database)
        self._current = SnapshotCache(self._database, settings)
        self._monitor = Monitor(settings)
        self._audit = Audit(clock, timedelta(days=settings.keep_audit_days))
        self.keystone = Keystone(settings.keystone_url, settings.keystone_roles) if settings.keystone_url else None
        self.tokens = Tokens(self._read, self._write, clock, self._audit)
        self.sessions = Sessions(self._read, self._write, clock, self._audit, self.tokens, self.keystone)
        self._overview = overview.Overview(settings.fresh_s)
        self._registry = Registry(settings.model_dir, self._read, self._write, clock, self._audit)
        self._retention = Retention(self._database, settings, clock)
        transactions, stored = (self._read, self._write), self._retention.nudge
        self.placing = PlacementService(
            self._current, self._monitor, self._audit, settings, transactions, clock, stored
        )
        self._plans = PlanService(self._current, self._monitor, self._audit, settings, transactions, clock)
        self._outdated: SchemaMismatch | None = None
        try:
            self._check_tables()
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        """Finish the step of retention under way, and let go of the database."""
        self._retention.close()
        self._database.close()

    def __enter__(self) -> Advisor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # inventory

    def put_host(self, host: Host, *, only_if: Only[Host] = anyway) -> bool:
        """True when it is new; Conflict when an instance on it is pinned to a pCPU that it no longer has.

        `only_if` is told what is there, None = nothing, in the transaction of the change, and raises where that may
        not be changed.
        """
        with self._change("host.put", host.id) as connection:
            return cloud.put_host(connection, host, self._clock(), only_if)

    def host(self, host_id: str) -> Host:
        """One host; NotFound when there is none such."""
        with self._read() as connection:
            return _found(hosts.get(connection, host_id), "host", host_id)

    def delete_host(self, host_id: str, *, only_if: Only[Host] = anyway) -> None:
        """Conflict while instances are on it."""
        with self._change("host.delete", host_id) as connection:
            cloud.delete_host(connection, host_id, only_if)

    def hosts(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        kind: str | None = None,
        enabled: bool | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Host]:
        """All hosts, or those that have every one of these labels, are of this kind, are enabled or not."""
        with self._read() as connection:
            return hosts.list_page(
                connection, labels=labels or {}, kind=kind, enabled=enabled, cursor=cursor, limit=limit
            )

    def put_instance(self, instance: Instance, *, only_if: Only[Instance] = anyway) -> bool:
        """True when it is new; InvalidInput when its host does not exist or lacks a pCPU that it is pinned to."""
        with self._change("instance.put", instance.id, *filter(None, [instance.host])) as connection:
            return cloud.put_instance(connection, instance, only_if)

    def instance(self, instance_id: str) -> Instance:
        """One instance; NotFound when there is none such."""
        with self._read() as connection:
            return _found(instances.get(connection, instance_id), "instance", instance_id)

    def delete_instance(self, instance_id: str, *, only_if: Only[Instance] = anyway) -> None:
        """Forget it, wherever it is; NotFound when there is none such."""
        with self._change("instance.delete", instance_id) as connection:
            cloud.delete_instance(connection, instance_id, only_if)

    def instances(
        self, *, host: str | None = None, workload: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[Instance]:
        """All instances, or those on one host, or of one workload."""
        with self._read() as connection:
            return instances.list_page(connection, host=host, workload=workload, cursor=cursor, limit=limit)

    def put_workload(self, workload: WorkloadProfile, *, only_if: Only[WorkloadProfile] = anyway) -> bool:
        """True when there was no profile of this name on its platform, which is what `only_if` is told of."""
        with self._change("workload.put", workload.name) as connection:
            return cloud.put_workload(connection, workload, only_if)

    def workload(self, name: str, *, platform: str | None = None) -> WorkloadProfile:
        """The profile on one platform; without one the profile that holds everywhere, or else any.

        NotFound when there is none such.
        """
        with self._read() as connection:
            named = workloads.named(connection, name)
        fitting = [one for one in named if platform in {None, one.platform}]
        return _found(fitting[0] if fitting else None, "workload", name)

    def delete_workload(self, name: str, *, only_if: Only[WorkloadProfile] = anyway) -> None:
        """Forget it on every platform; instances that run it count as unknown from then on.

        `only_if` is told the profile that `workload` finds without a platform.
        """
        with self._change("workload.delete", name) as connection:
            cloud.delete_workload(connection, name, only_if)

    def workloads(
        self, *, platform: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[WorkloadProfile]:
        """All profiles, or those of one platform ("" = those that hold everywhere)."""
        with self._read() as connection:
            return workloads.list_page(connection, platform=platform, cursor=cursor, limit=limit)

    def put_inventory(self, inventory: Inventory, *, mode: str, generation: int | None) -> int:
        """Replace or merge the whole cloud in one transaction; returns the new generation.

        StaleGeneration unless `generation` is None or the current one; InvalidInput writes nothing.
        """
        cloud.check_all_labels(inventory)
        with self._change("inventory.put", mode=mode, **cloud.sizes(inventory)) as connection:
            return cloud.put_all(connection, inventory, mode=mode, generation=generation, now=self._clock())

    def follow(self, reading: Reading, *, dry_run: bool = False) -> SyncDiff:
        """Bring the inventory to what another system told, and say what that changed; a dry run only says it.

        It is compared while others may write, for it takes a second for 10,000 instances. Where they wrote meanwhile
        again and again, it is compared once more while nobody else can.
        """
        for _ in range(FOLLOW_TRIES):
            with self._read() as connection:
                stored, generation = sync.stored(connection)
            news = sync.compare(reading, stored)
            if dry_run:
                return news
            try:
                with self._write() as connection:
                    self._follow(connection, reading, news, generation)
            except StaleGeneration:  # somebody wrote meanwhile
                continue
            return news
        with self._write() as connection:
            counters.hold(connection, "inventory")
            stored, generation = sync.stored(connection)
            news = sync.compare(reading, stored)
            self._follow(connection, reading, news, generation)
        return news

    def _follow(self, connection: Connection, reading: Reading, news: SyncDiff, generation: int) -> None:
        fresh = timedelta(seconds=self._settings.fresh_s)
        sync.write(connection, news, generation, now=self._clock(), fresh=fresh)
        now = counters.read(connection).inventory
        self._audit.record(connection, "inventory.follow", generation=now, source=reading.source, **news.sizes())

    def generation(self) -> int:
        """How often the inventory was written so far."""
        with self._read() as connection:
            return counters.read(connection).inventory

    # observations

    def ingest(self, samples: Sequence[MetricSample]) -> Mapping[str, Any]:
        """Store samples: `accepted`, `duplicate`, and `dropped` as (position, reason) of each sample not taken."""
        if len(samples) > self._settings.max_batch:
            message = f"{len(samples)} samples in one batch, at most {self._settings.max_batch} are taken; send fewer"
            raise InvalidInput(message, field="samples")
        with self._write() as connection:
            counts = asdict(ingest.ingest(connection, samples, now=self._clock(), fresh_s=self._settings.fresh_s))
            self._audit.record(connection, "samples.add", **(counts | {"dropped": len(counts["dropped"])}))
        self._retention.nudge()
        return counts

    def record_colocation(self, colocation: Colocation) -> bool:
        """True when it is new, False when it was sent before; Conflict when it was sent with other values.

        What the models in use, in shadow and the prior predict for it is kept beside it, where its host is known.
        """
        ingest.check_colocation(colocation)
        now = self._clock()
        view, judges = self._judges(now)
        checked = self._monitor.check_colocation(colocation, view.inventory, judges, now)
        with self._write() as connection:
            new = ingest.record(connection, colocation, now=now)
            if new:
                self._monitor.keep(connection, checked)
                self._audit.record(connection, "colocation.add", [colocation.run])
            return new

    def profile(self, instance_id: str, *, since: str = "24h") -> InstanceProfile:
        """What an instance does, phase by phase, by its samples of the last `since` (such as 90m, 24h, 7d).

        They are in the database, or in the store that `prometheus_url` names. NotFound where there are none,
        InvalidInput where there are more windows than are looked at.
        """
        now, elsewhere = self._clock(), None
        if self._settings.prometheus_url is not None:
            elsewhere = promql.read(self._settings, instance_id, since=since, now=now)
        with self._read() as connection:
            found = profiles.read_stored(connection, instance_id, since=since, now=now, elsewhere=elsewhere)
        return profiles.profile_stored(found)

    def save_profile(
        self, profile: InstanceProfile, name: str, *, phase: int | None, anyway: bool = False, extrapolate: bool = False
    ) -> WorkloadProfile:
        """Store a phase as a workload on the platform of its host; InvalidInput when it is not enough for one.

        Nothing else changes: instances are told by whoever knows them that this is what they run.
        """
        with self._change("workload.put", name, profile.instance) as connection:
            host = hosts.get(connection, profile.host)
            platform = host.platform if host else ""
            found = profiles.workload_of(
                profile, phase, name, platform=platform, anyway=anyway, extrapolate=extrapolate
            )
            cloud.put_workload(connection, found)
        return found

    # questions

    def predict(self, scene: Scene) -> SceneEffects:
        """What co-located instances do to each other; workloads that the scene lacks are looked up by name."""
        view, chosen = self._now(self._clock())
        answer = questions.predict_scene(chosen, scene, view.inventory.workloads)
        return interval_inflation.scene(answer, scene.host, self._factors(answer.model_version, [scene.host]))

    def place(self, request: PlacementRequest) -> Recommendation:
        """Answer and store; unless it is a dry run, the first candidate counts as placed for `reserve_s` seconds."""
        return self.placing.place(request).recommendation

    def place_in_turn(
        self, requests: Sequence[PlacementRequest], *, hold: bool, holds_next: bool = False
    ) -> tuple[Recommendation, ...]:
        """Answer for a scheduler that puts instances on hosts and changes no settings, each counting in for the next.

        With `hold` the answers are stored and count as placed for `reserve_s` seconds, without it nothing is kept but
        an entry in the audit log; `holds_next` leaves that out where a host was found, for the caller asks again and
        holds it.
        """
        return self.placing.in_turn(requests, hold=hold, holds_next=holds_next)

    def evacuation(self, host: str, targets: Sequence[str] | None = None) -> tuple[Move, ...]:
        """Where the residents of a host go when it is emptied, `targets` None = to any other host; holds nothing."""
        return self.placing.evacuation(host, targets)

    def improvements(self, targets: Mapping[str, Sequence[str]], *, most: int, within_s: float) -> tuple[Move, ...]:
        """Moves that pay beyond uncertainty, of the instances in `targets` to their hosts; holds nothing."""
        return self.placing.improvements(targets, most=most, within_s=within_s)

    def cloud(self) -> Inventory:
        """The whole inventory as it stands now, as questions see it; without the answers that are pending."""
        return self._now(self._clock())[0].inventory

    def cloud_now(self) -> CloudNow:
        """Every host with what is predicted of everybody on it, pending answers included, and how much it is asked."""
        return self._overview.now(*self._now(self._clock()))

    def host_detail(self, host_id: str) -> HostDetail:
        """One host more closely: what happens to each resident, and who slows whom by how much.

        NotFound when there is none such.
        """
        view, chosen = self._now(self._clock())
        found = overview.detail(view, chosen, self._overview.now(view, chosen), host_id)
        return overview.widened(found, self._factors(chosen.predictor.version, [found.now.host]))

    def histories(self, *, host: str | None = None, instance: str | None = None, since: str = "1h") -> Histories:
        """The eight metrics of everybody on a host, or of one instance, in the last `since` (such as 90m, 24h, 7d).

        Empty where nothing was measured, or where the store of `prometheus_url` cannot be asked, which `missing` says;
        InvalidInput when `since` is no such time.
        """
        now = self._clock()
        if self._settings.prometheus_url is not None:
            return histories.scraped(self._settings, instance, since=since, now=now)
        with self._read() as connection:
            return histories.stored(connection, host, instance, since=since, now=now)

    def recommendation(self, recommendation_id: str) -> Recommendation:
        """A stored answer; NotFound when there is none such."""
        with self._read() as connection:
            return _found(recommendations.get(connection, recommendation_id), "recommendation", recommendation_id)

    def recommendations(self, *, cursor: str | None = None, limit: int = 100) -> Page[Recommendation]:
        """Newest first."""
        with self._read() as connection:
            return recommendations.list_page(connection, cursor=cursor, limit=limit)

    def record_outcome(self, recommendation_id: str, host: str, ratios: Mapping[str, float]) -> None:
        """Keep where the instance went and the throughput ratio of each instance there; the latest word wins.

        It is held against what was answered then, and against what the shadow and the prior say of the same scene.
        """
        check_value(host, "host")
        check_value(ratios, "ratios")
        answer, former = self.recommendation(recommendation_id), self.outcome(recommendation_id)
        if former is not None and (former.host, former.ratios) == (host, ratios):
            return
        now = self._clock()
        view, judges = self._judges(now)
        outcome = RecordedOutcome(host, ratios, now)
        checked = self._monitor.check_placement(answer, outcome, view.inventory, judges)
        with self._write() as connection:
            if not recommendations.set_outcome(connection, recommendation_id, outcome):
                raise NotFound(f"there is no recommendation {recommendation_id}")
            self._audit.record(connection, "outcome.put", [recommendation_id, host])
            self._monitor.keep(connection, checked, instead_of=source_of(recommendation_id))

    def outcome(self, recommendation_id: str) -> RecordedOutcome | None:
        """What really happened after a recommendation, None when nobody has told."""
        with self._read() as connection:
            return recommendations.outcome(connection, recommendation_id)

    def answered(
        self, *, which: AnsweredAs = "all", cursor: str | None = None, limit: int = 100
    ) -> Page[RecommendationOutcome]:
        """Answers beside what was told of them, newest first: all, only real ones (no dry runs), or those told of."""
        with self._read() as connection:
            return outcomes.page(connection, which, cursor=cursor, limit=limit)

    def answer(self, recommendation_id: str) -> RecommendationOutcome:
        """One answer beside what was told of it; NotFound when there is none such."""
        return outcomes.beside(self.recommendation(recommendation_id), self.outcome(recommendation_id))

    def plan(self, request: PlanRequest, progress: Progress | None = None) -> Plan:
        """What should become of the whole cloud, with its pending answers; kept, and holds nothing."""
        made = self._plans.make(request, progress)
        self._retention.nudge()
        return made

    def stored_plan(self, plan_id: str) -> Plan:
        """A plan that was made; NotFound when there is none such."""
        return self._plans.get(plan_id)

    def plans(self, *, kind: PlanKind | None = None, cursor: str | None = None, limit: int = 100) -> Page[PlanEntry]:
        """The plans that were made, newest first; those of one kind."""
        return self._plans.page(kind=kind, cursor=cursor, limit=limit)

    def plan_age(self, plan: Plan) -> PlanAge:
        """Whether the inventory was written since a plan was made, and what of it."""
        return self._plans.age(plan)

    def plan_sentences(self, plan: Plan) -> tuple[str, ...]:
        """What becomes of the cloud by a plan, then how its search ended and how far the best may be from it."""
        return plan_reading.sentences(plan)

    def plan_report(self, plan_id: str) -> str:
        """The report of a plan that was made, as one HTML file that needs no other; NotFound without such a plan."""
        return self._reported(plan_id, plan_reading.as_html)

    def plan_report_data(self, plan_id: str) -> dict[str, Any]:
        """Every word and every number of that report; NotFound without such a plan."""
        return self._reported(plan_id, plan_reading.as_data)

    def _reported(self, plan_id: str, made: Callable[..., T]) -> T:
        plan = self.stored_plan(plan_id)
        view, chosen = self._now(self._clock())
        card = next((one for one in self.models() if one.version == plan.model_version), None)
        stale = self.plan_age(plan).stale is not False
        return made(view.inventory, plan, chosen, card, stale=stale)

    def report(self, request: PlanRequest, folder: Path, *, keep: int, progress: Progress | None = None) -> Reported:
        """Write the state of the cloud and what a plan would do to a new dated folder in `folder`, the newest `keep`
        of which stay; InvalidInput or OutOfSpace. The plan is kept as every plan."""
        check_folder(folder)
        made = self.plan(request, progress)
        view, chosen = self._now(self._clock())
        card = next((one.card for one in self.models() if one.version == made.model_version), None)
        ages = dict(zip((host.id for host in view.snapshot.hosts), view.snapshot.age_s.tolist(), strict=True))
        behind = of_plan(view.inventory, made, chosen.predictor, card)
        return write_report(view.inventory, made, behind, ages, folder, keep=keep)

    def probe_plan(self, request: ProbeRequest) -> ProbePlan:
        """Which pairs to measure next, because knowing them would change a decision on the cloud as it is now."""
        probe_planning.check(request)
        view, chosen = self._now(self._clock())
        return probe_planning.plan(view.snapshot, chosen, request, fresh_s=self._settings.fresh_s)

    # models

    def models(self) -> tuple[ModelCard, ...]:
        """Every registered model, newest first, and last the queueing prior."""
        return self._registry.listing()

    def model(self, version: str) -> ModelCard:
        """One registered model, "prior" for the queueing prior; NotFound when there is none such."""
        return self._registry.get(version)

    def model_history(self, version: str | None = None) -> tuple[Activation, ...]:
        """Every change of the model that answers, oldest first; with a version those to and from it."""
        return self._registry.history(version)

    def register_model(self, artifact: Path) -> ModelCard:
        """Check an artifact, copy it to the model folder if it lies elsewhere and list it as a candidate.

        The gate judges it. One that is listed already keeps its status. BrokenArtifact when it cannot be read.
        """
        return self._registry.register(artifact)

    def judge_model(self, version: str) -> ModelCard:
        """Put a model before the gate again, against who answers now; its card has the new verdict."""
        return self._registry.judge(version)

    def activate_model(self, version: str, *, force: bool = False) -> ModelCard:
        """Let a registered model answer and retire the former one; "prior" lets the queueing prior answer alone.

        No change and BrokenArtifact when its artifact cannot be read, RefusedByGate when it fails the gate and `force`
        is not set, Conflict when another one was activated meanwhile.
        """
        return self._registry.activate(version, force=force)

    def roll_back_model(self, of: str | None = None) -> ModelCard:
        """Let the model answer that did before `of`, by default the one that answers.

        Conflict when there was none or `of` does not answer, BrokenArtifact when it is gone.
        """
        return self._registry.roll_back(of)

    def shadow_model(self, version: str) -> ModelCard:
        """Let a model be scored beside the active one; "prior" ends that. Conflict when it is the active one."""
        return self._registry.shadow(version)

    def model_quality(self, version: str | None = None, *, window: int | None = None) -> ModelQuality:
        """How a model's predictions held of late, by default the one that answers; NotFound when there is none such.

        `window` is how many rows each group has at most, by default `quality_window`.
        """
        version = self._now(self._clock())[1].predictor.version if version is None else self.model(version).version
        with self._read() as connection:
            return self._monitor.quality(connection, version, window)

    # operations

    def ready(self) -> Mapping[str, Any]:
        """Who answers now, as database, generation, model, snapshot_age_s, hosts; StorageUnavailable if nobody does."""
        now = self._clock()
        view, chosen = self._now(now)
        return {
            "database": self._database.url.get_backend_name(),
            "generation": view.counts.inventory,
            "model": chosen.predictor.version,
            "degraded": chosen.degraded,
            "snapshot_age_s": max((now - view.snapshot.taken_at).total_seconds(), 0.0),
            "hosts": len(view.inventory.hosts),
        }

    def vitals(self) -> Vitals:
        """What whoever watches the service wants to know of its state; StorageUnavailable as with `ready`."""
        now = self._clock()
        view, chosen = self._now(now)
        return vitals.take(view, chosen, now=now, fresh_s=self._settings.fresh_s)

    def remembered(self) -> tuple[int, int]:
        """Predictions found and missed among those remembered, of the model that answers; asks no database."""
        return self._current.remembered()

    @property
    def guarded(self) -> bool:
        """Whether who has no valid token is refused; `tokens.refresh` comes first."""
        return self.keystone is not None or self.tokens.required

    def audit(
        self, *, actor: str | None = None, named: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[AuditEntry]:
        """Who changed or was told what, newest first; of one actor, about one object."""
        with self._read() as connection:
            return self._audit.page(connection, actor=actor, named=named, cursor=cursor, limit=limit)

    def upgrade_database(self) -> str:
        """Bring the database to the newest tables; returns the revision."""
        revision = migrate.upgrade(self._database)
        self._outdated = None
        return revision

    def prune(self) -> Mapping[str, int]:
        """Roll up samples that are old enough and forget what expired: how many `samples`, `rollups`, `series`,
        `recommendations` and `plans`.

        Conflict while another pass, in this process or another, is at it.
        """
        self._refuse_outdated()
        return asdict(self._retention.run())

    def _check_tables(self) -> None:
        with self._database.read() as connection:
            found = migrate.fit(connection)
        if found == "empty":
            self.upgrade_database()
            return
        try:
            migrate.refuse(self._database, found)
        except SchemaMismatch as error:
            if found != "older":
                raise
            self._outdated = error

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        self._refuse_outdated()
        with self._database.read() as connection:
            yield connection

    @contextmanager
    def _change(self, operation: Operation, *objects: str, **detail: Any) -> Iterator[Connection]:
        """A change of the inventory and its entry in the audit log: both or neither."""
        with self._write() as connection:
            yield connection
            generation = counters.read(connection).inventory
            self._audit.record(connection, operation, objects, generation=generation, **detail)

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        self._refuse_outdated()
        with self._database.write() as connection:
            yield connection

    def _refuse_outdated(self) -> None:
        deadline.check()  # no further step for somebody who does not wait any more
        if self._outdated is not None:
            raise SchemaMismatch(self._outdated.message)

    def _now(self, now: datetime) -> tuple[CloudView, ActivePredictor]:
        self._refuse_outdated()
        return self._current.at(now)

    def _judges(self, now: datetime) -> tuple[CloudView, Sequence[OutcomeScorer]]:
        view, chosen = self._now(now)
        with self._read() as connection:
            tried = shadows(connection)
        return view, self._monitor.judges(tried, chosen)

    def _factors(self, version: str, there: Sequence[Host]) -> Mapping[str, float]:
        if not self._settings.adapt_intervals:
            return {}
        with self._read() as connection:
            return self._monitor.factors(connection, version, there)


def _found(thing: T | None, what: str, name: str) -> T:
    if thing is None:
        raise NotFound(f"there is no {what} {name}")
    return thing
