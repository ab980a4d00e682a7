"""Moves of the search: layouts that differ from one in the pCPUs, the weight or a limit of one instance or a few."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from advisor.tuning.layouts import Layout, Oracle, Valued, alone_on_one
from models.arrays import Bools, Floats
from models.physics.demands import UNSHAPED_SHARE, capacity
from profiler.host_kinds import HOST_KINDS, TRAITS
from profiler.observed import DEFAULT_WEIGHT, MAX_WEIGHT, NET_MODES

VICTIMS = 4  # most affected instances that moves start from
NEIGHBOURS = 6  # instances moved that press most on the most affected one
ROUND = 8  # further instances tried in each round, in turn
FLIPS = 16  # pCPUs of a host up to which each is added and taken away one by one
FEW_PINNED = 0.005  # a loss below this needs no move
FACTORS = (2.0, 4.0, 8.0)
RAISED = (1.25, 1.5, 2.0)  # times its cap, before it is lifted
PARTS = (0.9, 0.75, 0.5, 0.25)  # of what an antagonist uses, to which it is held back
MARGIN = 1.1  # HTB holds a rate within 10 % (finding L7)
MOST_NODES = 8


@dataclass(frozen=True, slots=True)
class Levers:
    """What may be changed on a host: `pins`, `weights`, `caps`, `networks` and `disks` of instances, (N,) each, and the
    pCPUs and the weight of the driver domain. `lifts` (N,) are caps that may be raised or lifted."""

    pins: Bools
    weights: Bools
    caps: Bools
    networks: Bools
    disks: Bools
    lifts: Bools
    driver: bool = False
    driver_weight: bool = False

    @property
    def any(self) -> bool:
        """Whether anything may be changed."""
        each = (self.pins, self.weights, self.caps, self.networks, self.disks, self.lifts)
        return self.driver or self.driver_weight or any(one.any() for one in each)


@dataclass(frozen=True, slots=True)
class Moves:
    """The moves on one host; arrays of P pCPUs and N slots."""

    oracle: Oracle
    levers: Levers

    @property
    def shared(self) -> Bools:
        """Where unpinned instances run, (P,)."""
        return np.asarray(self.oracle.scene.shared[0])

    @property
    def vcpus(self) -> Floats:
        return np.asarray(self.oracle.scene.vcpus[0])

    def starts(self, layout: Layout) -> Iterator[Layout]:
        """Whole layouts to start from: the present one, and those that rules give."""
        yield layout
        anywhere = self._everywhere(layout, self.shared)
        yield anywhere
        if self.levers.lifts.any():
            free = self.uncapped(layout)
            yield free
            yield self._everywhere(free, self.shared)
        tight = self.levers.pins & (layout.affinity.sum(axis=1) < np.minimum(self.vcpus, self.shared.sum()))
        if tight.any():
            yield replace(layout, affinity=np.where(tight[:, None], self.shared, layout.affinity))
        if self.levers.driver:
            for base in (layout, anywhere):
                for driver in self._drivers(base):
                    apart = replace(base, driver=driver)
                    yield apart
                    rest = self.shared & ~driver
                    if rest.any():
                        yield self._everywhere(apart, rest)
                        yield self._spread(apart, rest)
        yield self._spread(anywhere, self.shared & ~self._own_driver(layout))
        yield self._by_nodes(anywhere)

    def uncapped(self, layout: Layout) -> Layout:
        """Without caps, where these may be lifted: as many CPUs as vCPUs."""
        return replace(layout, cap=np.where(self.levers.lifts, np.maximum(layout.cap, self.vcpus), layout.cap))

    def around(self, layout: Layout, valued: Valued, turn: int) -> Iterator[Layout]:
        """Layouts that differ from this one in a few settings; `valued` is its value, `turn` counts the rounds."""
        lost = 1 - valued.kept[0]
        order = np.argsort(-np.round(lost, 9), kind="stable")
        victims = [int(at) for at in order[:VICTIMS] if lost[at] > FEW_PINNED]
        presses = self._presses(layout, victims[0]) if victims else np.zeros(len(lost))
        nearest = np.argsort(-np.round(presses, 9), kind="stable")[:NEIGHBOURS]
        count = len(lost)
        others = [(turn * ROUND + step) % count for step in range(min(ROUND, count))] if count else []
        moved = list(dict.fromkeys([*victims, *(int(at) for at in nearest), *others]))
        load = self.load(layout)
        for slot in moved:
            if self.levers.pins[slot]:
                for cpus in self._places(layout, slot, load):
                    if cpus.any() and (cpus != layout.affinity[slot]).any():
                        yield layout.with_cpus(slot, cpus)
        yield from self._together(layout, victims, moved)
        if self.levers.driver:
            for driver in self._drivers(layout):
                if (driver != layout.driver).any():
                    yield replace(layout, driver=driver)
                    yield self._off(replace(layout, driver=driver), driver)
        yield from self._limits(layout, victims, [int(at) for at in nearest])

    def load(self, layout: Layout, without: int | None = None) -> Floats:
        """CPU demand on each pCPU where each consumer spreads evenly over its own, (P,) CPUs."""
        cpu = np.minimum(self.oracle.want.cpu[0], layout.cap)
        if without is not None:
            cpu = cpu.copy()
            cpu[without] = 0.0
        size = np.maximum(layout.affinity.sum(axis=1), 1)
        driver = self.oracle.want.driver[0].sum() / max(layout.driver.sum(), 1)
        return np.asarray((layout.affinity * (cpu / size)[:, None]).sum(axis=0) + layout.driver * driver)

    def _places(self, layout: Layout, slot: int, load: Floats) -> Iterator[Bools]:
        """pCPUs for one instance beside the others as they are."""
        now, vcpus, shared = layout.affinity[slot], int(self.vcpus[slot]), self.shared
        cpu = float(self.oracle.want.cpu[0, slot])
        beside = self.load(layout, without=slot)
        own_driver = self._own_driver(layout)
        yield shared
        if own_driver.any():
            yield shared & ~own_driver
        allowed = shared & ~own_driver if (shared & ~own_driver).any() else shared
        core_load = self._per_core(beside)
        for count in sorted({1, vcpus, min(2 * vcpus, int(shared.sum())), max(int(np.ceil(cpu)), 1)}):
            yield self._quietest(allowed, (beside, core_load), count)
            yield self._quietest(allowed, (core_load, beside), count)
        node = self.oracle.scene.node[0]
        numbers = np.unique(node[shared])
        if len(numbers) > 1:
            by_load = sorted(numbers.tolist(), key=lambda one: (round(float(beside[node == one].mean()), 9), one))
            for one in by_load[:MOST_NODES]:
                yield allowed & (node == one)
        victims = shared & ~now
        if victims.any():
            yield victims
        places = np.flatnonzero(shared)
        if len(places) <= FLIPS:
            for cpu_at in places:
                flipped = now.copy()
                flipped[cpu_at] = ~flipped[cpu_at]
                yield flipped & shared
                yield shared & (np.arange(len(shared)) == cpu_at)
            for gone in np.flatnonzero(now & shared):
                for come in np.flatnonzero(shared & ~now):
                    moved = now & shared
                    moved[gone], moved[come] = False, True
                    yield moved
        else:
            more, less = np.flatnonzero(shared & ~now), np.flatnonzero(now & shared)
            if len(more):
                grown = now & shared
                grown[more[np.argsort(load[more], kind="stable")[: max(vcpus // 2, 1)]]] = True
                yield grown
            if len(less) > 1:
                fewer = now & shared
                fewer[less[np.argsort(-load[less], kind="stable")[: max(len(less) // 4, 1)]]] = False
                yield fewer

    def _together(self, layout: Layout, victims: list[int], moved: list[int]) -> Iterator[Layout]:
        """Several at once: all with the same pins freed, two that change places, all others off a victim's pCPUs."""
        pins = self.levers.pins
        for victim in victims[:2]:
            same = pins & (layout.affinity == layout.affinity[victim]).all(axis=1)
            if same.sum() > 1:
                yield replace(layout, affinity=np.where(same[:, None], self.shared, layout.affinity))
            meets = pins & (layout.affinity & layout.affinity[victim]).any(axis=1)
            pinned = meets & (layout.affinity != self.shared).any(axis=1)
            if pinned.any():
                yield replace(layout, affinity=np.where(pinned[:, None], self.shared, layout.affinity))
            for off in (layout.affinity[victim], *self._own(layout, victim)):
                settled = layout.with_cpus(victim, off) if pins[victim] else layout
                if (self.shared & ~off).any():
                    yield self._off(settled, off, but=victim)
            for other in moved:
                if other != victim and pins[other] and pins[victim]:
                    swapped = layout.affinity.copy()
                    swapped[[victim, other]] = swapped[[other, victim]]
                    yield replace(layout, affinity=swapped)

    def _own(self, layout: Layout, victim: int) -> Iterator[Bools]:
        """pCPUs that an instance might have to itself."""
        beside = self.load(layout, without=victim)
        allowed = self.shared & ~self._own_driver(layout)
        if self.levers.pins[victim]:
            count = max(int(np.ceil(self.oracle.want.cpu[0, victim])), 1)
            for size in sorted({count, int(self.vcpus[victim])}):
                own = self._quietest(allowed, (self._per_core(beside), beside), size)
                if own.any():
                    yield own

    def _drivers(self, layout: Layout) -> Iterator[Bools]:
        """pCPUs for the driver domain: anywhere, one or two quiet ones, one more or one fewer than it has."""
        shared = self.shared
        yield shared
        guests = self.load(layout) - layout.driver * (self.oracle.want.driver[0].sum() / max(layout.driver.sum(), 1))
        order = np.lexsort((np.arange(len(shared)), np.round(guests, 9), ~shared))[: int(shared.sum())]
        for cpu_at in order if len(order) <= FLIPS else order[:3]:
            one = np.zeros(len(shared), dtype=bool)
            one[cpu_at] = True
            yield one
        for size in (2, 4):
            if len(order) > size:
                few = np.zeros(len(shared), dtype=bool)
                few[order[:size]] = True
                yield few
        own = self._own_driver(layout)
        if own.any():
            more = [cpu_at for cpu_at in order if not own[cpu_at]]
            grown = own.copy()
            grown[more[:1]] = True
            yield grown
            if own.sum() > 1:
                fewer = own.copy()
                fewer[np.flatnonzero(own)[np.argmax(guests[own])]] = False
                yield fewer

    def _limits(self, layout: Layout, victims: list[int], nearest: list[int]) -> Iterator[Layout]:
        """Weights of victims and antagonists, and what holds an antagonist back."""
        levers, want = self.levers, self.oracle.want
        sure = alone_on_one(layout.affinity) if self.oracle.apart_only else np.ones(len(layout.weight), dtype=bool)
        for slot, way in [*((slot, 1) for slot in victims), *((slot, -1) for slot in nearest)]:
            for factor in FACTORS if levers.weights[slot] and sure[slot] else ():
                weight = float(np.clip(round(layout.weight[slot] * factor**way), 1, MAX_WEIGHT))
                yield layout.with_value("weight", slot, weight)
            if levers.weights[slot] and layout.weight[slot] != DEFAULT_WEIGHT:
                yield layout.with_value("weight", slot, float(DEFAULT_WEIGHT))
        for slot in victims:
            for cap in (*(factor * layout.cap[slot] for factor in RAISED), np.inf) if levers.lifts[slot] else ():
                raised = float(min(round(20 * cap) / 20 if np.isfinite(cap) else cap, self.vcpus[slot]))
                if raised > layout.cap[slot]:
                    yield layout.with_value("cap", slot, raised)
        for slot in nearest:
            for part in PARTS if levers.caps[slot] else ():
                cap = round(20 * part * float(want.cpu[0, slot])) / 20  # in steps of 5 % of a pCPU
                if 0 < cap < layout.cap[slot]:
                    yield layout.with_value("cap", slot, cap)
        if levers.driver_weight:
            for factor in (*FACTORS, 1.0):
                yield replace(layout, driver_weight=float(min(DEFAULT_WEIGHT * factor, MAX_WEIGHT)))
        yield from self._classes(layout, victims)
        yield from self._disks(layout)

    def _classes(self, layout: Layout, victims: list[int]) -> Iterator[Layout]:
        """A traffic class for a victim, or a rate for the instances that send most, where the line is busy."""
        levers, want = self.levers, self.oracle.want
        line = float(np.nan_to_num(self.oracle.scene.host_numbers[0, 6]))
        shared = NET_MODES.index("shared")
        senders = np.argsort(-want.net[0], kind="stable")[:NEIGHBOURS]
        if line > 0 and want.net[0].sum() > 0.5 * line:
            classed = layout.net_mode != NET_MODES.index("none")
            promised = np.where(classed, np.minimum(layout.net_rate, line), 0.0).sum()
            for slot in victims:
                room = (1 - UNSHAPED_SHARE) * line - promised
                rate = round(min(MARGIN * float(want.net[0, slot]), room), 1)
                if levers.networks[slot] and not classed[slot] and want.net[0, slot] > 0 and rate >= 0.1:
                    yield _network(layout, slot, shared, rate, line)
            for slot in senders.tolist():
                for part in PARTS if levers.networks[slot] and want.net[0, slot] > 0 else ():
                    rate = round(part * float(want.net[0, slot]), 1)
                    if 0.1 <= rate < layout.net_ceil[slot] and not classed[slot]:
                        yield _network(layout, slot, NET_MODES.index("dedicated"), rate, rate)

    def _disks(self, layout: Layout) -> Iterator[Layout]:
        """A limit for the instances that use the disk most, where it is busy."""
        levers, want = self.levers, self.oracle.want
        disk = float(capacity(self.oracle.scene, "disk_mb_s")[0])
        if disk > 0 and want.disk[0].sum() > 0.5:
            for slot in np.argsort(-want.disk[0], kind="stable")[:NEIGHBOURS].tolist():
                for part in PARTS if levers.disks[slot] and want.disk[0, slot] > 0 else ():
                    limit = max(round(part * float(want.disk[0, slot]) * disk, 1), 0.1)
                    if limit < layout.disk_limit[slot]:
                        yield layout.with_value("disk_limit", slot, limit)

    def _presses(self, layout: Layout, victim: int) -> Floats:
        """CPU demand of each instance on the pCPUs of another one, (N,) CPUs."""
        size = np.maximum(layout.affinity.sum(axis=1), 1)
        core = self._per_core(layout.affinity[victim].astype(np.float64)) > 0
        met = (layout.affinity & core).sum(axis=1)
        presses = self.oracle.want.cpu[0] * met / size
        presses[victim] = 0.0
        return np.asarray(presses)

    def _own_driver(self, layout: Layout) -> Bools:
        """The pCPUs of a driver domain that is confined, none where it may run anywhere; (P,)."""
        confined = (layout.driver != self.shared).any() and self.oracle.want.driver[0].any()
        return layout.driver if confined else np.zeros_like(layout.driver)

    def _everywhere(self, layout: Layout, cpus: Bools) -> Layout:
        return replace(layout, affinity=np.where(self.levers.pins[:, None], cpus, layout.affinity))

    def _off(self, layout: Layout, cpus: Bools, but: int | None = None) -> Layout:
        """Instances kept off these pCPUs, where others are left for them."""
        left = layout.affinity & ~cpus
        left = np.where(np.asarray(left.any(axis=1))[:, None], left, self.shared & ~cpus)
        moved: Bools = np.asarray(self.levers.pins & left.any(axis=1))
        if but is not None:
            moved[but] = False
        return replace(layout, affinity=np.where(moved[:, None], left, layout.affinity))

    def _spread(self, layout: Layout, allowed: Bools) -> Layout:
        """Each instance on as many quiet pCPUs as it has vCPUs, the largest demand first."""
        if not allowed.any():
            return layout
        affinity, cpu = layout.affinity.copy(), self.oracle.want.cpu[0]
        load = np.where(allowed, 0.0, np.inf)
        for slot in np.argsort(-np.round(cpu, 9), kind="stable"):
            if self.levers.pins[slot]:
                count = min(int(self.vcpus[slot]), int(allowed.sum()))
                chosen = self._quietest(allowed, (load, self._per_core(load)), count)
                affinity[slot] = chosen
                load = load + chosen * (cpu[slot] / max(chosen.sum(), 1))
        return replace(layout, affinity=affinity)

    def _by_nodes(self, layout: Layout) -> Layout:
        """Each instance in one NUMA node, the largest demand first into the one with most left of its size."""
        node, shared = self.oracle.scene.node[0], self.shared
        numbers = np.unique(node[shared])
        if len(numbers) < 2:
            return layout
        sizes = {one: float((shared & (node == one)).sum()) for one in numbers.tolist()}
        load = dict.fromkeys(sizes, 0.0)
        affinity, cpu = layout.affinity.copy(), self.oracle.want.cpu[0]
        for slot in np.argsort(-np.round(cpu, 9), kind="stable"):
            fits = [one for one in sizes if sizes[one] >= self.vcpus[slot]]
            if fits and self.levers.pins[slot]:
                best = min(fits, key=lambda one: (round(load[one] / sizes[one], 9), one))
                affinity[slot] = shared & (node == best)
                load[best] += cpu[slot]
        return replace(layout, affinity=affinity)

    def _quietest(self, allowed: Bools, keys: tuple[Floats, ...], count: int) -> Bools:
        """The `count` allowed pCPUs with the least of the first key, then of the others, then by number; (P,)."""
        order = np.lexsort((np.arange(len(allowed)), *(np.round(key, 9) for key in reversed(keys)), ~allowed))
        chosen = np.zeros(len(allowed), dtype=bool)
        chosen[order[:count]] = True
        return np.asarray(chosen & allowed)

    def _per_core(self, values: Floats) -> Floats:
        """The sum over each pCPU's core, for each pCPU."""
        core = self.oracle.core
        total = np.zeros(len(core))
        np.add.at(total, core, values)
        return np.asarray(total[core])


def _network(layout: Layout, slot: int, mode: int, rate: float, ceil: float) -> Layout:
    shaped = layout.with_value("net_mode", slot, mode).with_value("net_rate", slot, rate)
    return shaped.with_value("net_ceil", slot, ceil)


def has_driver_domain(oracle: Oracle) -> bool:
    """Whether instances of this host keep a driver domain busy."""
    kind = HOST_KINDS[int(oracle.scene.kind[0])]
    return TRAITS[kind].has_driver_domain and bool(oracle.want.driver[0].any())
