"""Advisor: everything that REST, command line and web page may call; owns engine, snapshot and predictor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection

from advisor import ingest, probing, profiling, questions, widening
from advisor import inventory as cloud
from advisor.answers import recommendation_as_json
from advisor.checking import Judge, source_of
from advisor.current import Current, View, as_pending
from advisor.domain import (
    Activation,
    Host,
    Instance,
    InstanceProfile,
    Inventory,
    ModelCard,
    ModelQuality,
    Page,
    PlacementRequest,
    Plan,
    ProbePlan,
    ProbeRequest,
    Recommendation,
    Scene,
    SceneEffects,
    WorkloadProfile,
)
from advisor.errors import InvalidInput, NotFound, SchemaMismatch
from advisor.inventories.static import load_instances, load_inventory, load_scene
from advisor.monitoring import Monitor, shadows
from advisor.oneshot import (
    evaluate,
    findings,
    lab_workloads,
    plan,
    predict,
    probe_plan,
    profile_samples,
    train,
    where,
    write_campaign,
    write_plan_report,
    write_profile_picture,
)
from advisor.predictors import Chosen
from advisor.probing import duration_s, probe_plan_as_json
from advisor.probing import sentence as probe_sentence
from advisor.questions import Progress
from advisor.registry import Registry
from advisor.settings import Settings
from advisor.store import counters, hosts, instances, migrate, pending, recommendations, workloads
from advisor.store.engine import Database
from advisor.store.recommendations import RecordedOutcome
from advisor.validation import check_value, picture_kind
from profiler.observed import Colocation, MetricSample

__all__ = [
    "Advisor",
    "Progress",
    "duration_s",
    "evaluate",
    "findings",
    "lab_workloads",
    "load_instances",
    "load_inventory",
    "load_scene",
    "picture_kind",
    "plan",
    "predict",
    "probe_plan",
    "probe_plan_as_json",
    "probe_sentence",
    "profile_samples",
    "recommendation_as_json",
    "train",
    "where",
    "write_campaign",
    "write_plan_report",
    "write_profile_picture",
]

_ATTEMPTS = 5  # at an answer that no other replica's answer overtakes, before it is given regardless
T = TypeVar("T")


class Advisor:
    """One per process; thread-safe: each call opens its own transaction, the snapshot is swapped whole.

    Brings an empty database to the newest tables. Raises SchemaMismatch on the database of a newer version or another
    program; on one of an older version every call does, until `upgrade_database`. `clock` is for tests.
    """

    def __init__(self, settings: Settings, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._settings = settings
        self._clock = clock
        self._database = Database(settings.database)
        self._current = Current(self._database, settings)
        self._monitor = Monitor(settings)
        self._registry = Registry(settings.model_dir, self._read, self._write, clock)
        self._placing = threading.Lock()
        self._outdated: SchemaMismatch | None = None
        try:
            self._check_tables()
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Advisor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # inventory

    def put_host(self, host: Host) -> bool:
        """True when it is new; Conflict when an instance on it is pinned to a pCPU that it no longer has."""
        with self._write() as connection:
            return cloud.put_host(connection, host, self._clock())

    def host(self, host_id: str) -> Host:
        with self._read() as connection:
            return _found(hosts.get(connection, host_id), "host", host_id)

    def delete_host(self, host_id: str) -> None:
        """Conflict while instances are on it."""
        with self._write() as connection:
            cloud.delete_host(connection, host_id)

    def hosts(self, *, cursor: str | None = None, limit: int = 100) -> Page[Host]:
        with self._read() as connection:
            return hosts.list_page(connection, cursor=cursor, limit=limit)

    def put_instance(self, instance: Instance) -> bool:
        """True when it is new; InvalidInput when its host does not exist or lacks a pCPU that it is pinned to."""
        with self._write() as connection:
            return cloud.put_instance(connection, instance)

    def instance(self, instance_id: str) -> Instance:
        with self._read() as connection:
            return _found(instances.get(connection, instance_id), "instance", instance_id)

    def delete_instance(self, instance_id: str) -> None:
        with self._write() as connection:
            cloud.delete_instance(connection, instance_id)

    def instances(self, *, host: str | None = None, cursor: str | None = None, limit: int = 100) -> Page[Instance]:
        """All instances, or those on one host."""
        with self._read() as connection:
            return instances.list_page(connection, host=host, cursor=cursor, limit=limit)

    def put_workload(self, workload: WorkloadProfile) -> bool:
        """True when there was no profile of this name on its platform."""
        with self._write() as connection:
            return cloud.put_workload(connection, workload)

    def workload(self, name: str, *, platform: str | None = None) -> WorkloadProfile:
        """The profile on one platform; without one the profile that holds everywhere, or else any."""
        with self._read() as connection:
            named = workloads.named(connection, name)
        fitting = [one for one in named if platform in {None, one.platform}]
        return _found(fitting[0] if fitting else None, "workload", name)

    def delete_workload(self, name: str) -> None:
        """Forget it on every platform; instances that run it count as unknown from then on."""
        with self._write() as connection:
            cloud.delete_workload(connection, name)

    def workloads(self, *, cursor: str | None = None, limit: int = 100) -> Page[WorkloadProfile]:
        with self._read() as connection:
            return workloads.list_page(connection, cursor=cursor, limit=limit)

    def put_inventory(self, inventory: Inventory, *, mode: str, generation: int | None) -> int:
        """Replace or merge the whole cloud in one transaction; returns the new generation.

        StaleGeneration unless `generation` is None or the current one; InvalidInput writes nothing.
        """
        with self._write() as connection:
            return cloud.put_all(connection, inventory, mode=mode, generation=generation, now=self._clock())

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
            return asdict(ingest.ingest(connection, samples, now=self._clock(), fresh_s=self._settings.fresh_s))

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
            return new

    def profile(self, instance_id: str, *, since: str = "24h") -> InstanceProfile:
        """What an instance does, phase by phase, by its samples of the last `since` (such as 90m, 24h, 7d).

        NotFound where there are no samples, InvalidInput where there are more windows than are looked at.
        """
        with self._read() as connection:
            readings = profiling.read_stored(connection, instance_id, since=since, now=self._clock())
        return profiling.profile_stored(readings)

    def save_profile(
        self, profile: InstanceProfile, name: str, *, phase: int | None, anyway: bool = False, extrapolate: bool = False
    ) -> WorkloadProfile:
        """Store a phase as a workload on the platform of its host; InvalidInput when it is not enough for one.

        Nothing else changes: instances are told by whoever knows them that this is what they run.
        """
        with self._write() as connection:
            host = hosts.get(connection, profile.host)
            platform = host.platform if host else ""
            found = profiling.workload_of(
                profile, phase, name, platform=platform, anyway=anyway, extrapolate=extrapolate
            )
            cloud.put_workload(connection, found)
        return found

    # questions

    def predict(self, scene: Scene) -> SceneEffects:
        """What co-located instances do to each other; workloads that the scene lacks are looked up by name."""
        view, chosen = self._now(self._clock())
        answer = questions.predict_scene(chosen, scene, view.inventory.workloads)
        return widening.scene(answer, scene.host, self._factors(answer.model_version, [scene.host]))

    def place(self, request: PlacementRequest) -> Recommendation:
        """Answer and store; unless it is a dry run, the first candidate counts as placed for `reserve_s` seconds."""
        questions.check_request(request)
        if request.dry_run or self._settings.reserve_s == 0:
            recommendation, _ = self._answer(request)
            with self._write() as connection:
                recommendations.add(connection, recommendation)
            return recommendation
        with self._placing:  # one at a time in this process, so that each answer counts in the former ones
            for attempt in range(1, _ATTEMPTS + 1):
                recommendation, view = self._answer(request)
                if self._hold(recommendation, view, force=attempt == _ATTEMPTS):
                    break
            return recommendation

    def recommendation(self, recommendation_id: str) -> Recommendation:
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
            self._monitor.keep(connection, checked, instead_of=source_of(recommendation_id))

    def outcome(self, recommendation_id: str) -> RecordedOutcome | None:
        """What really happened after a recommendation, None when nobody has told."""
        with self._read() as connection:
            return recommendations.outcome(connection, recommendation_id)

    def plan(self, instances: Sequence[Instance], *, objective: str = "worst") -> Plan:
        """Place instances one after another on the cloud as it will be with the pending answers; holds nothing."""
        now = self._clock()
        view, chosen = self._now(now)
        answer = questions.place_all(chosen, view.expected, instances, objective=objective, now=now)
        return widening.plan(answer, self._factors(answer.model_version, view.inventory.hosts))

    def probe_plan(self, request: ProbeRequest) -> ProbePlan:
        """Which pairs to measure next, because knowing them would change a decision on the cloud as it is now."""
        probing.check(request)
        view, chosen = self._now(self._clock())
        return probing.plan(view.snapshot, chosen, request, fresh_s=self._settings.fresh_s)

    # models

    def models(self) -> tuple[ModelCard, ...]:
        """Every registered model, newest first, and last the queueing prior."""
        return self._registry.listing()

    def model(self, version: str) -> ModelCard:
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

    def roll_back_model(self) -> ModelCard:
        """Let the model answer that did before; Conflict when there was none, BrokenArtifact when it is gone."""
        return self._registry.roll_back()

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

    def upgrade_database(self) -> str:
        """Bring the database to the newest tables; returns the revision."""
        revision = migrate.upgrade(self._database)
        self._outdated = None
        return revision

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
    def _write(self) -> Iterator[Connection]:
        self._refuse_outdated()
        with self._database.write() as connection:
            yield connection

    def _refuse_outdated(self) -> None:
        if self._outdated is not None:
            raise SchemaMismatch(self._outdated.message)

    def _now(self, now: datetime) -> tuple[View, Chosen]:
        self._refuse_outdated()
        return self._current.at(now)

    def _answer(self, request: PlacementRequest) -> tuple[Recommendation, View]:
        now = self._clock()
        view, chosen = self._now(now)
        fresh_s = self._settings.fresh_s
        answer = questions.recommend(view.snapshot, chosen, request, now=now, fresh_s=fresh_s)
        return widening.recommendation(answer, self._factors(answer.model_version, view.inventory.hosts)), view

    def _judges(self, now: datetime) -> tuple[View, Sequence[Judge]]:
        view, chosen = self._now(now)
        with self._read() as connection:
            tried = shadows(connection)
        return view, self._monitor.judges(tried, chosen)

    def _factors(self, version: str, there: Sequence[Host]) -> Mapping[str, float]:
        if not self._settings.adapt_intervals:
            return {}
        with self._read() as connection:
            return self._monitor.factors(connection, version, there)

    def _hold(self, recommendation: Recommendation, view: View, *, force: bool) -> bool:
        """Store an answer and hold its host; False, and nothing written, when another answer was held meanwhile."""
        now = self._clock()
        held = as_pending(recommendation, now + timedelta(seconds=self._settings.reserve_s))
        with self._write() as connection:
            if held is not None:
                if force:
                    counters.bump(connection, "pending")
                elif not counters.bump_from(connection, "pending", view.counts.pending):
                    return False
                pending.purge(connection, now)
                if hosts.known(connection, [held.host]):  # it may have been deleted since the snapshot
                    pending.hold(connection, held)
            recommendations.add(connection, recommendation)
        return True


def _found(thing: T | None, what: str, name: str) -> T:
    if thing is None:
        raise NotFound(f"there is no {what} {name}")
    return thing
