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

from advisor import ingest, predictors, profiling, questions, training
from advisor import inventory as cloud
from advisor.answers import recommendation_as_json
from advisor.current import Current, View, as_pending
from advisor.domain import (
    Host,
    Instance,
    InstanceProfile,
    Inventory,
    ModelCard,
    Page,
    PlacementRequest,
    Plan,
    Recommendation,
    Scene,
    SceneEffects,
    WorkloadProfile,
)
from advisor.errors import InvalidInput, NotFound, SchemaMismatch
from advisor.inventories.static import load_instances, load_inventory, load_scene
from advisor.oneshot import (
    evaluate,
    findings,
    plan,
    predict,
    profile_samples,
    train,
    where,
    write_plan_report,
    write_profile_picture,
)
from advisor.predictors import Chosen
from advisor.questions import Progress
from advisor.settings import Settings
from advisor.store import counters, hosts, instances, migrate, models, pending, recommendations, workloads
from advisor.store.engine import Database
from advisor.store.recommendations import RecordedOutcome
from advisor.validation import check_value, picture_kind
from models.prior import PriorPredictor
from profiler.observed import Colocation, MetricSample

__all__ = [
    "Advisor",
    "Progress",
    "evaluate",
    "findings",
    "load_instances",
    "load_inventory",
    "load_scene",
    "picture_kind",
    "plan",
    "predict",
    "profile_samples",
    "recommendation_as_json",
    "train",
    "where",
    "write_plan_report",
    "write_profile_picture",
]

PRIOR = "prior"  # names the queueing prior where a model's version is asked for
_ATTEMPTS = 5  # at an answer that no other replica's answer overtakes, before it is given regardless
T = TypeVar("T")
_LONG_AGO = datetime.fromtimestamp(0, UTC)


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
        """True when it is new, False when it was sent before; Conflict when it was sent with other values."""
        with self._write() as connection:
            return ingest.record(connection, colocation, now=self._clock())

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
        return questions.predict_scene(chosen, scene, view.inventory.workloads)

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
        """Keep where the instance went and the throughput ratio of each instance there; the latest word wins."""
        check_value(host, "host")
        check_value(ratios, "ratios")
        with self._write() as connection:
            outcome = RecordedOutcome(host, ratios, self._clock())
            if not recommendations.set_outcome(connection, recommendation_id, outcome):
                raise NotFound(f"there is no recommendation {recommendation_id}")

    def outcome(self, recommendation_id: str) -> RecordedOutcome | None:
        """What really happened after a recommendation, None when nobody has told."""
        with self._read() as connection:
            return recommendations.outcome(connection, recommendation_id)

    def plan(self, instances: Sequence[Instance], *, objective: str = "worst") -> Plan:
        """Place instances one after another on the cloud as it will be with the pending answers; holds nothing."""
        now = self._clock()
        view, chosen = self._now(now)
        return questions.place_all(chosen, view.expected, instances, objective=objective, now=now)

    # models

    def models(self) -> tuple[ModelCard, ...]:
        """Every registered model, newest first, and last the queueing prior."""
        with self._read() as connection:
            cards = models.load_all(connection)
        return (*cards, _prior_card(is_active=all(card.status != "active" for card in cards)))

    def model(self, version: str) -> ModelCard:
        return _found(next((card for card in self.models() if card.version == version), None), "model", version)

    def register_model(self, artifact: Path) -> ModelCard:
        """Check an artifact, copy it to the model folder if it lies elsewhere and list it as a candidate.

        One that is listed already keeps its status. BrokenArtifact when it cannot be read.
        """
        card = training.adopt(artifact, self._settings.model_dir, self._clock())
        with self._write() as connection:
            models.add(connection, card)
            return _found(models.get(connection, card.version), "model", card.version)

    def activate_model(self, version: str) -> ModelCard:
        """Let a registered model answer and retire the former one; "prior" lets the queueing prior answer alone.

        BrokenArtifact, and no change, when its artifact cannot be read.
        """
        if version != PRIOR:
            self.model(version)
            predictors.load(self._settings.model_dir / version)
        with self._write() as connection:
            counters.bump(connection, "models")
            models.activate(connection, None if version == PRIOR else version)
        return self.model(version)

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
        return questions.recommend(view.snapshot, chosen, request, now=now, fresh_s=fresh_s), view

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


def _prior_card(*, is_active: bool) -> ModelCard:
    prior = PriorPredictor()
    card = {"kind": "queueing prior", "trained": False}
    return ModelCard(PRIOR, "active" if is_active else "candidate", _LONG_AGO, prior.origin, card)
