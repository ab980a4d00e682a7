"""Sweeps: T/B when one factor is varied and all others are kept (load, cap, weight, disk limit, tc mode)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from lab.show.dataset import DatasetGroup, DatasetMember, MemberVariant
from lab.show.pairs import PairResult, together
from lab.statistics import Description, describe
from profiler.observed import DEFAULT_WEIGHT

_Where = tuple[str, str, tuple[str, ...]]
FACTORS = ("load", "cap_percent", "weight", "disk_limit_mb_s")
ROLES = ("its own", "the neighbour's", "both")
NET_OUTCOMES = ("throughput", "latency_mean_ms", "latency_p95_ms", "jitter_ms", "timeouts_percent")
_NOTHING_SET = {"cap_percent": "no cap", "weight": f"{DEFAULT_WEIGHT}", "disk_limit_mb_s": "no limit"}


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One setting of the factor; `value` None = not set. `reached` is the median throughput beside the neighbour."""

    value: float | None
    words: str
    ratio: Description
    reached: float | None


@dataclass(frozen=True, slots=True)
class FactorSweep:
    """T/B of a workload beside another while one factor of one of them, or of both alike, takes several values."""

    form: str
    victim: str
    neighbour: str
    factor: str
    role: str
    others: str
    unit: str
    points: tuple[SweepPoint, ...]

    @property
    def spread(self) -> float:
        """Largest minus smallest median: how much the factor matters."""
        medians = [point.ratio.median for point in self.points]
        return max(medians) - min(medians)


@dataclass(frozen=True, slots=True)
class NetworkMode:
    """A workload under one tc mode: each outcome beside the neighbours, and over what it is alone, where measured."""

    mode: str
    outcomes: dict[str, Description]
    ratios: dict[str, Description]
    units: dict[str, str]


@dataclass(frozen=True, slots=True)
class NetworkModes:
    """One workload beside the same others under at least two tc modes."""

    form: str
    victim: str
    neighbours: tuple[str, ...]
    modes: tuple[NetworkMode, ...]


def sweeps(results: Iterable[PairResult]) -> tuple[FactorSweep, ...]:
    """Every factor with which a pair was measured at two values or more, all else the same; the strongest first."""
    known = list(results)
    every = [sweep for factor in FACTORS for role in ROLES for sweep in _sweeps(known, factor, role)]
    return tuple(sorted(every, key=lambda sweep: (FACTORS.index(sweep.factor), -sweep.spread, sweep.victim)))


