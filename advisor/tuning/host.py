"""Tunes one host of a snapshot: what may be changed there, the search, and the changes in an order that harms none."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from advisor.domain import Allowance, Effect, IsolationSettings, Objective
from advisor.domain import Pinning as Pins
from advisor.prediction.active import effect
from advisor.render import whole as driver_domain
from advisor.render.names import target_of
from advisor.render.whole import unmet
from advisor.rounding import SLACK
from advisor.scheduling import scoring
from advisor.snapshot import ClusterSnapshot
from advisor.tuning.layouts import PER_SLOT, Layout, Limits, Oracle, felt, trimmed, worth
from advisor.tuning.moves import Levers, Moves, has_driver_domain
from advisor.tuning.search import Found, search
from models.arrays import Bools, Floats
from models.prediction import InterferencePrediction, Predictor
from profiler.host_kinds import HOST_KINDS, TRAITS, HostKind
from profiler.observed import DEFAULT_WEIGHT, NET_MODES, Host, Instance, NetworkSettings

# When instances had better not share cores, and how each kind of host keeps them apart.
#
# The effect is measured by others and not predicted: on a machine of 52 cores and 104 threads the victims of a program
# that uses wide vectors got 11 % more work done with core scheduling while 64 or 128 threads were busy, nothing with up
# to 32, where cores are not shared, and 2 % with 256 (core scheduling v3, LWN and LKML, 2019-06-12).

GAIN = "11 %"  # of the victims on the machine above
CROWDED = 1.25  # busy vCPUs for each thread from which nothing was gained
HOW: Mapping[HostKind, str] = {
    "kvm": 'sched_core = "vcpus" in qemu.conf (libvirt 8.9, Linux 5.14), for VMs that start afterwards',
    "lxc": "coresched new --dest-type pgid of util-linux 2.41 on the first process of each container (Linux 5.14)",
    "xen": "sched-gran=core on Xen's command line (Xen 4.13), after a restart of the host",
}


def core_scheduling_note(host: Host, residents: Sequence[Instance]) -> Iterator[str]:
    """A note where cores of several threads are shared by several instances and CPUs are not short; else nothing."""
    busy = sum(one.demand["cpu"].mean for one in residents if "cpu" in one.demand) + host.own_cpus
    cores = len(set(host.cores))
    if len(residents) < 2 or not cores < busy <= CROWDED * host.pcpus or cores == host.pcpus:
        return
    yield (
        f"{host.id}: {busy:.0f} CPUs are busy on {cores:.0f} cores, so different instances share cores. Core "
        f"scheduling keeps them apart: {HOW[host.kind]}. Victims of a noisy neighbour gained {GAIN} by it on one "
        "machine that others measured; the effect here is not predicted."
    )


DRIVER = -1  # the slot of the driver domain
ALL_ORDERS = 8  # changes of which every order is looked at
EACH_NEXT = 40  # changes of which each one is tried as the next
FELT = 0.01  # of T/B: what an instance may lose on the way, against the worse of both ends


@dataclass(frozen=True, slots=True)
class Passage:
    """The slots that change one after another, DRIVER = the driver domain, with the layout after each change; a slot
    may come twice, freed of its pins first. `dip` is the most T/B that an instance lacks on the way, against the worse
    of before and after, and `slot` is that instance."""

    slots: tuple[int, ...]
    layouts: tuple[Layout, ...]
    dip: float
    slot: int


def passage(moves: Moves, now: Layout, then: Layout) -> Passage:
    """The way from one layout to the other with the smallest dip that was found."""
    way = _Way(moves, now, then)
    slots = way.changed()
    last: list[Step] = []
    if slots[:1] == [DRIVER] and not TRAITS[HOST_KINDS[int(moves.oracle.scene.kind[0])]].driver_apart:
        # Pins of an instance on KVM take its emulator threads along: these go where they belong at the end.
        slots, last = slots[1:], [(DRIVER, False)]
    if len(slots) > EACH_NEXT or moves.oracle.late:
        return way.measured([*_by_rule(way, slots), *last])
    found = way.measured([*_all_orders(way, slots), *last]) if len(slots) <= ALL_ORDERS else None
    if found is None or found.dip > FELT:
        other = way.measured([*_greedy(way, slots), *last])
        found = other if found is None or other.dip < found.dip - FELT / 10 else found
    return found


Step = tuple[int, bool]
"""A slot, and whether it is only freed of its pins."""


@dataclass(slots=True)
class _Way:
    """The way between two layouts; `floor` (N,) is the worse T/B of both ends."""

    moves: Moves
    now: Layout
    then: Layout
    floor: Floats = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.floor = self.moves.oracle.value([self.now, self.then]).kept.min(axis=0)

    def changed(self) -> list[int]:
        """The slots that differ between both ends, the driver domain first."""
        slots = (self.now.affinity != self.then.affinity).any(axis=1)
        for name in PER_SLOT:
            slots |= getattr(self.now, name) != getattr(self.then, name)
        driver = (self.now.driver != self.then.driver).any() or self.now.driver_weight != self.then.driver_weight
        return [*([DRIVER] if driver else []), *np.flatnonzero(slots).tolist()]

    def after(self, layout: Layout, step: Step) -> Layout:
        """The layout after a step."""
        slot, freed = step
        if freed:
            return layout.with_cpus(slot, self.moves.shared)
        if slot == DRIVER:
            return replace(layout, driver=self.then.driver, driver_weight=self.then.driver_weight)
        values = {name: getattr(layout, name).copy() for name in ("affinity", *PER_SLOT)}
        for name, value in values.items():
            value[slot] = getattr(self.then, name)[slot]
        return replace(layout, **values)

    def dips(self, layouts: Sequence[Layout]) -> Floats:
        """The most T/B that an instance lacks in each, (S,)."""
        kept = self.moves.oracle.value(layouts).kept
        return np.asarray(np.maximum(self.floor - kept, 0.0).max(axis=1, initial=0.0))

    def measured(self, steps: Sequence[Step]) -> Passage:
        """The way by these steps."""
        layouts, layout = [], self.now
        for step in steps:
            layout = self.after(layout, step)
            layouts.append(layout)
        if not layouts:
            return Passage((), (), 0.0, 0)
        lacks = np.maximum(self.floor - self.moves.oracle.value(layouts).kept, 0.0)
        worst = int(lacks.max(axis=0).argmax())
        return Passage(tuple(slot for slot, _ in steps), tuple(layouts), float(lacks.max()), worst)


def _all_orders(way: _Way, slots: Sequence[int]) -> list[Step]:
    """The order with the smallest dip of all, over sets of changes; of equals the first."""
    states: dict[frozenset[int], Layout] = {frozenset(): way.now}
    for size in range(1, len(slots) + 1):
        for chosen in combinations(slots, size):
            states[frozenset(chosen)] = way.after(states[frozenset(chosen[:-1])], (chosen[-1], False))
    dips = dict(zip(states, way.dips(list(states.values())).tolist(), strict=True))
    best: dict[frozenset[int], tuple[float, float, list[int]]] = {frozenset(): (0.0, 0.0, [])}
    for done in sorted(states, key=len)[1:]:
        ways = [(best[done - {slot}], slot) for slot in slots if slot in done]
        (deepest, total, before), last = min(
            ways, key=lambda way: (round(way[0][0], 9), round(way[0][1], 9), slots.index(way[1]))
        )
        best[done] = (max(deepest, dips[done]), total + dips[done], [*before, last])
    return [(slot, False) for slot in best[frozenset(slots)][2]]


def _greedy(way: _Way, slots: Sequence[int]) -> list[Step]:
    """The change with the smallest dip next; where each is felt, one may be freed of its pins first."""
    left, layout, steps = list(slots), way.now, list[Step]()
    freed: set[int] = set()
    while left:
        choices: list[Step] = [(slot, False) for slot in left]
        dips = way.dips([way.after(layout, step) for step in choices])
        if dips.min() > FELT:
            pinned = [
                slot
                for slot in left
                if slot != DRIVER and slot not in freed and (layout.affinity[slot] != way.moves.shared).any()
            ]
            more: list[Step] = [(slot, True) for slot in pinned]
            if more:
                dips = np.concatenate([dips, way.dips([way.after(layout, step) for step in more])])
                choices += more
        step = choices[int(np.argmin(np.round(dips, 9)))]
        layout = way.after(layout, step)
        steps.append(step)
        if step[1]:
            freed.add(step[0])
        else:
            left.remove(step[0])
    return steps


def _by_rule(way: _Way, slots: Sequence[int]) -> list[Step]:
    """Those that only give up pCPUs first, then those that get others, then those that are freed."""

    def rank(slot: int) -> tuple[int, int]:
        if slot == DRIVER:
            return 0, slot
        now, then = way.now.affinity[slot], way.then.affinity[slot]
        comes, goes = (then & ~now).any(), (now & ~then).any()
        return (2 if comes and not goes else 1 if comes else 0), slot

    return [(slot, False) for slot in sorted(slots, key=rank)]


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
