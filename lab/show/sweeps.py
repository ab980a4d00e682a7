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
    """T / B of a workload beside another while one factor of one of them, or of both alike, takes several values."""

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
        """How much the factor matters: largest minus smallest median."""
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
    """Every factor of which a pair was measured with at least two values, all else the same; the strongest first."""
    known = list(results)
    found = [sweep for factor in FACTORS for role in ROLES for sweep in _sweeps(known, factor, role)]
    return tuple(sorted(found, key=lambda sweep: (FACTORS.index(sweep.factor), -sweep.spread, sweep.victim)))


def _sweeps(results: Sequence[PairResult], factor: str, role: str) -> Iterator[FactorSweep]:
    kept: dict[tuple[object, ...], dict[float | None, list[PairResult]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        own, other = result.victim.variant, result.neighbour.variant
        mine, theirs = _value(own, factor), _value(other, factor)
        if role == "both" and mine != theirs:
            continue
        own = _without(own, factor) if role != "the neighbour's" else own
        other = _without(other, factor) if role != "its own" else other
        names = (result.form, result.victim.workload, result.neighbour.workload, result.victim.driver_cpus)
        kept[(*names, own, other)][theirs if role == "the neighbour's" else mine].append(result)
    for by_value in kept.values():
        if len(by_value) > 1:
            yield _sweep(by_value, factor, role)


def _sweep(by_value: dict[float | None, list[PairResult]], factor: str, role: str) -> FactorSweep:
    first = next(iter(by_value.values()))[0]
    points = [_point(value, factor, found) for value, found in by_value.items()]
    points.sort(key=lambda point: float("inf") if point.value is None else point.value)  # not set = without bound
    outcome = first.victim.outcomes.get("throughput")
    return FactorSweep(
        first.form, first.victim.workload, first.neighbour.workload, factor, role,
        _others(first, factor, role), outcome.unit if outcome else "", tuple(points),
    )  # fmt: skip


def _without(variant: MemberVariant, factor: str) -> MemberVariant:
    """The variant but for one factor, for comparing the rest."""
    kept: dict[str, Any] = {factor: 1.0}
    return replace(variant, **kept)


def _value(variant: MemberVariant, factor: str) -> float | None:
    """A weight that is not set is the default one; the others that are not set are no limit."""
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
    """What was kept but is not as defined, so that two curves of one pair are told apart."""
    kept = {"its own": (False, True), "the neighbour's": (True, False), "both": (False, False)}[role]
    own = _deviations(result.victim.variant, factor, keep=kept[0])
    other = _deviations(result.neighbour.variant, factor, keep=kept[1])
    return "; ".join([*own, *(f"neighbour {words}" for words in other)])


def _deviations(variant: MemberVariant, factor: str, *, keep: bool) -> list[str]:
    words = {
        "load": f"load {variant.load:g}" if variant.load != 1.0 else "",
        "cap_percent": f"cap {variant.cap_percent:g} %" if variant.cap_percent is not None else "",
        "weight": f"weight {variant.weight:g}" if variant.weight is not None else "",
        "network": variant.network,
        "disk_limit_mb_s": f"disk {variant.disk_limit_mb_s:g} MB/s" if variant.disk_limit_mb_s is not None else "",
    }
    return [text for name, text in words.items() if text and (keep or name != factor)]


def modes(groups: Iterable[DatasetGroup]) -> tuple[NetworkModes, ...]:
    """Every workload that was measured beside the same others, with the same loads and limits, under several modes."""
    kept: dict[tuple[object, ...], dict[str, list[DatasetMember]]] = defaultdict(lambda: defaultdict(list))
    for group in groups:
        for member in group.members:
            others = [other for other in group.members if other is not member]
            names = tuple(sorted(other.workload for other in others))
            rest = sorted(repr(replace(other.variant, network="")) for other in others)
            same = (group.form, member.workload, names, replace(member.variant, network=""), *rest)
            kept[same][_mode(member, others)].append(member)
    found = [
        NetworkModes(str(same[0]), str(same[1]), tuple(map(str, _names(same[2]))), _all_modes(by_mode))
        for same, by_mode in kept.items()
        if len({mode.partition(" ")[0] for mode in by_mode}) > 1
    ]
    return tuple(sorted(found, key=lambda one: (one.form, one.victim, one.neighbours)))


def _names(value: object) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


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
    over: dict[str, list[float]] = defaultdict(list)
    units: dict[str, str] = {}
    for member in members:
        for name in NET_OUTCOMES:
            outcome = member.outcomes.get(name)
            if outcome is None or outcome.colocated is None:
                continue
            values[name].append(outcome.colocated)
            units[name] = outcome.unit
            if outcome.ratio is not None:
                over[name].append(outcome.ratio)
    return NetworkMode(
        mode,
        {name: describe(found) for name, found in values.items()},
        {name: describe(found) for name, found in over.items()},
        units,
    )