def _sweeps(results: Sequence[PairResult], factor: str, role: str) -> Iterator[FactorSweep]:
    alike: dict[tuple[object, ...], dict[float | None, list[PairResult]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        own, other = result.victim.variant, result.neighbour.variant
        mine, theirs = _value(own, factor), _value(other, factor)
        if role == "both" and mine != theirs:
            continue
        own = _without(own, factor) if role != "the neighbour's" else own
        other = _without(other, factor) if role != "its own" else other
        names = (result.form, result.victim.workload, result.neighbour.workload, result.victim.driver_cpus)
        alike[(*names, own, other)][theirs if role == "the neighbour's" else mine].append(result)
    for by_value in alike.values():
        if len(by_value) > 1:
            yield _sweep(by_value, factor, role)


def _sweep(by_value: dict[float | None, list[PairResult]], factor: str, role: str) -> FactorSweep:
    first = next(iter(by_value.values()))[0]
    points = [_point(value, factor, of_value) for value, of_value in by_value.items()]
    points.sort(key=lambda point: float("inf") if point.value is None else point.value)  # not set = without bound
    outcome = first.victim.outcomes.get("throughput")
    return FactorSweep(
        first.form, first.victim.workload, first.neighbour.workload, factor, role,
        _others(first, factor, role), outcome.unit if outcome else "", tuple(points),
    )  # fmt: skip


def _without(variant: MemberVariant, factor: str) -> MemberVariant:
    """The variant with a fixed value of one factor, for comparing the rest."""
    fixed: dict[str, Any] = {factor: 1.0}
    return replace(variant, **fixed)


def _value(variant: MemberVariant, factor: str) -> float | None:
    """A weight that is not set is the default one; any other factor that is not set is no limit."""
    value: float | None = getattr(variant, factor)
    return float(DEFAULT_WEIGHT) if value is None and factor == "weight" else value


def _point(value: float | None, factor: str, results: Sequence[PairResult]) -> SweepPoint:
    reached = [
        outcome.colocated
        for result in results
        for group in result.groups
        for member in group.members
        if member.instance == result.victim.instance and (outcome := member.outcomes.get("throughput"))
        if outcome.colocated is not None
    ]
    words = _NOTHING_SET[factor] if value is None else f"{value:g}"
    return SweepPoint(value, words, together(results), median(reached) if reached else None)


def _others(result: PairResult, factor: str, role: str) -> str:
    """What stays the same but is not as defined, so that two curves of one pair can be distinguished."""
    own = _deviations(result.victim.variant, "" if role == "the neighbour's" else factor)
    other = _deviations(result.neighbour.variant, "" if role == "its own" else factor)
    return "; ".join([*own, *(f"neighbour {words}" for words in other)])


def _deviations(variant: MemberVariant, varied: str) -> list[str]:
    words = {
        "load": f"load {variant.load:g}" if variant.load != 1.0 else "",
        "cap_percent": f"cap {variant.cap_percent:g} %" if variant.cap_percent is not None else "",
        "weight": f"weight {variant.weight:g}" if variant.weight is not None else "",
        "network": variant.network,
        "disk_limit_mb_s": f"disk {variant.disk_limit_mb_s:g} MB/s" if variant.disk_limit_mb_s is not None else "",
    }
    return [text for name, text in words.items() if text and name != varied]


def modes(groups: Iterable[DatasetGroup]) -> tuple[NetworkModes, ...]:
    """Every workload that was measured under several modes, beside the same others with the same loads and limits."""
    alike: dict[tuple[_Where, tuple[str, ...]], dict[str, list[DatasetMember]]] = defaultdict(lambda: defaultdict(list))
    for group in groups:
        for member in group.members:
            others = [other for other in group.members if other is not member]
            neighbours = tuple(sorted(other.workload for other in others))
            variants = (repr(replace(other.variant, network="")) for other in (member, *others))
            where = (group.form, member.workload, neighbours)
            alike[where, (next(variants), *sorted(variants))][_mode(member, others)].append(member)
    every = [
        NetworkModes(*where, _all_modes(by_mode))
        for (where, _), by_mode in alike.items()
        if len({mode.partition(" ")[0] for mode in by_mode}) > 1
    ]
    return tuple(sorted(every, key=lambda modes: (modes.form, modes.victim, modes.neighbours)))


def _mode(member: DatasetMember, others: Sequence[DatasetMember]) -> str:
    """The member's mode, and the others' where they have another."""
    own = member.variant.network or "none"
    theirs = sorted({other.variant.network or "none" for other in others} - {own})
    return f"{own}; beside {', '.join(theirs)}" if theirs else own


def _all_modes(by_mode: dict[str, list[DatasetMember]]) -> tuple[NetworkMode, ...]:
    order = {"none": 0, "shared": 1, "dedicated": 2}
    return tuple(
        _one_mode(mode, by_mode[mode])
        for mode in sorted(by_mode, key=lambda mode: (order.get(mode.split()[0].rstrip(";"), 3), mode))
    )


def _one_mode(mode: str, members: Sequence[DatasetMember]) -> NetworkMode:
    values: dict[str, list[float]] = defaultdict(list)
    ratios: dict[str, list[float]] = defaultdict(list)
    units: dict[str, str] = {}
    for member in members:
        for name in NET_OUTCOMES:
            outcome = member.outcomes.get(name)
            if outcome is None or outcome.colocated is None:
                continue
            values[name].append(outcome.colocated)
            units[name] = outcome.unit
            if outcome.ratio is not None:
                ratios[name].append(outcome.ratio)
    of_values, of_ratios = ({name: describe(known) for name, known in each.items()} for each in (values, ratios))
    return NetworkMode(mode, of_values, of_ratios, units)
