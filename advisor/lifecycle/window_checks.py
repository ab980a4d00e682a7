"""Agents' windows compared with predictions: what is predicted for a host before a window, and measured in it.

The share of the CPU time that an instance demands and gets, run / (run + wait), is an outcome that no user need report.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from sqlalchemy import Connection

from advisor.domain import Host, Instance, Scene, WorkloadProfile, codec, evidence_level
from advisor.lifecycle.outcome_checks import OutcomeScorer, judged
from advisor.snapshot import ClusterSnapshot
from advisor.store.predictions import Watch
from advisor.store.rollups import BUCKET_S
from advisor.store.sample_store import STORED, SampleStore
from advisor.telemetry import demands
from models.data.cloud_classes import completed
from models.data.window_dataset import SharedWindow
from models.evaluation.prediction_checks import CheckedPrediction, Question
from models.physics.peak_demand import p95
from profiler.demand import RESOURCES, Demand, Resource

HOSTS_AT_ONCE = 20  # of which a window is watched
SETTLED_S = 180.0  # after a window all samples of it should be stored
GIVEN_UP_S = 3600.0  # after a window whose samples never came
LEAST_DEMAND = 0.01  # CPUs: of smaller demands, the share says how one burst met another
HELD_BY_ITS_CAP = 0.01  # of the time wanted: beyond, the cap and not others decided what it got
_COMPLETE = 0.8  # of the most samples: an instance with fewer came or went in the window
_FEWEST = 3  # samples of a window
_BANDS = ("instance", "expected", "lower", "upper", "outside")  # of a row that was predicted before


@dataclass(frozen=True, slots=True)
class MeasuredWindow:
    """One host's window: what each instance wanted, with the share of the CPU time that it wanted and got where that
    says something."""

    demanded: Mapping[str, Mapping[Resource, float]]
    shares: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class WindowRows:
    """Predictions beside what was measured, of one window: one question, and the level of each instance."""

    question: Question
    ends_s: float
    levels: Mapping[str, str]
    rows: tuple[CheckedPrediction, ...]


def next_window(now: datetime) -> float:
    """When the first window ends that has not begun."""
    return math.ceil(now.timestamp() / BUCKET_S) * BUCKET_S + BUCKET_S


def worth_watching(
    snapshot: ClusterSnapshot, ends_s: float, fresh_s: float, doubted: Collection[str] = ()
) -> list[int]:
    """Positions of hosts that an agent measures: half of them those with the most demand for their size, half drawn.

    Those of `doubted`, which contradicted of late, come first and beside the others, as many as these at most. Every
    process chooses the same ones.
    """
    silent = snapshot.is_silent(fresh_s)
    measured = [at for at, there in enumerate(snapshot.residents) if not silent[at] and _is_measured(there)]
    if len(measured) <= HOSTS_AT_ONCE:
        return measured
    again = [at for at in measured if snapshot.hosts[at].id in doubted]
    again = sorted(again, key=lambda at: _digest(snapshot.hosts[at].id, ends_s))[:HOSTS_AT_ONCE]
    measured = [at for at in measured if at not in set(again)]
    load = p95(snapshot.demand_sums[measured, 0]) / snapshot.scenes.used_cpus[measured]
    busiest = [measured[at] for at in np.argsort(-load, kind="stable")[: HOSTS_AT_ONCE // 2].tolist()]
    others = sorted(set(measured) - set(busiest), key=lambda at: _digest(snapshot.hosts[at].id, ends_s))
    return again + busiest + others[: HOSTS_AT_ONCE - len(busiest)]


def platform_of(host: Host) -> str:
    """The hosts whose windows are held together with this one's: those of its platform, else of its kind."""
    return host.platform or host.kind


