"""Policies for clouds of measured hosts: every rule that needs no more than is known of them, and oracles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.scheduling.rules import BESIDE, Rule, choose, known_by
from advisor.scheduling.scoring import KEPT, harm
from models.arrays import Floats
from models.data.scene import ProfileTable
from profiler.observed import Pinning
from research.arena.measured_clouds import Offer, SituationChoice, SituationPolicy, gain
from research.arena.measured_hosts import MeasuredWorld, Situation

Key = tuple[float, ...]  # lower is better


@dataclass(frozen=True, slots=True)
class SituationRule:
    """A rule of `advisor.scheduling.rules`; a situation on offer stands for all hosts in it, the first one is taken.

    `uses` by column is what each workload uses of it alone: `load` in per cent of a CPU, others in those units.
    """

    rule: Rule
    world: MeasuredWorld
    uses: Mapping[str, Mapping[str, float]]

    def choose(self, offer: Offer, workload: str, random: np.random.Generator) -> SituationChoice:
        rows = sorted(offer.first, key=lambda one: offer.first[one])
        everywhere = np.ones(len(rows), dtype=bool)
        at = choose(self.rule, everywhere, lambda name: self._column(name, rows, offer, workload, random))
        assert at is not None
        return SituationChoice(rows[at])

    def _column(
        self, name: str, rows: Sequence[Situation], offer: Offer, workload: str, random: np.random.Generator
    ) -> Floats:
        match name:
            case "chance":  # the greatest of as many numbers as there are hosts
                return random.random(len(rows)) ** (1 / np.array([offer.count[one] for one in rows]))
            case "instances":
                return np.array([len(one) for one in rows], dtype=float)
            case "cpus":
                return np.full(len(rows), _room(self.world))
            case "load_after":
                return self._sums("load", rows) + self.uses["load"][workload]
            case "free_vcpus" | "free_memory_mb":
                return -self._sums(name, rows)
            case _:
                return self._sums(name, rows)

    def _sums(self, name: str, rows: Sequence[Situation]) -> Floats:
        uses = self.uses[name]
        return np.array([sum(uses.get(workload, 0.0) for workload in one) for one in rows])


def rules(world: MeasuredWorld, *, settings: bool = False) -> dict[str, SituationPolicy]:
    """Every rule whose columns the dataset brings; `settings`: with all settings of each.

    Memory is what a workload had resident alone, where that was measured.
    """
    uses = _uses(world)
    columns = {"chance", "instances", *uses, *(("load_after", "cpus") if "load" in uses else ())}
    return {name: SituationRule(rule, world, uses) for name, rule in known_by(columns, settings=settings).items()}


def _uses(world: MeasuredWorld) -> dict[str, Mapping[str, float]]:
    found: dict[str, Mapping[str, float]] = {
        "free_vcpus": {name: float(one.vcpus) for name, one in world.instances.items()},
        "free_memory_mb": solo(world, "rss_mb"),
    }
    cpu = solo(world, "cpu")
    if not set(world.workloads) <= cpu.keys():
        return found
    found["load"] = cpu
    for metric in BESIDE:
        beside = solo(world, metric)
        if set(world.workloads) <= beside.keys() and max(beside.values()) > 0:
            unit = max(cpu.values()) / max(beside.values())
            found[metric] = {name: unit * value for name, value in beside.items()}
    return found


@dataclass(frozen=True, slots=True)
class LowestPolicy:
    """The situation with the lowest key, and there the first host."""

    key: Callable[[Situation, str], Key]
    _known: dict[tuple[Situation, str], Key] = field(default_factory=dict)

    def choose(self, offer: Offer, workload: str, _random: np.random.Generator) -> SituationChoice:
        return SituationChoice(min(offer.first, key=lambda one: (*self._of(one, workload), offer.first[one])))

    def _of(self, situation: Situation, workload: str) -> Key:
        found = self._known.get((situation, workload))
        if found is None:
            found = self._known[situation, workload] = self.key(situation, workload)
        return found


def _room(world: MeasuredWorld) -> float:
    """What the CPUs of all seats together can do, in per cent of one."""
    pinned = {cpu for pin in world.pins if (seat := Pinning.parse(pin)) for cpu in seat.union}
    return 100.0 * (len(pinned) or world.host.pcpus)


def solo(world: MeasuredWorld, metric: str) -> dict[str, float]:
    """A solo metric by workload on the world's platform, where it was measured."""
    table = ProfileTable.build(world.profiles)
    if metric not in table.columns:
        return {}
    values = {name: table.column(metric)[table.row(name, world.host.platform)] for name in world.workloads}
    return {name: float(value) for name, value in values.items() if np.isfinite(value)}


def spread(ratios: Callable[[Situation], Mapping[str, float]], world: MeasuredWorld) -> SituationPolicy:
    """By the ratios that a predictor expects: the host whose most harmed instance keeps most, as the advisor's
    `worst`."""

    def key(situation: Situation, workload: str) -> Key:
        return (-worst_kept(*_change(world, ratios, situation, workload)),)

    return LowestPolicy(key)


def pack(
    ratios: Callable[[Situation], Mapping[str, float]], world: MeasuredWorld, slo: float = KEPT
) -> SituationPolicy:
    """By the ratios that a predictor expects: the fullest host on which every instance stays at the SLO, else as
    `spread`."""

    def key(situation: Situation, workload: str) -> Key:
        before, after = _change(world, ratios, situation, workload)
        kept = all(ratio >= min(slo, before.get(name, 1.0)) for name, ratio in after.items())
        if kept:
            return (0.0, -len(situation), -sum(after.values()))
        return (1.0, -worst_kept(before, after))

    return LowestPolicy(key)


def _change(
    world: MeasuredWorld, ratios: Callable[[Situation], Mapping[str, float]], situation: Situation, workload: str
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    after = world.after(situation, workload)
    assert after is not None
    before = ratios(situation)
    return before, ratios(after)


def worst_kept(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """One minus what counts as harm of what every instance loses of what it had before (1 a new VM)."""
    losses = [1 - ratio / before.get(name, 1.0) for name, ratio in after.items()]
    return 1 - harm(max(losses), sum(losses))


def oracles(world: MeasuredWorld) -> dict[str, SituationPolicy]:
    """Policies that know what was measured of every set of workloads, and not which one comes next."""

    def known(situation: Situation) -> dict[str, float]:
        return named(situation, world.ratios(situation))

    return {
        "oracle (total)": LowestPolicy(lambda situation, workload: (-gain(world, situation, workload),)),
        "oracle (worst)": spread(known, world),
        "oracle (pack)": pack(known, world),
    }


def named(there: Situation, ratios: tuple[float, ...]) -> dict[str, float]:
    """Ratios by name; of several instances of one workload each has a name of its own."""
    names = [f"{name}.{there[:at].count(name)}" for at, name in enumerate(there)]
    return dict(zip(names, ratios, strict=True))
