"""Policies to compare with the advisor: rules of thumb, and an oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from advisor.scheduling.scoring import KEPT, harm
from models.data.scene import ProfileTable
from profiler.observed import Pinning
from research.benchmarks.clouds.streams import Offer, SituationChoice, SituationPolicy, gain
from research.benchmarks.clouds.worlds import MeasuredWorld, Situation
from research.contention.newcomer_world import from_0_to_1

Key = tuple[float, ...]  # lower is better
SWEEPS = 30  # of alternating least squares
FULLEST = (0.5, 0.65, 0.8, 1.2, 1.5)  # of the CPUs, that best fit may be tuned to
ALSO_LOADS = ("net_mbit", "disk_mb_s", "rss_mb", "mem_bw_mb_s")
WEIGHTS = (0.5, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class RandomPolicy:
    """Any host, all equally likely."""

    def choose(self, offer: Offer, _workload: str, random: np.random.Generator) -> SituationChoice:
        situations = list(offer.first)
        hosts = np.array([offer.count[situation] for situation in situations], dtype=float)
        return SituationChoice(situations[int(random.choice(len(situations), p=hosts / hosts.sum()))])


@dataclass(frozen=True, slots=True)
class LowestPolicy:
    """The situation with the lowest key, and there the host with the lowest number."""

    key: Callable[[Situation, str], Key]
    _known: dict[tuple[Situation, str], Key] = field(default_factory=dict)

    def choose(self, offer: Offer, workload: str, _random: np.random.Generator) -> SituationChoice:
        return SituationChoice(min(offer.first, key=lambda one: (*self._of(one, workload), offer.first[one])))

    def _of(self, situation: Situation, workload: str) -> Key:
        found = self._known.get((situation, workload))
        if found is None:
            found = self._known[situation, workload] = self.key(situation, workload)
        return found


@dataclass(frozen=True, slots=True)
class MostFreePolicy:
    """Nova's default CPU and RAM weighers: free vCPUs and free memory, each scaled to 0-1 over the hosts on offer and
    weighed alike (nova/weights.py, nova/scheduler/weights/{cpu,ram}.py); memory is what a workload had resident alone,
    where that was measured."""

    world: MeasuredWorld
    memory_mb: Mapping[str, float]

    def choose(self, offer: Offer, _workload: str, _random: np.random.Generator) -> SituationChoice:
        situations = list(offer.first)
        vcpus = [-float(sum(self.world.instances[name].vcpus for name in situation)) for situation in situations]
        memory = [-sum(self.memory_mb.get(name, 0.0) for name in one) for one in situations]
        weight = (from_0_to_1(vcpus) + from_0_to_1(memory)).round(9).tolist()
        best = min(range(len(situations)), key=lambda at: (-weight[at], offer.first[situations[at]]))
        return SituationChoice(situations[best])


def rules_of_thumb(world: MeasuredWorld) -> dict[str, SituationPolicy]:
    """What can be said from counts and from what workloads need alone; what the dataset does not bring is left out."""
    cpu, memory_mb = solo(world, "cpu"), solo(world, "rss_mb")
    rules: dict[str, SituationPolicy] = {
        "random": RandomPolicy(),
        "first fit": LowestPolicy(lambda _situation, _workload: ()),
        "fewest instances": LowestPolicy(lambda situation, _workload: (len(situation),)),
        "most free CPU and RAM": MostFreePolicy(world, memory_mb),
    }
    if set(world.workloads) <= cpu.keys():
        rules["least loaded"] = least_loaded(cpu)
        rules["best fit"] = best_fit(cpu, _room(world))
    return rules


def tunable_rules(world: MeasuredWorld) -> dict[str, SituationPolicy]:
    """The same rules with every value of their parameter: how full best fit lets the CPUs be, and what beside CPUs
    counts as load, each resource in parts of the most that any workload uses of it."""
    cpu, rules = solo(world, "cpu"), rules_of_thumb(world)
    if not set(world.workloads) <= cpu.keys():
        return rules
    for full in FULLEST:
        rules[f"best fit to {full:.0%}"] = best_fit(cpu, full * _room(world))
    for metric in ALSO_LOADS:
        beside = solo(world, metric)
        if set(world.workloads) <= beside.keys() and max(beside.values()) > 0:
            for weight in WEIGHTS:
                unit = weight * max(cpu.values()) / max(beside.values())
                both = {name: cpu[name] + unit * beside[name] for name in cpu}
                rules[f"least loaded, {metric} x {weight:g}"] = least_loaded(both)
    return rules


def least_loaded(need: Mapping[str, float]) -> SituationPolicy:
    """The host whose instances need least together, whoever comes."""
    return LowestPolicy(lambda situation, _workload: (_together(need, situation),))


def best_fit(need: Mapping[str, float], room: float) -> SituationPolicy:
    """The fullest host with room; where none has any, the one that would be least overfull."""

    def key(situation: Situation, workload: str) -> Key:
        after = _together(need, situation) + need[workload]
        return (0.0, room - after) if after <= room else (1.0, after)

    return LowestPolicy(key)


def _together(need: Mapping[str, float], situation: Situation) -> float:
    return round(sum(need[name] for name in situation), 9)


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
    """One minus what counts as harm of what every instance loses of what it had before (1 a newcomer)."""
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