def predicted_before(
    snapshot: ClusterSnapshot, scene: Scene, judges: Sequence[OutcomeScorer], ends_s: float, factor: float = 1.0
) -> Watch:
    """What each model predicts for a host of the snapshot, with the demand that is expected of all in `scene` now.

    `factor` is by how much the active model's intervals must be widened there by what was seen until now.
    """
    levels = {instance.id: evidence_level(instance, snapshot.names.profiled) for instance in scene.instances}
    uncontended = dict.fromkeys(levels, 1.0)
    rows = [row for judge in judges for row in rows_of(judge, scene, snapshot.workloads, uncontended, ends_s)]
    by_version: dict[str, dict[str, Any]] = {}
    for row in rows:
        by_model = by_version.setdefault(row.version, {"role": row.role, "rows": []})
        by_model["rows"].append([getattr(row, name) for name in _BANDS])
    demanded = {
        instance.id: [known.mean, known.spread] for instance in scene.instances if (known := instance.demand.get("cpu"))
    }
    predicted = {
        "levels": levels,
        "platform": platform_of(scene.host),
        "said": by_version,
        "demanded": demanded,
        "factor": factor,
    }
    return Watch(scene.host.id, ends_s, fingerprint(scene), predicted)


def scene_at(snapshot: ClusterSnapshot, at: int) -> Scene:
    """A host of the snapshot with its instances by the inventory; pending answers have not arrived."""
    present = [instance for instance in snapshot.residents[at] if instance.id in snapshot.names.placed]
    return Scene(snapshot.hosts[at], tuple(sorted(present, key=lambda instance: instance.id)))


def unadjusted(snapshot: ClusterSnapshot, scene: Scene, inventory: Mapping[str, Instance]) -> Scene:
    """The scene with the demand that would be expected if nothing had contradicted, by the instances in the
    inventory."""
    names = snapshot.names
    instances = (inventory.get(instance.id, instance) for instance in scene.instances)
    return replace(scene, instances=tuple(completed(instance, names.classes, names.profiled) for instance in instances))


def fingerprint(scene: Scene) -> str:
    """A digest of the instances there with their settings, whatever is known of their demand."""
    return _digest(scene.host, [replace(instance, demand={}) for instance in scene.instances])


def measured(
    connection: Connection, watch: Watch, scene: Scene, samples: SampleStore = STORED
) -> MeasuredWindow | None:
    """What was measured of the scene's instances in a window; None where nothing was measured.

    Empty where it says nothing, for an instance came, left or was not measured. One that was measured before on this
    host, and has not one sample now, stood still.
    """
    window = samples.host_window(connection, watch.host, demands.METRICS, watch.ends_s - BUCKET_S, watch.ends_s)
    counts = window.counts
    most = max(counts.values(), default=0)
    if not most:
        return None
    vcpus = {instance.id: instance.vcpus for instance in scene.instances}
    partly = min(counts.values()) < _COMPLETE * most
    if most < _FEWEST or partly or not (counts.keys() <= vcpus.keys() <= set(window.ever)):
        return MeasuredWindow({}, {})
    return window_of({name: metrics for name, metrics in window.means.items() if name in counts}, vcpus)


def window_of(means: Mapping[str, Mapping[str, float]], vcpus: Mapping[str, int]) -> MeasuredWindow:
    """A window by the means of each instance's metrics; empty where the demand for CPUs of one is not known."""
    demanded = {name: _demanded(metrics, vcpus[name]) for name, metrics in means.items()}
    if any("cpu" not in demand for demand in demanded.values()):
        return MeasuredWindow({}, {})
    shares = {name: _share(metrics) for name, metrics in means.items()}
    return MeasuredWindow(demanded, {name: share for name, share in shares.items() if share is not None})


