"""Background of a plan, computed on demand: pressure on every host, interference, and the model's card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from advisor.domain import CloudScores, Effect, Host, Instance, Inventory, IsolationSettings, Plan, ScorePoint
from advisor.explanation.interference_attribution import AttributedLoss, attribute_interference
from advisor.planning.cpu_demand import demand_scaled
from advisor.planning.planned_demand import as_planned
from advisor.reports.number_format import count
from advisor.reports.plan_view import unchanged
from advisor.snapshot import ClusterSnapshot
from advisor.snapshot.pressure import pressure
from models.prediction import Predictor

Pressures = Mapping[str, Mapping[str, float | None]]
Effects = Mapping[str, Sequence[Effect]]


@dataclass(frozen=True, slots=True)
class Background:
    """Background figures of a plan.

    They are pressure by host and resource and interference (`harm_before`, `harm_after`), each before and after it, and
    the `card` of the model that answered; empty parts were not computed, and `notes` say why. `scores` are those of VMs
    as they stand, with what is kept of the cloud's.
    """

    before: Pressures = field(default_factory=dict)
    after: Pressures = field(default_factory=dict)
    harm_before: tuple[AttributedLoss, ...] = ()
    harm_after: tuple[AttributedLoss, ...] = ()
    card: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    scores: CloudScores | None = None
    score_history: tuple[ScorePoint, ...] = ()


def of_plan(
    inventory: Inventory, plan: Plan, predictor: Predictor | None, card: Mapping[str, Any] | None = None
) -> Background:
    """The background of a plan on the cloud that it was made for, with the demand that the plan counts.

    Interference is computed only by the model that made the plan.
    """
    notes: list[str] = []
    now, then = (_cloud(inventory, plan, afterwards=afterwards) for afterwards in (False, True))
    harm_before: tuple[AttributedLoss, ...] = ()
    harm_after: tuple[AttributedLoss, ...] = ()
    if predictor is None or predictor.version != plan.model_version:
        notes.append("Antagonists are left out: the model that made this plan is not the active one.")
    else:
        harm_before = attribute_interference(_snapshot(now, plan), predictor, worst_first(plan.before))
        if unchanged(plan):
            harm_after = harm_before
        elif plan.request.what_if is not None and plan.request.what_if.pinning == "own":
            notes.append(
                "Antagonists in the imagined cloud are left out: the plan does not keep the pCPUs that it "
                "gives to each instance."
            )
        else:
            harm_after = attribute_interference(_snapshot(then, plan), predictor, worst_first(plan.after))
    lost = {effect.instance for effects in plan.after.values() for effect in effects} - {
        instance.id for instance in then.instances
    }
    if lost:
        notes.append(
            f"Of {count(len(lost), 'instance')} only the name is known; pressure and harm after the plan do not count "
            f"{'it' if len(lost) == 1 else 'them'}."
        )
    return Background(
        before=pressure(_snapshot(now, plan)),
        after=pressure(_snapshot(then, plan)),
        harm_before=harm_before,
        harm_after=harm_after,
        card=card or {},
        notes=tuple(notes),
    )


def worst_first(effects: Effects) -> list[str]:
    """Used hosts by the lowest expected T/B on them, then by name."""
    worst = {
        host: min(effect.throughput_ratio.expected for effect in host_effects)
        for host, host_effects in effects.items()
        if host_effects
    }
    return sorted(worst, key=lambda host: (worst[host], host))


def _snapshot(inventory: Inventory, plan: Plan) -> ClusterSnapshot:
    seen = dict.fromkeys((host.id for host in inventory.hosts), plan.created_at)
    there = ClusterSnapshot.build(inventory, seen=seen, pending=(), taken_at=plan.created_at)
    return as_planned(there, plan.request)[0]


def _cloud(inventory: Inventory, plan: Plan, *, afterwards: bool) -> Inventory:
    """The cloud with every instance where the plan has them before or after it, with the settings of that time."""
    effects, settings = (plan.after, _settings(plan)) if afterwards else (plan.before, {})
    hosts = {host.id: host for host in inventory.hosts}
    what_if = plan.request.what_if
    if what_if is not None:  # an imagined host with a known id replaces it only afterwards
        imagined = {host.id: host for host in what_if.hosts}
        hosts = hosts | imagined if afterwards else imagined | hosts
    there: list[Host] = [hosts[name] for name in sorted(effects) if name in hosts]
    known = {instance.id: instance for instance in (*plan.request.instances, *inventory.instances)}
    unpinned = afterwards and what_if is not None and what_if.pinning == "unpinned"
    placed = []
    for host in there:
        for effect in effects[host.id]:
            # A further copy of a mix is known by the instance that it copies.
            instance = known.get(effect.instance) or known.get(effect.instance.rpartition(".more-")[0])
            if instance is not None:
                new = settings.get(effect.instance, (None, None))
                placed.append(_set(replace(instance, id=effect.instance), new, host, unpinned=unpinned))
    return replace(inventory, hosts=tuple(there), instances=tuple(placed))


def _set(
    instance: Instance, new: tuple[IsolationSettings | None, int | None], host: Host, *, unpinned: bool
) -> Instance:
    settings, vcpus = new
    settings = settings or (instance.settings if instance.host == host.id else replace(instance.settings, pinning=None))
    if unpinned or (settings.pinning and host.lacks(settings.pinning.named)):
        settings = replace(settings, pinning=None)
    vcpus = vcpus or instance.vcpus
    demand = demand_scaled(instance, 1.0, vcpus)
    return replace(instance, host=host.id, settings=settings, vcpus=vcpus, demand=demand)


def _settings(plan: Plan) -> Mapping[str, tuple[IsolationSettings | None, int | None]]:
    """The settings of each instance after the last step that changes them."""
    settings_by_id: dict[str, tuple[IsolationSettings | None, int | None]] = {}
    for step in plan.steps:
        for name, settings in step.changes.items():
            settings_by_id[name] = (settings, settings_by_id.get(name, (None, None))[1])
        former = settings_by_id.get(step.instance, (None, None))
        settings_by_id[step.instance] = (step.settings or former[0], step.vcpus or former[1])
    return settings_by_id
