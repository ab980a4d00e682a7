"""What a plan means in sentences, and numbers as people read them; plain text, escaped by the template."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from advisor.domain import Band, Effect, Inventory, IsolationSettings, Plan, PlanStep, Rejection
from advisor.reports.view import HostRows, Row
from profiler.observed import NetworkSettings

FELT = 0.01  # a loss of less than one percentage point is not worth words
NBSP = "\u00a0"
NAMED = 8  # more names than these are counted
_REFUSED = {
    "capacity.vcpus": "too few CPUs free",
    "capacity.memory": "too little memory free",
    "capacity.disk": "too little disk free",
    "capacity.pinning": "lacks a CPU that it is pinned to",
    "host.disabled": "disabled",
    "host.no_data": "no fresh data",
    "limit.newcomer": "it would fall below its own limit there",
    "limit.neighbour": "a neighbour would fall below its limit",
}
_ORIGINS = {
    "prior": "It is the queueing model that ships with Cotenant; nothing was learned from this cloud's measurements.",
    "measured": "It was trained on measurements.",
    "paper": "It was trained on figures printed in papers, measured on other machines than these.",
    "simulated": "It was trained on simulated figures.",
}


def percent(ratio: float | None) -> str:
    """A ratio as a whole percentage; a dash for what is unknown."""
    return "–" if ratio is None or not math.isfinite(ratio) else f"{100 * ratio:.0f}{NBSP}%"


def points(change: float) -> str:
    """A change of a ratio in percentage points, with its sign."""
    return f"{100 * change:+.0f}".replace("-", "−") if abs(change) >= 0.005 else "0"


def band(value: Band | None) -> str:
    """The interval of a ratio."""
    if value is None or not (math.isfinite(value.lower) and math.isfinite(value.upper)):
        return "–"
    return f"{100 * value.lower:.0f}–{100 * value.upper:.0f}{NBSP}%"


def settings(wanted: IsolationSettings) -> list[str]:
    """What a placement asks to be set, one phrase each."""
    phrases = [
        f"vCPUs on pCPUs {wanted.pinning}" if wanted.pinning else "",
        f"cap {wanted.cap_percent:g} % of a CPU" if wanted.cap_percent is not None else "",
        f"weight {wanted.weight}" if wanted.weight is not None else "",
        _network(wanted.network),
        f"disk {wanted.disk_limit_mb_s:g} MB/s" if wanted.disk_limit_mb_s is not None else "",
    ]
    return [phrase for phrase in phrases if phrase]


def _network(network: NetworkSettings | None) -> str:
    if network is None or network.mode == "none":
        return ""
    most = f" up to {network.ceil_mbit:g}" if network.mode == "shared" and network.ceil_mbit else ""
    return f"network {network.mode}, {network.rate_mbit:g}{most} Mbit/s"


def refusals(rejected: Sequence[Rejection]) -> list[tuple[str, str, str]]:
    """(what is wrong, on which hosts, one host's own words), the most frequent reason first."""
    by_code: dict[str, list[Rejection]] = defaultdict(list)
    for rejection in rejected:
        by_code[rejection.code].append(rejection)
    ordered = sorted(by_code.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        (_REFUSED.get(code, code), _listed([one.host for one in found], "hosts"), found[0].reason)
        for code, found in ordered
    ]


def origin(name: str) -> str:
    """Where the model's knowledge comes from."""
    return _ORIGINS.get(name, f"It was trained on data of several origins: {name.replace('+', ', ')}.")


def headline(plan: Plan) -> str:
    """How many of how many can be placed."""
    asked, placed = len(plan.steps), sum(1 for step in plan.steps if step.host)
    if not asked:
        return "Nothing was to be placed."
    things = _count(asked, "instance")
    if placed == asked:
        return (
            f"{'The' if asked == 1 else 'All'} {things} can be placed." if asked > 1 else "The instance can be placed."
        )
    if not placed:
        return f"None of the {things} can be placed." if asked > 1 else "The instance cannot be placed."
    return f"{placed} of {things} can be placed."


def summary(inventory: Inventory, plan: Plan, hosts: Sequence[HostRows]) -> list[str]:
    """Where they go, who is worst off before and after, who pays, and who finds no place and why."""
    rows = [(host.name, row) for host in hosts for row in host.rows]
    return [
        *_where(inventory, plan),
        *(_no_place(step) for step in plan.steps if step.host is None),
        *_worst_off(plan),
        *_who_pays([(host, row) for host, row in rows if not row.comes and not row.goes]),
        *_limits([row for _, row in rows if row.below_limit]),
    ]


def _where(inventory: Inventory, plan: Plan) -> Iterable[str]:
    was = {instance.id: instance.host for instance in inventory.instances}
    arrivals: dict[str, list[str]] = defaultdict(list)
    for step in plan.steps:
        if step.host is not None:
            arrivals[step.host].append(step.instance)
    if len(arrivals) > NAMED:
        most = sorted(arrivals.items(), key=lambda item: (-len(item[1]), item[0]))[:3]
        yield (
            f"They go to {len(arrivals)} hosts; most to "
            + _joined([f"{host} ({len(names)})" for host, names in most])
            + "."
        )
    else:
        for host, names in arrivals.items():
            stay = [name for name in names if was.get(name) == host]
            come = [name for name in names if was.get(name) != host]
            if come:
                yield f"{_listed(come, 'instances')} {'goes' if len(come) == 1 else 'go'} to {host}."
            if stay:
                yield f"{_listed(stay, 'instances')} {'is' if len(stay) == 1 else 'are'} best left on {host}."


def _no_place(step: PlanStep) -> str:
    counted = Counter(rejection.code for rejection in step.rejected)
    reasons = [
        f"{_REFUSED.get(code, code)} on {_count(n, 'host')}" for code, n in sorted(counted.items(), key=lambda i: -i[1])
    ]
    return f"{step.instance} finds no host: {_joined(reasons) if reasons else 'there is none'}."


def _worst_off(plan: Plan) -> Iterable[str]:
    before, after = _worst(plan.before), _worst(plan.after)
    if before == after:
        yield from (f"Before and after the plan the worst-off instance is {one}." for one in after)
    else:
        yield from (f"Before the plan the worst-off instance is {one}." for one in before)
        yield from (f"After it the worst-off instance is {one}." for one in after)


def _worst(effects: Mapping[str, Sequence[Effect]]) -> list[str]:
    found = [(host, effect) for host, there in effects.items() for effect in there]
    worst = sorted(found, key=lambda one: (one[1].throughput_ratio.expected, one[0], one[1].instance))[:1]
    return [
        f"{effect.instance} on {host}, predicted to reach {percent(effect.throughput_ratio.expected)} of what it does "
        f"alone (interval {band(effect.throughput_ratio)})"
        for host, effect in worst
    ]


def _who_pays(stayed: Sequence[tuple[str, Row]]) -> Iterable[str]:
    if not stayed:
        return
    there = f"the {_count(len(stayed), 'instance')} already there"
    host, row = min(stayed, key=lambda item: item[1].change)
    if row.change > -FELT or row.before is None or row.after is None:
        yield f"None of {there} loses more than 1 percentage point."
        return
    felt = sum(1 for _, one in stayed if one.change <= -FELT)
    yield f"{felt} of {there} {'loses' if felt == 1 else 'lose'} 1 percentage point or more."
    now, then = percent(row.before.expected), percent(row.after.throughput_ratio.expected)
    yield f"{row.instance} on {host} loses the most, from {now} to {then}."


def _limits(below: Sequence[Row]) -> Iterable[str]:
    if below:
        names = _listed([row.instance for row in below], "instances")
        yield f"Predicted below the limit that was set for {'it' if len(below) == 1 else 'them'}: {names}."


def _listed(names: Sequence[str], what: str) -> str:
    return _joined(names) if len(names) <= NAMED else f"{', '.join(names[:3])} and {len(names) - 3} more {what}"


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
