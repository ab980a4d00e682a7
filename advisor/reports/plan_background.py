"""What stands behind a plan and not in it: pressure on every host, who hurts whom, the model's card; computed anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from advisor.domain import Effect, Host, Instance, Inventory, IsolationSettings, Plan
from advisor.explanation.attribution import Harm, who_hurts_whom
from advisor.snapshot import ClusterSnapshot
from advisor.snapshot.pressure import pressure
from models.prediction import Predictor

Pressures = Mapping[str, Mapping[str, float | None]]
Effects = Mapping[str, Sequence[Effect]]


@dataclass(frozen=True, slots=True)
class Background:
    """Pressure by host and resource before and after a plan, who hurts whom when it is carried out (`harm`), and the
    `card` of the model that answered; what is empty was not computed, and `notes` say why."""

    before: Pressures = field(default_factory=dict)
    after: Pressures = field(default_factory=dict)
    harm: tuple[Harm, ...] = ()
    card: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def of_plan(
    inventory: Inventory, plan: Plan, predictor: Predictor | None, card: Mapping[str, Any] | None = None
) -> Background:
    """The background of a plan on the cloud that it was made for.

    Who hurts whom is told by the model that made the plan: with another one, or None, it is left out.
    """
    notes: list[str] = []
    now, then = (_cloud(inventory, plan, afterwards=afterwards) for afterwards in (False, True))
    harm: tuple[Harm, ...] = ()
    if predictor is None or predictor.version != plan.model_version:
        notes.append("Who hurts whom is left out: the model that made this plan is not the one that answers now.")
    elif plan.request.what_if is not None and plan.request.what_if.pinning == "own":
        notes.append("Who hurts whom is left out: which pCPUs each would have of its own is not kept in the plan.")
    else:
        harm = who_hurts_whom(_snapshot(then, plan.created_at), predictor, worst_first(plan.after))
    lost = {one.instance for there in plan.after.values() for one in there} - {one.id for one in then.instances}
    if lost:
        notes.append(
            f"Of {_count(len(lost))} only the name is known; pressure and harm after the plan do not count "
            f"{'it' if len(lost) == 1 else 'them'}."
        )
    return Background(
        before=pressure(_snapshot(now, plan.created_at)),
        after=pressure(_snapshot(then, plan.created_at)),
        harm=harm,
        card=card or {},
        notes=tuple(notes),
    )


def worst_first(effects: Effects) -> list[str]:
    """Hosts by the lowest expected T/B on them, those alike by name; without the empty ones."""
    worst = {host: min(one.throughput_ratio.expected for one in there) for host, there in effects.items() if there}
    return sorted(worst, key=lambda host: (worst[host], host))


def _snapshot(inventory: Inventory, now: datetime) -> ClusterSnapshot:
    seen = dict.fromkeys((host.id for host in inventory.hosts), now)
    return ClusterSnapshot.build(inventory, seen=seen, pending=(), taken_at=now)


def _cloud(inventory: Inventory, plan: Plan, *, afterwards: bool) -> Inventory:
    """The cloud with everybody where the plan has them before it or afterwards, then under what it sets."""
    effects, settings = (plan.after, _settings(plan)) if afterwards else (plan.before, {})
    hosts = {host.id: host for host in inventory.hosts}
    what_if = plan.request.what_if
    if what_if is not None:  # a host that is imagined under a known id stands in for it only afterwards
        imagined = {host.id: host for host in what_if.hosts}
        hosts = hosts | imagined if afterwards else imagined | hosts
    there: list[Host] = [hosts[name] for name in sorted(effects) if name in hosts]
    known = {one.id: one for one in (*plan.request.instances, *inventory.instances)}
    unpinned = afterwards and what_if is not None and what_if.pinning == "unpinned"
    placed = []
    for host in there:
        for effect in effects[host.id]:
            one = known.get(effect.instance) or known.get(effect.instance.rpartition(".more-")[0])  # one more of a mix
            if one is not None:
                new = settings.get(effect.instance, (None, None))
                placed.append(_set(replace(one, id=effect.instance), new, host, unpinned=unpinned))
    return replace(inventory, hosts=tuple(there), instances=tuple(placed))


def _set(one: Instance, new: tuple[IsolationSettings | None, int | None], host: Host, *, unpinned: bool) -> Instance:
    settings, vcpus = new
    settings = settings or (one.settings if one.host == host.id else replace(one.settings, pinning=None))
    if unpinned or (settings.pinning and max(settings.pinning.union, default=0) >= host.pcpus):
        settings = replace(settings, pinning=None)
    return replace(one, host=host.id, settings=settings, vcpus=vcpus or one.vcpus)


def _settings(plan: Plan) -> Mapping[str, tuple[IsolationSettings | None, int | None]]:
    """What everybody runs under after the last step that says something of it."""
    found: dict[str, tuple[IsolationSettings | None, int | None]] = {}
    for step in plan.steps:
        changes = {**(step.candidate.changes if step.candidate else {}), **step.changes}
        for name, settings in changes.items():
            found[name] = (settings, found.get(name, (None, None))[1])
        own = step.settings or (step.candidate.isolation if step.candidate else None)
        former = found.get(step.instance, (None, None))
        found[step.instance] = (own or former[0], step.vcpus or former[1])
    return found


def _count(number: int) -> str:
    return f"{number:,} instance{'' if number == 1 else 's'}"