def held_against(
    watch: Watch,
    scene: Scene,
    window: MeasuredWindow,
    judges: Sequence[OutcomeScorer],
    workloads: Sequence[WorkloadProfile],
) -> tuple[WindowRows, ...]:
    """What was predicted before a window, and what is with the demand that it had, beside what was measured."""
    if not window.shares:
        return ()
    levels: Mapping[str, str] = watch.predicted["levels"]
    then = replace(scene, instances=shared_window(watch, scene, window).instances)
    during = [row for judge in judges for row in rows_of(judge, then, workloads, window.shares, watch.ends_s)]
    return (
        WindowRows("window", watch.ends_s, levels, tuple(during)),
        WindowRows("forecast", watch.ends_s, levels, tuple(_as_predicted(watch, window.shares))),
    )


def shared_window(watch: Watch, scene: Scene, window: MeasuredWindow) -> SharedWindow:
    """What training reads: which instances ran in a window, each with the demand that it had then."""
    active = tuple(
        with_demand(instance, window.demanded[instance.id])
        for instance in scene.instances
        if instance.id in window.demanded
    )
    return SharedWindow(scene.host, active, window.shares, watch.ends_s)


def _as_predicted(watch: Watch, shares: Mapping[str, float]) -> Iterable[CheckedPrediction]:
    for version, by_model in watch.predicted["said"].items():
        for instance, expected, lower, upper, outside in by_model["rows"]:
            if instance in shares:
                yield CheckedPrediction(
                    source=_source(watch.host, watch.ends_s),
                    time=datetime.fromtimestamp(watch.ends_s, UTC),
                    version=version,
                    role=by_model["role"],
                    target="throughput",
                    platform=watch.predicted["platform"],
                    workload="",
                    instance=instance,
                    expected=expected,
                    lower=lower,
                    upper=upper,
                    outside=outside,
                    observed=shares[instance],
                )


def rows_of(
    judge: OutcomeScorer,
    scene: Scene,
    workloads: Sequence[WorkloadProfile],
    shares: Mapping[str, float],
    ends_s: float,
) -> tuple[CheckedPrediction, ...]:
    """What one model predicts for a scene beside the shares that were measured."""
    source, time = _source(scene.host.id, ends_s), datetime.fromtimestamp(ends_s, UTC)
    by_target = {"throughput": shares}
    return judged(judge, scene, workloads, by_target, source, time, platform=platform_of(scene.host))


def _source(host: str, ends_s: float) -> str:
    return f"w-{_digest(host, ends_s)[:40]}"


def _share(metrics: Mapping[str, float]) -> float | None:
    """Run / (run + wait), without what its own cap took; None where that is not measured or says nothing."""
    if "waiting" not in metrics:
        return None
    run, wait, throttled = metrics["cpu"], demands.held_back(metrics), metrics.get("throttled", 0.0)
    demanded = run + wait
    if demanded < 100 * LEAST_DEMAND or throttled > HELD_BY_ITS_CAP * (demanded + throttled):
        return None
    return run / demanded


def _demanded(metrics: Mapping[str, float], vcpus: int) -> dict[Resource, float]:
    by_resource = {name: demands.demanded(metrics, name, vcpus) for name in RESOURCES if name in metrics}
    return {name: value for name, value in by_resource.items() if value is not None}


def with_demand(instance: Instance, demanded: Mapping[Resource, float]) -> Instance:
    """The instance as it was in one window: its demand is known, and did not vary between windows."""
    now: dict[Resource, Demand] = {}
    for resource, mean in demanded.items():
        before = instance.demand.get(resource, Demand(mean, resource))
        now[resource] = Demand(
            mean,
            resource,
            common=0.0,
            windows=1.0,  # else it would be as unsure, and vary as much, as what a user said
            open_loop=before.open_loop,
            burst_ms=before.burst_ms,
            origin="measured",
        )
    return replace(instance, demand=now, load=1.0)


def _is_measured(residents: Sequence[Instance]) -> bool:
    demands = (instance.demand.get("cpu") for instance in residents)
    return any(demand is not None and demand.origin == "measured" for demand in demands)


def _digest(*parts: object) -> str:
    return hashlib.sha256(codec.text(parts).encode()).hexdigest()
