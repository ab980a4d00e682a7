"""A plan laid out for reading: its steps by stage, hosts before and after as drawings, two plans beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from advisor.domain import CloudNow, CpuMap, Effect, Plan, PlanStep, PlanSums, cpu_map
from api.html import picture

_MAPPED = 8  # hosts whose CPUs are drawn before and after a tuning
_DRAWN = 40  # hosts with a drawing; the others are counted
_SCORES = ("score", "score_lowest")
_RISING = ("worst", "mean", "total", *_SCORES)  # sums of a cloud of which more is better
_NAMES = {
    "hosts_used": "Hosts used",
    "instances": "Instances",
    "below": "Below their limit",
    "worst": "Worst ratio",
    "mean": "Mean ratio",
    "total": "Sum of ratios",
    "score": "Mean score",
    "score_lowest": "Lowest score",
}


@dataclass(frozen=True, slots=True)
class HostDrawing:
    """One host before and after: the places of its ratios in the drawing, and the same in words."""

    name: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    worst_before: float | None
    worst_after: float | None
    words: str


@dataclass(frozen=True, slots=True)
class SumRow:
    """One figure of the cloud before and after; `better` None = neither."""

    name: str
    before: str
    after: str
    better: bool | None


def stages(steps: Sequence[PlanStep]) -> list[tuple[int, list[PlanStep]]]:
    """Steps that may run together, in order; those that cannot be done are left out."""
    ordered = sorted((step for step in steps if step.host or step.action == "remove"), key=lambda step: step.stage)
    return [(number, list(group)) for number, group in groupby(ordered, key=lambda step: step.stage)]


def refused(plan: Plan) -> list[PlanStep]:
    """What no host can take."""
    return [step for step in plan.steps if step.host is None and step.action != "remove"]


def maps(plan: Plan, now: CloudNow) -> list[tuple[str, CpuMap, CpuMap, frozenset[int]]]:
    """Of the first hosts that a tuning changes: the name, its CPUs before and after, and which of them differ."""
    known = {one.host.id: one for one in now.hosts}
    drawn = []
    for name in list(dict.fromkeys(step.host for step in plan.steps if step.host in known))[:_MAPPED]:
        before = known[name or ""]
        host, there = before.host, {one.instance.id: one.instance for one in before.residents}
        for step in (step for step in plan.steps if step.host == name):
            if step.action == "driver_domain":
                host = replace(host, driver_cpus=() if step.driver_cpus == host.shared_cpus else step.driver_cpus)
            elif step.settings is not None and step.instance in there:
                there[step.instance] = replace(there[step.instance], settings=step.settings)
        first = cpu_map(before.host, [one.instance for one in before.residents])
        then = cpu_map(host, list(there.values()))
        drawn.append((host.id, first, then, first.differing(then)))
    return drawn


def hosts(plan: Plan) -> tuple[list[HostDrawing], int]:
    """The hosts that change, those that end worst first, and how many others are not drawn."""
    names = sorted({*plan.before, *plan.after})
    drawings = [_drawing(name, plan.before.get(name, ()), plan.after.get(name, ())) for name in names]
    changed = [drawing for drawing in drawings if drawing.before != drawing.after]
    changed.sort(key=lambda drawing: (1.0 if drawing.worst_after is None else drawing.worst_after, drawing.name))
    shown = changed[:_DRAWN]
    return shown, len(drawings) - len(shown)


def sums(before: PlanSums | None, after: PlanSums | None) -> list[SumRow]:
    """The cloud's figures side by side; empty where they are the same, or one is not known."""
    if before is None or after is None or before == after:
        return []
    pairs = [(name, title, getattr(before, name), getattr(after, name)) for name, title in _NAMES.items()]
    return [_sum(name, title, old, new) for name, title, old, new in pairs if old is not None and new is not None]


def differences(a: Plan, b: Plan) -> list[tuple[str, str, str]]:
    """The instances that two plans treat differently: name, and what becomes of it in each."""
    first, second = _ends(a), _ends(b)
    names = sorted({*first, *second})
    rows = [(name, first.get(name, "stays"), second.get(name, "stays")) for name in names]
    return [row for row in rows if row[1] != row[2]]


def _drawing(name: str, before: Sequence[Effect], after: Sequence[Effect]) -> HostDrawing:
    old, new = ([effect.throughput_ratio.expected for effect in effects] for effects in (before, after))
    words = f"{name}: before, {_in_words(old)}; after, {_in_words(new)}"
    return HostDrawing(name, _marks(old), _marks(new), min(old, default=None), min(new, default=None), words)


def _marks(ratios: Sequence[float]) -> tuple[float, ...]:
    return tuple(sorted(picture.x(ratio) for ratio in ratios))


def _in_words(ratios: Sequence[float]) -> str:
    if not ratios:
        return "empty"
    return f"{len(ratios)} instance{'s' if len(ratios) > 1 else ''}, the most affected at {100 * min(ratios):.0f} %"


def _sum(name: str, title: str, before: float, after: float) -> SumRow:
    form = "{:.0f}" if name in _SCORES else "{:.2f}" if name in _RISING else "{:,}"
    old, new = form.format(before), form.format(after)
    neutral = name == "instances" or old == new
    return SumRow(title, old, new, None if neutral else (after > before) == (name in _RISING))


def _ends(plan: Plan) -> Mapping[str, str]:
    ends: dict[str, str] = {}
    for step in plan.steps:
        size = f"{step.vcpus} vCPU{'s' if step.vcpus > 1 else ''}" if step.vcpus else ""
        place = f"to {step.host}" if step.action in {"place", "move"} and step.host else ""
        other = "no host" if step.host is None else "other settings" if step.action == "settings" else ""
        if not step.instance:
            continue
        ends[step.instance] = ", ".join(filter(None, (place, size, other))) or ends.get(step.instance, "stays")
    return ends
