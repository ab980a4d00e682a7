"""Questions on files: answered without server and database, by the newest artifact at hand or the analytic model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.domain import (
    Candidate,
    InstanceProfile,
    Inventory,
    PlacementRequest,
    Plan,
    PlanRequest,
    ProbePlan,
    ProbeRequest,
    Recommendation,
    Scene,
    SceneEffects,
)
from advisor.inventories.static import load_asked, load_instances, load_inventory, load_scene
from advisor.placement import decision
from advisor.placement.requests import check_request
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor, QuestionContext
from advisor.settings import Settings
from advisor.snapshot import ClusterSnapshot
from models.physics.prior import PriorPredictor

if TYPE_CHECKING:
    from advisor.deadline import Progress
    from advisor.experiments.probe_planning import definitions as lab_workloads
    from advisor.experiments.probe_planning import duration_s, write_campaign
    from advisor.experiments.probe_planning import sentence as probe_sentence
    from advisor.inventories.static import load_what_if
    from advisor.inventories.static_writer import text_of as snapshot_text
    from advisor.inventories.static_writer import write_text as write_snapshot
    from advisor.replay.coordinator import replay_trace
    from advisor.reports import write_profile_picture, write_replay_report, write_worth_report
    from advisor.reports.files import Reported
    from advisor.reports.files import check_target as check_report
    from advisor.reports.parts import text_tables
    from advisor.reports.placement_reading import document as placement_document
    from advisor.reports.placement_reading import worst_neighbour
    from advisor.reports.plan_sentences import document as plan_document
    from advisor.reports.plan_view import Background
    from advisor.reports.shared_sentences import answered_by

__all__ = [
    "answered_by",
    "check_report",
    "duration_s",
    "evaluate",
    "lab_workloads",
    "load_asked",
    "load_instances",
    "load_inventory",
    "load_scene",
    "load_what_if",
    "placement_document",
    "plan",
    "plan_document",
    "predict",
    "probe_plan",
    "probe_sentence",
    "profile_samples",
    "profile_series",
    "replay_trace",
    "snapshot_text",
    "text_tables",
    "train",
    "where",
    "worst_neighbour",
    "write_campaign",
    "write_cloud_report",
    "write_plan_report",
    "write_planned_report",
    "write_profile_picture",
    "write_replay_report",
    "write_snapshot",
    "write_worth_report",
]

# A command waits for the import of what it needs and of nothing else: a report's drawing library alone takes 0.3 s.
_LATER = {
    "check_report": ("advisor.reports.files", "check_target"),
    "duration_s": ("advisor.experiments.probe_planning", "duration_s"),
    "lab_workloads": ("advisor.experiments.probe_planning", "definitions"),
    "load_what_if": ("advisor.inventories.static", "load_what_if"),
    "probe_sentence": ("advisor.experiments.probe_planning", "sentence"),
    "snapshot_text": ("advisor.inventories.static_writer", "text_of"),
    "write_snapshot": ("advisor.inventories.static_writer", "write_text"),
    "ReportDocument": ("advisor.reports.parts", "ReportDocument"),
    "answered_by": ("advisor.reports.shared_sentences", "answered_by"),
    "placement_document": ("advisor.reports.placement_reading", "document"),
    "worst_neighbour": ("advisor.reports.placement_reading", "worst_neighbour"),
    "plan_document": ("advisor.reports.plan_sentences", "document"),
    "replay_trace": ("advisor.replay.coordinator", "replay_trace"),
    "text_tables": ("advisor.reports.parts", "text_tables"),
    "write_campaign": ("advisor.experiments.probe_planning", "write_campaign"),
    "write_profile_picture": ("advisor.reports", "write_profile_picture"),
    "write_replay_report": ("advisor.reports", "write_replay_report"),
    "write_worth_report": ("advisor.reports", "write_worth_report"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for (PEP 562)."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LATER[name]
    return getattr(import_module(module), attribute)


def where(inventory: Inventory, request: PlacementRequest, *, model: Path | None, settings: Settings) -> Recommendation:
    """Rank the hosts of an inventory for one instance; nothing is stored and nothing held."""
    check_request(request)
    now = datetime.now(UTC)
    snapshot = _snapshot(inventory, now)
    return decision.recommend(snapshot, QuestionContext(_choose(model, settings), now, settings.fresh_s), request)


def predict(scene: Scene, *, model: Path | None, settings: Settings) -> SceneEffects:
    """What co-located instances do to each other; every profile comes from the scene itself."""
    return decision.answer_scene(_choose(model, settings), scene, ())


def plan(
    inventory: Inventory,
    request: PlanRequest,
    *,
    model: Path | None,
    settings: Settings,
    progress: Progress | None = None,
) -> Plan:
    """What should become of the whole cloud of an inventory, however long ago its hosts were seen; nothing is stored.

    The model of an imagined cloud is looked for in the model folder.
    """
    from advisor.planning import planner

    now = datetime.now(UTC)
    snapshot = _snapshot(inventory, now)

    def of_version(version: str) -> ActivePredictor:
        prior = PriorPredictor()
        return ActivePredictor(prior if version == prior.version else active.load(settings.model_dir / version))

    chosen = _choose(model, settings)
    return planner.plan(snapshot, chosen, request, now=now, fresh_s=inf, models=of_version, progress=progress)


def probe_plan(
    inventory: Inventory,
    request: ProbeRequest,
    *,
    model: Path | None,
    settings: Settings,
    progress: Progress | None = None,
) -> ProbePlan:
    """Which pairs to measure next, because knowing them would change a decision on this inventory."""
    from advisor.experiments import probe_planning

    probe_planning.check(request)
    now = datetime.now(UTC)
    snapshot = _snapshot(inventory, now)
    return probe_planning.plan(snapshot, _choose(model, settings), request, fresh_s=settings.fresh_s, progress=progress)


def write_plan_report(
    inventory: Inventory, plan: Plan, path: Path, *, model: Path | None = None, settings: Settings | None = None
) -> None:
    """Write a plan as one HTML file, or without that suffix as a folder with its data; InvalidInput or OutOfSpace.

    `model` and `settings` as it was made with: antagonists are predicted by the same model, and left out without them.
    """
    from advisor import reports

    behind = None if settings is None else _background(inventory, plan, _choose(model, settings), model, settings)
    reports.write_plan_report(inventory, plan, path, behind)


def write_cloud_report(
    inventory: Inventory,
    request: PlanRequest,
    folder: Path,
    *,
    keep: int,
    model: Path | None,
    settings: Settings,
    progress: Progress | None = None,
) -> Reported:
    """Write the state of an inventory and what a plan would do to a new dated folder in `folder`, the newest `keep`
    of which stay; InvalidInput or OutOfSpace."""
    from advisor.reports import files

    files.check_folder(folder)
    planned = plan(inventory, request, model=model, settings=settings, progress=progress)
    behind = _background(inventory, planned, _choose(model, settings), model, settings)
    age_s = (planned.created_at - inventory.observed_at).total_seconds() if inventory.observed_at else None
    ages = {} if age_s is None else {host.id: max(age_s, 0.0) for host in inventory.hosts}
    return files.write_dated(inventory, planned, behind, ages, folder, keep=keep)


def write_planned_report(inventory: Inventory, planned: Plan, folder: Path, *, keep: int) -> Reported:
    """The same of a plan that a service made. Antagonists are left out where a learned model answered."""
    from advisor.reports import files
    from advisor.reports.plan_view import of_plan

    prior = PriorPredictor()
    behind = of_plan(inventory, planned, prior if planned.model_version == prior.version else None)
    return files.write_dated(inventory, planned, behind, {}, folder, keep=keep)


def _background(
    inventory: Inventory, planned: Plan, chosen: ActivePredictor, model: Path | None, settings: Settings
) -> Background:
    """What stands behind a plan on files; the card is that of the artifact that made it."""
    from advisor.reports.plan_view import of_plan

    path = model or settings.model_dir / chosen.predictor.version
    if planned.model_version != chosen.predictor.version or not path.is_dir():
        return of_plan(inventory, planned, chosen.predictor)
    from models.learning import artifact

    return of_plan(inventory, planned, chosen.predictor, artifact.read_card(path))


def profile_samples(files: Sequence[Path], instance_id: str) -> InstanceProfile:
    """What an instance does, phase by phase, by files of samples; InvalidInput or NotFound in one sentence."""
    from advisor.telemetry import profiles

    return profiles.profile_samples(profiles.read_samples(files), instance_id)


def profile_series(settings: Settings, instance_id: str, *, since: str) -> InstanceProfile:
    """What an instance does by the store of series that the settings name; SeriesUnavailable where that is silent."""
    from advisor.telemetry import profiles, series_store

    return profiles.profile_seen(
        series_store.read(settings, instance_id, since=since, now=datetime.now(UTC)), instance_id
    )


def train(
    datasets: Sequence[Path], *, settings: Settings, progress: Progress | None = None, cluster: str | None = None
) -> Path:
    """Fit a model on dataset directories; returns the folder of its artifact, a candidate until it is activated."""
    from advisor.lifecycle import training

    return training.train(datasets, settings.model_dir, progress, cluster)


def datasets_to_learn(folder: Path) -> list[Path]:
    """The datasets in this folder that models may learn from; InvalidInput where a dataset.yaml is broken."""
    from advisor.lifecycle import training
    from models.data.dataset import status_of

    with training.speaking(folder):
        found = [card.parent for card in sorted(folder.glob("*/dataset.yaml"))]
        return [path for path in found if status_of(path).learned_by_default]


def evaluate(
    datasets: Sequence[Path],
    *,
    protocols: Sequence[str],
    models: Sequence[str] = (),
    together: bool = False,
    report: Path | None = None,
    progress: Progress | None = None,
) -> Mapping[str, Any]:
    """Errors of the model and of every baseline on each dataset, or on all of them `together`, under each protocol;
    leaves no artifact behind.

    `report` is written as one HTML file, or without that suffix as a folder with its data, whole or not at all. Where
    it cannot be written, InvalidInput says so before anything is computed; OutOfSpace where the disk is full at the
    end.
    """
    from advisor.lifecycle import training

    if report is not None:
        from advisor.reports import files

        files.check_target(report)
    evaluations = training.evaluate(datasets, protocols, models=models, together=together, progress=progress)
    if report is not None:
        from advisor import reports

        reports.write_evaluation_report(evaluations, report)
    return training.evaluations_as_json(evaluations)


def _snapshot(inventory: Inventory, now: datetime) -> ClusterSnapshot:
    seen = dict.fromkeys((host.id for host in inventory.hosts), inventory.observed_at or now)
    return ClusterSnapshot.build(inventory, seen=seen, pending=(), taken_at=now)


def _choose(model: Path | None, settings: Settings) -> ActivePredictor:
    """The named artifact, which must be intact; else the newest intact one that the gate let pass, else the prior."""
    return active.newest(settings.model_dir) if model is None else ActivePredictor(active.load(model))


def most_free(cloud: Inventory, answer: Recommendation) -> Candidate | None:
    """The candidate that Nova's default CPU and RAM weighers would choose; None where there is no candidate."""
    hosts = {host.id: host for host in cloud.hosts}
    there = [hosts[candidate.host] for candidate in answer.candidates]
    free = {
        "free_vcpus": [host.pcpus * host.cpu_overcommit for host in there],
        "free_memory_mb": [host.memory_mb * host.memory_overcommit for host in there],
    }
    for at, host in enumerate(there):
        free["free_vcpus"][at] -= sum(one.vcpus for one in cloud.instances if one.host == host.id)
        free["free_memory_mb"][at] -= sum(one.memory_mb for one in cloud.instances if one.host == host.id)
    from advisor.scheduling import rules  # of the demo alone

    chosen = rules.freest(free["free_vcpus"], free["free_memory_mb"])
    return None if chosen is None else answer.candidates[chosen]
