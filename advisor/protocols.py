"""What may be asked of a service, in eight parts; `advisor.service.Advisor` puts their implementations together.

All are thread-safe: each call opens its own transaction. Each raises StorageUnavailable when the database cannot be
read or written, and SchemaMismatch while its tables are of another version.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from advisor.domain import (
    Activation,
    AdviceWorth,
    Announced,
    Announcement,
    AnsweredAs,
    AuditEntry,
    CloudNow,
    Contradiction,
    Histories,
    Host,
    HostDetail,
    HostRanking,
    Instance,
    InstanceProfile,
    Inventory,
    ModelCard,
    ModelQuality,
    Move,
    NamedSize,
    ObtainedHere,
    Page,
    PlacementRequest,
    Plan,
    PlanAge,
    PlanEntry,
    PlanKind,
    PlanRequest,
    ProbeReport,
    Recommendation,
    RecommendationOutcome,
    Scene,
    SceneEffects,
    ServiceEvent,
    SlowingHere,
    WorkloadProfile,
)
from profiler.observed import Colocation, MetricSample

if TYPE_CHECKING:  # who asks a service need not import what stands behind it
    from advisor.access.idempotency import Idempotency
    from advisor.access.keystone import Keystone
    from advisor.access.sessions import Sessions
    from advisor.access.tokens import Tokens
    from advisor.inventories.reading import Reading
    from advisor.inventories.sources import SourceOptions
    from advisor.inventories.sync import SyncDiff
    from advisor.planning.planner import Progress
    from advisor.reports.folders import Reported
    from advisor.serving.recommendations import EncodedRecommendation
    from advisor.serving.vitals import Vitals
    from advisor.telemetry.monitoring_history import MonitoringHistory


class InventoryService(Protocol):
    """Hosts, instances and workload profiles; every change is in the audit log.

    `only_if` gets what is stored now (None = nothing) in the transaction of the change, and raises where that may not
    be changed.
    """

    def put_host(self, host: Host, *, only_if: Callable[[Host | None], None] = ...) -> bool:
        """True when it is new; Conflict when an instance on it is pinned to a pCPU that it no longer has."""
        ...

    def host(self, host_id: str) -> Host:
        """One host; NotFound when there is none such."""
        ...

    def delete_host(self, host_id: str, *, only_if: Callable[[Host | None], None] = ...) -> None:
        """Conflict while instances are on it, NotFound when there is none such."""
        ...

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
        ...

    def put_instance(self, instance: Instance, *, only_if: Callable[[Instance | None], None] = ...) -> bool:
        """True when it is new; InvalidInput when its host does not exist or lacks a pCPU that it is pinned to."""
        ...

    def instance(self, instance_id: str) -> Instance:
        """One instance; NotFound when there is none such."""
        ...

    def delete_instance(self, instance_id: str, *, only_if: Callable[[Instance | None], None] = ...) -> None:
        """Forget it, wherever it is; NotFound when there is none such."""
        ...

    def instances(
        self,
        *,
        host: str | None = None,
        workload: str | None = None,
        part: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Instance]:
        """All instances, or those on one host, of one workload, or with `part` in their id or their label `name`."""
        ...

    def named(self, part: str, *, limit: int = 10) -> tuple[Instance, ...]:
        """Instances with `part` in their id, whatever its case; those that begin with it come first."""
        ...

    def flavors(self, part: str, *, limit: int = 10) -> tuple[NamedSize, ...]:
        """Sizes that instances have under the name of a flavor with `part` in it, those of most instances first."""
        ...

    def put_workload(
        self, workload: WorkloadProfile, *, only_if: Callable[[WorkloadProfile | None], None] = ...
    ) -> bool:
        """True when there was no profile of this name on its platform, which is what `only_if` gets."""
        ...

    def workload(self, name: str, *, platform: str | None = None) -> WorkloadProfile:
        """The profile on one platform; without one the profile that holds everywhere, or else any.

        NotFound when there is none such.
        """
        ...

    def delete_workload(self, name: str, *, only_if: Callable[[WorkloadProfile | None], None] = ...) -> None:
        """Forget it on every platform; instances that run it count as unknown from then on.

        `only_if` gets the profile that `workload` finds without a platform.
        """
        ...

    def workloads(
        self, *, platform: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[WorkloadProfile]:
        """All profiles, or those of one platform ("" = those that hold everywhere)."""
        ...

    def put(self, inventory: Inventory, *, mode: str, generation: int | None) -> int:
        """Replace or merge the whole cloud in one transaction; returns the new generation.

        StaleGeneration unless `generation` is None or the current one; InvalidInput writes nothing.
        """
        ...

    def follow(self, reading: Reading, *, dry_run: bool = False, again: timedelta | None = None) -> SyncDiff:
        """Bring the inventory to what another system reports; returns what that changed. A dry run writes nothing.

        `again` is how long the next read may take before the silence of its hosts counts: zero = there is none.
        """
        ...

    def announce(self, announcement: Announcement) -> Announced:
        """Bring one host and who is on it to what its agent tells; Conflict where two machines go by its name."""
        ...

    def generation(self) -> int:
        """How often the inventory was written so far."""
        ...


class TelemetryService(Protocol):
    """What was measured of hosts and instances: samples, histories and profiles."""

    def ingest(self, samples: Sequence[MetricSample], *, only: str | None = None) -> Mapping[str, Any]:
        """Store samples: `accepted`, `duplicate`, and `dropped` as (position, reason) of each sample not taken.

        `only` is the one host that the sender may speak for, None = any.
        """
        ...

    def take_probes(self, reports: Sequence[ProbeReport], *, only: str | None = None) -> Mapping[str, Any]:
        """Keep the newest result of each probe: `accepted`, `older`, and `dropped` as (position, reason) of the others.

        `only` is the one host that the sender may speak for, None = any.
        """
        ...

    def probes(
        self,
        *,
        host: str | None = None,
        instance: str | None = None,
        probe: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[ProbeReport]:
        """The newest result of every probe, or those of one host, one instance, one kind of probe."""
        ...

    def take_history(
        self,
        source: str,
        *,
        since: str,
        options: SourceOptions | None = None,
        dry_run: bool = False,
        progress: Callable[[int, int], None] = ...,
    ) -> tuple[MonitoringHistory, tuple[str, ...]]:
        """Learn demands from the store that `prometheus_url` names, or from what a system keeps of its own guests; what
        was found, and whose demand that changes.

        `source` is a preset's name or file, or a system with a history (`options` say which one). With a preset,
        `options.cloud` is the OpenStack cloud whose metric storage (Aetos) is asked in place of `prometheus_url`.
        `progress` is called with the parts that were read, and of how many. SeriesUnavailable where the other side
        does not answer.
        """
        ...

    def profile(self, instance_id: str, *, since: str = "24h") -> InstanceProfile:
        """What an instance does, phase by phase, by its samples of the last `since` (such as 90m, 24h, 7d).

        They are in the database, or in the store that `prometheus_url` names. NotFound where there are none,
        InvalidInput where there are more windows than are looked at.
        """
        ...

    def save_profile(
        self, profile: InstanceProfile, name: str, *, phase: int | None, anyway: bool = False, extrapolate: bool = False
    ) -> WorkloadProfile:
        """Store a phase as a workload on the platform of its host; InvalidInput when it is not enough for one.

        No instance changes: callers say themselves which instances run this workload.
        """
        ...

    def histories(self, *, host: str | None = None, instance: str | None = None, since: str = "1h") -> Histories:
        """The eight metrics of everybody on a host, or of one instance, in the last `since` (such as 90m, 24h, 7d).

        Empty where nothing was measured, or where the store of `prometheus_url` cannot be asked, which `missing` says;
        InvalidInput when `since` is no such time.
        """
        ...

    def obtained(self, instance_id: str, *, since: str = "24h") -> ObtainedHere:
        """What an instance obtained in the last `since` (such as 90m, 24h, 7d): CPU time, and its stalls.

        NotFound when there is no such instance, InvalidInput when `since` is no such time.
        """
        ...

    def slowing(self, host_id: str, *, since: str = "24h") -> SlowingHere:
        """Who slows whom on a host as it was measured in the last `since` (such as 90m, 24h, 7d).

        NotFound when there is no such host, InvalidInput when `since` is no such time.
        """
        ...


class PlacementService(Protocol):
    """Where instances should go on the cloud as it is now, pending answers included."""

    def predict(self, scene: Scene) -> SceneEffects:
        """What co-located instances do to each other; workloads that the scene lacks are looked up by name."""
        ...

    def place(self, request: PlacementRequest) -> EncodedRecommendation:
        """Answer and store; unless it is a dry run, the first candidate counts as placed for `reserve_s` seconds."""
        ...

    def in_turn(
        self,
        requests: Sequence[PlacementRequest],
        *,
        hold: bool,
        holds_next: bool = False,
        without: Collection[str] = (),
    ) -> tuple[Recommendation, ...]:
        """Answer for a scheduler that puts instances on hosts and changes no settings.

        Each answer counts as carried out for the next one. With `hold` the answers are stored with their first
        candidates, which count as placed for `reserve_s` seconds. Without it, and without a candidate, each leaves
        only an entry in the audit log; `holds_next` leaves that out where a host was found, because the caller asks
        again and holds it. `without` are instances that count as gone.
        """
        ...

    def scores(
        self, request: PlacementRequest, *, hold: bool, holds_next: bool = False, without: Collection[str] = ()
    ) -> HostRanking:
        """One such question of which only scores are wanted, which is less work: the answer has the first candidate
        where it is held, and none else."""
        ...

    def hold(self, placed: Sequence[Instance]) -> bool:
        """Count instances where their scheduler has put them, for `reserve_s` seconds; whether others place, too.

        Nothing is predicted for them, and only the audit log keeps it. Who is on a host that nobody knows is left out.
        Others are those who had an answer held in the last seconds.
        """
        ...

    def release(self, instance_ids: Sequence[str]) -> None:
        """Hold no host for these instances any longer: their scheduler gave up. Who holds none is left alone."""
        ...

    def get(self, recommendation_id: str) -> Recommendation:
        """A stored answer; NotFound when there is none such."""
        ...

    def evacuation(self, host: str, targets: Sequence[str] | None = None) -> tuple[Move, ...]:
        """Where the residents of a host go when it is emptied, `targets` None = to any other host; holds nothing."""
        ...

    def improvements(self, targets: Mapping[str, Sequence[str]], *, most: int, within_s: float) -> tuple[Move, ...]:
        """The moves of a rebalance in which the instances in `targets` may go to their hosts; holds nothing."""
        ...


class OutcomeService(Protocol):
    """What was observed after answers and of co-locations, and how well predictions held."""

    def record(self, recommendation_id: str, host: str, ratios: Mapping[str, float]) -> None:
        """Store where the instance went and the throughput ratio of each instance there; the latest report wins.

        It is compared with the answer, and with what the shadow and the prior predict for the same scene.
        """
        ...

    def record_colocation(self, colocation: Colocation) -> bool:
        """True when it is new, False when it was sent before; Conflict when it was sent with other values.

        What the models in use, in shadow and the prior predict for it is stored beside it, where its host is known.
        """
        ...

    def get(self, recommendation_id: str) -> RecommendationOutcome:
        """One answer with what was reported of it; NotFound when there is none such."""
        ...

    def page(
        self, *, which: AnsweredAs = "all", cursor: str | None = None, limit: int = 100
    ) -> Page[RecommendationOutcome]:
        """Answers with what was reported of them, newest first: all, real ones (no dry runs), or those reported of."""
        ...

    def worth(self, *, since: str = "7d") -> AdviceWorth:
        """What the advice of so long ago until now was worth; InvalidInput for a time that is none."""
        ...

    def quality(self, version: str | None = None, *, window: int | None = None) -> ModelQuality:
        """How a model's predictions held recently, by default the active one's; NotFound when there is none such.

        `window` is how many rows each group has at most, by default `quality_window`.
        """
        ...


class PlanService(Protocol):
    """Plans for the whole cloud; a plan holds no host."""

    def make(self, request: PlanRequest, progress: Progress | None = None) -> Plan:
        """Plan the cloud with its pending answers, and store the plan.

        InvalidInput for what contradicts itself or the cloud, NotFound and BrokenArtifact for the model of an imagined
        cloud.
        """
        ...

    def get(self, plan_id: str) -> Plan:
        """A stored plan; NotFound when there is none such."""
        ...

    def page(self, *, kind: PlanKind | None = None, cursor: str | None = None, limit: int = 100) -> Page[PlanEntry]:
        """The stored plans, newest first; those of one kind."""
        ...

    def age(self, plan: Plan) -> PlanAge:
        """Whether the inventory was written since a plan was made, and what of it."""
        ...

    def sentences(self, plan: Plan) -> tuple[str, ...]:
        """What the plan changes, how its search ended, and how far it may be from the best plan."""
        ...

    def report_html(self, plan_id: str) -> str:
        """The report of a stored plan as one HTML file that needs no other; NotFound when there is none such."""
        ...

    def report_data(self, plan_id: str) -> dict[str, Any]:
        """Every word and every number of that report; NotFound when there is none such."""
        ...

    def write_report(
        self, request: PlanRequest, folder: Path, *, keep: int, progress: Progress | None = None
    ) -> Reported:
        """Make a plan and write its report to a new dated folder in `folder`, of which the newest `keep` stay.

        InvalidInput or OutOfSpace when the folder cannot be written. The plan is stored as every plan.
        """
        ...


class ModelService(Protocol):
    """The registered models: at most one active and one in shadow, the queueing prior ("prior") where none is."""

    def listing(self) -> tuple[ModelCard, ...]:
        """Every registered model, newest first, and last the queueing prior."""
        ...

    def get(self, version: str) -> ModelCard:
        """One registered model; NotFound when there is none such."""
        ...

    def history(self, version: str | None = None) -> tuple[Activation, ...]:
        """Every change of the active model, oldest first; with a version those to and from it."""
        ...

    def register(self, artifact: Path) -> ModelCard:
        """Check an artifact, copy it to the model folder if it lies elsewhere and list it as a candidate.

        The gate judges it. One that is listed already keeps its status. BrokenArtifact when it cannot be read.
        """
        ...

    def judge(self, version: str) -> ModelCard:
        """Put a model before the gate again, against the active one; its card has the new verdict."""
        ...

    def activate(self, version: str, *, force: bool = False) -> ModelCard:
        """Let a registered model answer and retire the former one; "prior" lets the queueing prior answer alone.

        No change and BrokenArtifact when its artifact cannot be read, RefusedByGate when it fails the gate and `force`
        is not set, Conflict when another one was activated meanwhile.
        """
        ...

    def roll_back(self, of: str | None = None) -> ModelCard:
        """Let the model answer that did before `of`, by default before the active one.

        Conflict when there was none or `of` is not active, BrokenArtifact when it is gone.
        """
        ...

    def shadow(self, version: str) -> ModelCard:
        """Let a model be scored beside the active one; "prior" ends that. Conflict when it is the active one."""
        ...


class CloudService(Protocol):
    """The cloud as predictions see it now, and the state of the service itself."""

    def clock(self) -> datetime:
        """What time it is for the service."""
        ...

    def inventory(self) -> Inventory:
        """The whole inventory as it is now, without the answers that are pending."""
        ...

    def now(self) -> CloudNow:
        """Every host with what is predicted of everybody on it, pending answers included, and its load."""
        ...

    def host(self, host_id: str) -> HostDetail:
        """One host more closely: what happens to each resident, and who slows whom by how much.

        NotFound when there is none such.
        """
        ...

    def alarms(self) -> tuple[Contradiction, ...]:
        """Who gets less of the CPU time that it wants than was predicted, by host and instance: alarms that stand."""
        ...

    def ready(self) -> Mapping[str, Any]:
        """What answers now, as database, generation, model, degraded, snapshot_age_s, hosts."""
        ...

    def vitals(self) -> Vitals:
        """What monitoring wants to know of the state of the service."""
        ...

    def remembered(self) -> tuple[int, int]:
        """Predictions found and missed among the remembered ones of the active model; asks no database."""
        ...


class AccessService(Protocol):
    """Who may ask, and who changed or was told what."""

    @property
    def tokens(self) -> Tokens:
        """The tokens of programs."""
        ...

    @property
    def sessions(self) -> Sessions:
        """The sessions of browsers."""
        ...

    @property
    def keystone(self) -> Keystone | None:
        """OpenStack's identity service, where `keystone_url` is set."""
        ...

    @property
    def idempotency(self) -> Idempotency:
        """What callers' idempotency keys were used for."""
        ...

    @property
    def guarded(self) -> bool:
        """Whether callers without a valid token are refused; call `tokens.refresh` first."""
        ...

    def audit(
        self, *, actor: str | None = None, named: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[AuditEntry]:
        """Entries of the audit log, newest first; of one actor, about one object."""
        ...

    def events(self, after: str | None) -> tuple[tuple[ServiceEvent, ...], str]:
        """Up to 500 events after a mark or an event's id, oldest first, and the mark to go on from; None = from now on.

        InvalidInput for what is neither. An event comes two to three seconds late, so that none comes out of turn.
        """
        ...
