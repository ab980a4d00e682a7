"""Tunes one host of a snapshot: what may be changed there, the search, and the changes in their order."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import Allowance, Effect, Host, Instance, IsolationSettings, Objective
from advisor.domain import Pinning as Pins
from advisor.prediction.active import effect
from advisor.render import tools as driver_domain
from advisor.render.names import target_of
from advisor.render.whole import unmet
from advisor.rounding import SLACK
from advisor.scheduling import scoring
from advisor.snapshot import ClusterSnapshot
from advisor.tuning.layouts import Layout, Limits, Oracle, felt, trimmed, worth
from advisor.tuning.moves import Levers, Moves, has_driver_domain
from advisor.tuning.order import DRIVER, FELT, Passage, core_scheduling_note, passage
from advisor.tuning.search import Found, search
from models.arrays import Bools
from models.prediction import InterferencePrediction, Predictor
from profiler.observed import DEFAULT_WEIGHT, NET_MODES, NetworkSettings

WORK = 1.5e5  # layouts times slots that one host may take; the clock is a stop besides
SEARCHED, REDUCED = 0.6, 0.8  # of the time after which the search ends, and after which changes are taken as they are
NAMED = 0.01  # change of T/B from which an instance is among the effects of a change
SAMPLES: Mapping[str, IsolationSettings] = {  # of each lever, to see whether the host's tools can say it
    "weights": IsolationSettings(weight=2 * DEFAULT_WEIGHT),
    "caps": IsolationSettings(cap_percent=50.0),
    "networks": IsolationSettings(network=NetworkSettings("dedicated", 10.0, 10.0)),
    "disks": IsolationSettings(disk_limit_mb_s=10.0),
}


@dataclass(frozen=True, slots=True)
class TunedChange:
    """One change: an instance from `former` to `then`, or (both None) the driver domain to other pCPUs and weight.

    `host` is as it is after the change; `effects` are those that the change changes by NAMED or more.
    """

    host: Host
    former: Instance | None
    then: Instance | None
    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class HostTuning:
    """What would suit a host: the changes in order, and how they were found; `notes` say what is in the way."""

    host: Host
    found: Found
    changes: tuple[TunedChange, ...]
    notes: tuple[str, ...]


def tune_host(
    snapshot: ClusterSnapshot,
    position: int,
    predictor: Predictor,
    *,
    objective: Objective = "worst",
    allow: Allowance | None = None,
    until: float = math.inf,
    seed: int = 1,
    work: float = WORK,
) -> HostTuning:
    """The best settings for all instances of the host at `position`, by the analytic model; `predictor` must agree.

    Caps are raised or lifted only where `allow` is lift_cap. `until` is when to stop by the monotonic clock, `work`
    after how much valuing.
    """
    host, residents = snapshot.hosts[position], snapshot.residents[position]
    oracle = oracle_of(snapshot, position, objective, until=until, work=work)
    levers = levers_of(snapshot, position, oracle)
    capped = levers.lifts
    if allow != "lift_cap":
        levers = replace(levers, lifts=np.zeros_like(capped))
    moves = Moves(oracle, levers)
    found = search(moves, seed=seed)
    now = Layout.of(oracle.scene)
    notes = [
        *_kept_pins(residents, levers, now, moves.shared),
        *_kept_caps(residents, moves, capped, found),
        *core_scheduling_note(host, residents),
    ]
    way = passage(moves, now, found.layout)
    if not way.slots:
        return HostTuning(host, found, (), tuple(notes))
    prediction = predictor.predict(oracle.scenes([now, *way.layouts]))
    if not agrees(oracle, prediction):
        notes.append(
            f"{host.id}: the analytic model suggests {len(way.slots)} changes; the active model predicts no gain from "
            "them, so none is advised."
        )
        return HostTuning(host, replace(found, layout=now, value=found.before), (), tuple(notes))
    if way.dip > FELT:
        notes.append(
            f"{host.id}: between two of the changes {residents[way.slot].id} runs at {100 * way.dip:.0f} % of its "
            "uncontended speed less than before and after them; no order without that was found."
        )
    return HostTuning(host, found, _changes(host, residents, now, way, prediction, moves.shared), tuple(notes))


def changes_to(
    snapshot: ClusterSnapshot, position: int, predictor: Predictor, then: Layout
) -> tuple[tuple[TunedChange, ...], InterferencePrediction]:
    """The changes that bring the host at `position` to a layout, in a good order, and what is predicted of it before
    the first of them (scene 0) and after each one."""
    host, residents = snapshot.hosts[position], snapshot.residents[position]
    oracle = oracle_of(snapshot, position, "worst")
    moves = Moves(oracle, levers_of(snapshot, position, oracle, ()))
    now = Layout.of(oracle.scene)
    way = passage(moves, now, then)
    prediction = predictor.predict(oracle.scenes([now, *way.layouts]))
    return _changes(host, residents, now, way, prediction, moves.shared), prediction


def oracle_of(
    snapshot: ClusterSnapshot, position: int, objective: Objective, *, until: float = math.inf, work: float = WORK
) -> Oracle:
    """What values layouts of the host at `position`."""
    count = len(snapshot.residents[position])
    limits = Limits(*(getattr(snapshot, name)[position, :count] for name in ("min_ratio", "max_latency", "max_short")))
    scene = trimmed(snapshot.scenes.take(np.array([position])), snapshot.hosts[position].pcpus)
    begin = time.monotonic()
    searches, reduces = (begin + part * (until - begin) for part in (SEARCHED, REDUCED))
    sensitive = np.array([one.service == "latency" for one in snapshot.residents[position]], dtype=bool)
    return Oracle(scene, limits, sensitive, objective, work, searches, reduces)


def levers_of(
    snapshot: ClusterSnapshot, position: int, oracle: Oracle, kinds: Collection[str] = SAMPLES.keys()
) -> Levers:
    """What may be changed: what the host's tools can say of instances that are there; beside pins and the driver domain
    these `kinds` of settings.

    An instance with dedicated vCPUs or on isolated pCPUs keeps its pCPUs: what those are kept free for is not known.
    """
    host, residents = snapshot.hosts[position], snapshot.residents[position]
    scene = oracle.scene
    there = np.array([resident.id in snapshot.names.placed for resident in residents], dtype=bool)
    inside = ~(scene.affinity[0] & ~scene.shared[0]).any(axis=1)
    free = there & inside & (scene.own[0] == 0)
    first = (host.shared_cpus or tuple(host.cpus))[:1]

    def can(at: int, desired: IsolationSettings) -> bool:
        bare = replace(residents[at], settings=IsolationSettings())  # from which each sample differs
        return not unmet(host, [bare], {bare.id: desired})

    pins = [
        bool(free[at]) and can(at, IsolationSettings(pinning=Pins.all_on(first, residents[at].vcpus)))
        for at in range(len(residents))
    ]
    others = {
        name: np.array(
            [name in kinds and bool(there[at]) and can(at, sample) for at in range(len(residents))], dtype=bool
        )
        for name, sample in SAMPLES.items()
    }
    caps = scene.cap[0]
    lifts = others["caps"] & (caps < scene.vcpus[0])
    driven = has_driver_domain(oracle) and host.pcpus > 1
    movable = driven and not unmet(host, residents, {}, first)
    weighed = list(driver_domain.weigh_driver(host, host.driver_weight + 1, target_of(host, None))) if driven else []
    return Levers(
        np.array(pins, dtype=bool),
        **others,
        lifts=lifts,
        driver=movable,
        driver_weight=bool(weighed) and all(command.argv for command in weighed),
    )


def agrees(oracle: Oracle, prediction: InterferencePrediction) -> bool:
    """Whether a predictor sees a gain between the first scene and the last, and no limit violated that held."""
    kept = prediction.throughput.expected[[0, -1]]
    value = worth(felt(kept, prediction.latency.expected[[0, -1]], oracle.sensitive), oracle.objective)
    gain = value[1] - value[0]
    least = oracle.limits.least
    broken = (kept[1] < least - SLACK) & (kept[0] >= least - SLACK)
    mended = (kept[0] < least - SLACK) & (kept[1] >= least - SLACK)
    return not broken.any() and (bool(gain >= scoring.PIN_GAIN / 2) or bool(mended.any()))


def _kept_pins(residents: Sequence[Instance], levers: Levers, now: Layout, shared: Bools) -> Sequence[str]:
    """Notes on pins that cannot be changed."""
    kept = [
        resident.id
        for slot, resident in enumerate(residents)
        if (now.affinity[slot] != shared).any() and not levers.pins[slot]
    ]
    if not kept:
        return ()
    names = ", ".join(kept[:3]) + (f" and {len(kept) - 3} more" if len(kept) > 3 else "")
    return (f"The pCPUs of {names} stay as they are: they are isolated or dedicated, or no tool here changes them.",)


def _kept_caps(residents: Sequence[Instance], moves: Moves, capped: Bools, found: Found) -> Sequence[str]:
    """A note on caps that could be lifted with a gain, where that is not allowed."""
    if not (capped & ~moves.levers.lifts).any():
        return ()
    free = Moves(moves.oracle, replace(moves.levers, lifts=capped)).uncapped(found.layout)
    valued = moves.oracle.value([found.layout, free])
    if valued.value[1] - valued.value[0] < scoring.PIN_GAIN:
        return ()
    gains = valued.kept[1] - valued.kept[0]
    names = [residents[at].id for at in np.argsort(-np.round(gains, 9), kind="stable") if capped[at]]
    best = names[0]
    at = next(slot for slot, one in enumerate(residents) if one.id == best)
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    was, then = valued.kept[:, at]
    return (
        f"The caps of {best}{more} cost more than they give others: without, {best} would have {then:.2f} of its speed "
        f"alone in place of {was:.2f}. A cap may be what its owner pays for; allow lift_cap to have it changed.",
    )


def _changes(
    host: Host,
    residents: Sequence[Instance],
    now: Layout,
    way: Passage,
    prediction: InterferencePrediction,
    shared: Bools,
) -> tuple[TunedChange, ...]:
    """The way as changes of instances and of the host."""
    count = len(way.slots)
    minding = np.array([one.service == "latency" for one in residents], dtype=bool)
    speed = felt(prediction.throughput.expected, prediction.latency.expected, minding)
    before, after = prediction.take(slice(0, count)), prediction.take(slice(1, count + 1))
    current, former = list(residents), now
    found = []
    for number, (slot, layout) in enumerate(zip(way.slots, way.layouts, strict=True)):
        effects = tuple(
            effect(resident.id, after, number, at, before)
            for at, resident in enumerate(residents)
            if max(
                abs(after.throughput.expected[number, at] - before.throughput.expected[number, at]),
                abs(speed[number + 1, at] - speed[number, at]),
            )
            >= NAMED
        )
        if slot == DRIVER:
            cpus = () if (layout.driver == shared).all() else tuple(
                host.cpus[at] for at in np.flatnonzero(layout.driver).tolist()
            )  # fmt: skip
            host = replace(host, driver_cpus=cpus, driver_weight=round(layout.driver_weight))
            found.append(TunedChange(host, None, None, effects))
        else:
            was = current[slot]
            current[slot] = replace(was, settings=settings_in(host, was, former, layout, slot, shared))
            found.append(TunedChange(host, was, current[slot], effects))
        former = layout
    return tuple(found)


def settings_in(
    host: Host, instance: Instance, former: Layout, then: Layout, slot: int, shared: Bools
) -> IsolationSettings:
    """The settings of an instance in a layout; what does not differ from the former one stays as it is written."""
    desired = instance.settings
    if (then.affinity[slot] != former.affinity[slot]).any():
        cpus = tuple(host.cpus[at] for at in np.flatnonzero(then.affinity[slot]).tolist())
        pins = Pins(tuple((cpu,) for cpu in cpus)) if len(cpus) == instance.vcpus else Pins.all_on(cpus, instance.vcpus)
        desired = replace(desired, pinning=None if (then.affinity[slot] == shared).all() else pins)
    if then.weight[slot] != former.weight[slot]:
        desired = replace(desired, weight=round(float(then.weight[slot])))
    if then.cap[slot] != former.cap[slot]:
        desired = replace(desired, cap_percent=round(100 * float(then.cap[slot]), 6))
    if then.disk_limit[slot] != former.disk_limit[slot]:
        desired = replace(desired, disk_limit_mb_s=float(then.disk_limit[slot]))
    if then.net_rate[slot] != former.net_rate[slot] or then.net_mode[slot] != former.net_mode[slot]:
        mode = NET_MODES[int(then.net_mode[slot])]
        desired = replace(
            desired, network=NetworkSettings(mode, float(then.net_rate[slot]), float(then.net_ceil[slot]))
        )
    return desired
