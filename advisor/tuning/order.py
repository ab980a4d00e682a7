"""An order of changes that harms none on the way, and when instances had better not share cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from advisor.tuning.layouts import PER_SLOT, Layout
from advisor.tuning.moves import Moves
from models.arrays import Floats
from profiler.host_kinds import HOST_KINDS, TRAITS, HostKind
from profiler.observed import Host, Instance

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
