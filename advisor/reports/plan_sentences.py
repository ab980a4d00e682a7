"""A plan in sentences, and as the document that every front end shows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from advisor.domain import Effect, Inventory, ModelCard, Plan, PlanStep, Search, duration_in_words
from advisor.prediction.active import ActivePredictor
from advisor.reports import plan_view
from advisor.reports.parts import (
    MOST_NAMED,
    ReportDocument,
    Section,
    count,
    interval,
    joined,
    listed,
    percent,
    time_share,
)
from advisor.reports.plan_view import Background, HostRows, InstanceRow, afterwards, of_plan, unchanged
from advisor.reports.shared_sentences import REFUSED
from models.physics.prior import PriorPredictor

MOST_HOSTS = 4  # to which instances go, each in a sentence of its own
FELT = 0.01  # a loss of less than one percentage point is not worth words
TITLES = {
    "admit": "Placement plan",
    "rebalance": "Rebalancing plan",
    "evacuate": "Evacuation plan",
    "consolidate": "Consolidation plan",
    "repair": "Repair plan",
    "capacity": "Capacity plan",
    "what_if": "What if",
    "right_size": "Right-sizing plan",
    "tune": "Tuning",
}
_ENDS = {
    "optimal": "No better plan exists according to the predictions: the search is complete.",
    "time": "The time limit ended the search; this is the best plan found so far.",
    "search": "The search found no better plan; that does not prove that none exists.",
    "in the way": "Not everything that was requested is possible.",
    "not now": "Instances and hosts with a recent move rest first.",
}


def _end(plan: Plan, search: Search) -> str:
    """How the search ended: a rebalance that reached its aim may leave hosts that promise too much."""
    if plan.request.kind == "rebalance" and search.ended == "in the way" and search.value == 0:
        return "Hosts that promise more than they have, and rules that do not hold, are left to a repair."
    return _ENDS[search.ended]


def headline(plan: Plan) -> str:
    """The result for the cloud in one sentence."""
    fine = plan.search is not None and plan.search.ended == "already fine"
    if fine and plan.request.kind != "what_if":  # which speaks of two clouds, of which the other one may be fine
        return "Already fine: no change is needed."
    if plan.search is not None and plan.search.ended == "not now":
        return "Not now: moves that would pay must wait after the last ones."
    return {
        "admit": _admitted,
        "rebalance": _rebalanced,
        "evacuate": _evacuated,
        "consolidate": _consolidated,
        "repair": _repaired,
        "capacity": _capacity,
        "what_if": _imagined,
        "right_size": _resized,
        "tune": _tuned,
    }[plan.request.kind](plan)


def _admitted(plan: Plan) -> str:
    new_vms = {instance.id for instance in plan.request.instances}
    placed = len(new_vms & {step.instance for step in plan.steps if step.host})
    if not new_vms:
        return "There was no instance to place."
    if len(new_vms) == 1:
        return "The instance can be placed." if placed else "The instance cannot be placed."
    if placed == len(new_vms):
        return f"All {placed:,} instances can be placed."
    return f"{placed:,} of {len(new_vms):,} instances can be placed." if placed else (
        f"None of the {len(new_vms):,} instances can be placed."
    )  # fmt: skip


def _rebalanced(plan: Plan) -> str:
    moves = _done(plan)
    if not moves:
        none = "No move that pays was found in time" if _out_of_time(plan) else "No move pays"
        return f"{none}, and not every instance is within its limit." if _below(plan) else f"{none}."
    before, after = plan.sums_before, plan.sums_after
    bring = f"{count(moves, 'step')} {'brings' if moves == 1 else 'bring'}"
    if before and after and after.below < before.below:
        return f"{bring} the instances below their limit from {before.below:,} to {after.below:,}."
    if before and after and after.worst > before.worst + FELT:
        return f"{bring} the most affected instance from {percent(before.worst)} to {percent(after.worst)}."
    return f"{count(moves, 'step')} {'pays' if moves == 1 else 'pay'}."


def _evacuated(plan: Plan) -> str:
    left = sum(1 for step in plan.steps if step.host is None)
    names = listed(plan.request.empty, "hosts") if plan.request.empty else "The host"
    if left:
        return f"{names} cannot be emptied: {count(left, 'instance')} {'finds' if left == 1 else 'find'} no other host."
    staying = sum(len(plan.after.get(host, ())) for host in plan.request.empty)
    if staying:
        return f"{names} cannot be emptied: {count(staying, 'instance')} {'stays' if staying == 1 else 'stay'} there."
    stages = len({step.stage for step in plan.steps})
    copied = "" if plan.duration_s is None else f", about {duration_in_words(plan.duration_s)} of copying memory"
    return f"{names} can be emptied: {count(_done(plan), 'step')} in {count(stages, 'stage')}{copied}."


def _consolidated(plan: Plan) -> str:
    before, after = plan.sums_before, plan.sums_after
    if before is None or after is None or after.hosts_used >= before.hosts_used:
        proven = plan.search is None or plan.search.ended == "optimal" or plan.search.gap <= 0
        return "Fewer hosts are not enough." if proven else (
            f"No plan with fewer hosts was found{' in time' if _out_of_time(plan) else ''}."
        )  # fmt: skip
    return (
        f"{count(after.hosts_used, 'host')} will do instead of {before.hosts_used:,}, by {count(_done(plan), 'step')}."
    )


def _repaired(plan: Plan) -> str:
    left = round(plan.search.value) if plan.search else 0
    moves = _done(plan)
    by = f" by {count(moves, 'step')}" if moves else ""
    if not left:
        return f"All rules hold{by}."
    some = "1 rule still does not hold" if left == 1 else f"{left:,} rules still do not hold"
    return f"{some}{', after ' + count(moves, 'step') if moves else ''}."


def _capacity(plan: Plan) -> str:
    capacity = plan.capacity
    if capacity is None:
        return "How much more fits is not known."
    fits = "No further instance of this mix fits" if capacity.fit == 0 else f"{capacity.fit:,} more of this mix fit"
    fits += "s" if capacity.fit == 1 else ""
    when = (
        ""
        if capacity.runs_out_month is None
        else f"; the cloud is full in {count(round(capacity.runs_out_month), 'month')}"
    )
    return f"{fits} with every instance within its limit{when}."


def _imagined(plan: Plan) -> str:
    if len(plan.variants) < 2:
        return "The imagined cloud is shown below."
    now, then = plan.variants[0].sums, plan.variants[-1].sums
    if now.below != then.below:
        return f"{then.below:,} instead of {now.below:,} instances would be below their limit."
    if percent(now.worst) == percent(then.worst):
        return f"The most affected instance would run at {percent(then.worst)} of its uncontended speed, as now."
    instead = f"{percent(then.worst)} instead of {percent(now.worst)}"
    return f"The most affected instance would run at {instead} of its uncontended speed."


def _resized(plan: Plan) -> str:
    steps = len({step.instance for step in plan.steps})
    if not steps:
        return "No other size is advised, as far as is known."
    should = f"{count(steps, 'instance')} should get another size"
    if not plan.sizing:
        return f"{should}."
    saved, before = sum(row.saved for row in plan.sizing), sum(row.vcpus for row in plan.sizing)
    risky = max(plan.sizing, key=lambda row: row.short)
    does = f"saves {saved:,} of their" if saved >= 0 else f"adds {-saved:,} to their"
    risk = f"At most risk is {risky.riskiest}, contended in {time_share(risky.short)} of the time."
    return f"{should}: that {does} {before:,} vCPUs. {risk}"


def _tuned(plan: Plan) -> str:
    steps = len(plan.steps)
    if not steps:
        return "No change of settings would help."
    hosts = {step.host for step in plan.steps if step.host is not None}
    does = f"{_changes(steps)} on {count(len(hosts), 'host') if len(hosts) > 1 else plan.steps[0].host}"
    before, after = (_lowest(effects, hosts) for effects in (plan.before, plan.after))
    if after > before + FELT:
        brings = "brings" if steps == 1 else "bring"
        where = " there" if len(hosts) == 1 else " of these hosts"
        return f"{does} {brings} the most affected instance{where} from {percent(before)} to {percent(after)}."
    return f"{does} {'helps' if steps == 1 else 'help'}."


def _changes(number: int) -> str:
    return "1 change of settings" if number == 1 else f"{number:,} changes of settings"


def _lowest(effects: Mapping[str, Sequence[Effect]], hosts: Collection[str]) -> float:
    """The lowest T/B on these hosts; 1 = nothing is known of any instance there."""
    return min((one.throughput_ratio.expected for host in hosts for one in effects.get(host, ())), default=1.0)


def facts(plan: Plan) -> Mapping[str, str]:
    """How many steps it has, and how long they take."""
    done = [step for step in plan.steps if step.host is not None]
    left = len(plan.steps) - len(done)
    if not plan.steps:
        return {}
    stages = count(len({step.stage for step in done}), "stage")
    refused = f"; {count(left, 'instance')} {'finds' if left == 1 else 'find'} no host" if left else ""
    steps = {"Steps": f"{len(done):,} in {stages}{refused}"}
    return steps if plan.duration_s is None else {**steps, "Copying memory": duration_in_words(plan.duration_s)}


def summary(inventory: Inventory, plan: Plan, hosts: Sequence[HostRows]) -> list[str]:
    """What the plan is for, the most affected before and after, losers, destinations, and uncertainty; what matters
    first."""
    rows = [(host.name, row) for host in hosts for row in host.rows]
    asked_where = plan.request.kind == "admit"
    then = "" if unchanged(plan) else f" {afterwards(plan)}"
    unsized = plan.request.kind == "right_size" and not plan.steps  # its notes say what is not known
    return [
        *([_end(plan, plan.search)] if plan.search and plan.search.ended == "in the way" else []),
        *(plan.notes if unsized else ()),
        *(_where(inventory, plan) if asked_where else ()),
        *(_no_place(step) for step in [step for step in plan.steps if step.host is None][:MOST_NAMED]),
        *fits(plan),
        *_emptied(plan),
        *_worst_off(plan),
        *_who_pays([(host, row) for host, row in rows if not row.comes and not row.goes], moved=not unchanged(plan)),
        *_limits([row for _, row in rows if row.below_limit], then),
        *(() if asked_where else _where(inventory, plan)),
        *_uncertain([row for _, row in rows], then, learned=plan.model_origin != PriorPredictor.origin),
        *(() if unsized else plan.notes),
    ]


def _emptied(plan: Plan) -> Iterable[str]:
    """Which hosts a consolidation leaves empty, and how long it takes."""
    if plan.request.kind != "consolidate":
        return
    emptied = [host for host, there in plan.before.items() if there and not plan.after.get(host)]
    if emptied:
        takes = (
            "" if plan.duration_s is None else f", after about {duration_in_words(plan.duration_s)} of copying memory"
        )
        yield f"{listed(sorted(emptied), 'hosts')} {'is' if len(emptied) == 1 else 'are'} empty then{takes}."


def _where(inventory: Inventory, plan: Plan) -> Iterable[str]:
    was = {instance.id: instance.host for instance in inventory.instances}
    arrivals: dict[str, list[str]] = defaultdict(list)
    for step in plan.steps:
        if step.host is not None and step.action in ("place", "move"):
            arrivals[step.host].append(step.instance)
    if len(arrivals) > MOST_HOSTS:
        most = sorted(arrivals.items(), key=lambda item: (-len(item[1]), item[0]))[:3]
        named = joined([f"{host} ({len(arrived)})" for host, arrived in most])
        yield f"They go to {len(arrivals):,} hosts; most to {named}."
        return
    for host, names in arrivals.items():
        stay = [name for name in names if was.get(name) == host]
        come = [name for name in names if was.get(name) != host]
        if come:
            yield f"{listed(come, 'instances')} {'goes' if len(come) == 1 else 'go'} to {host}."
        if stay:
            yield f"{listed(stay, 'instances')} {'is' if len(stay) == 1 else 'are'} best left on {host}."


def _no_place(step: PlanStep) -> str:
    counted = Counter(rejection.code for rejection in step.rejected)
    ordered = sorted(counted.items(), key=lambda item: -item[1])
    reasons = [f"{REFUSED.get(code, code)} on {count(number, 'host')}" for code, number in ordered]
    return f"{step.instance} finds no host: {joined(reasons) if reasons else 'there is none'}."


def fits(plan: Plan) -> Iterable[str]:
    """How much of a mix fits at the lower edges and by sizes alone, what is in the way, and for how long it lasts."""
    capacity = plan.capacity
    if capacity is None:
        return
    if capacity.fit_lower is None:
        yield f"By sizes alone {capacity.by_rule:,} would fit."
    else:
        yield (
            f"If every instance ended at the lower edge of its interval, {capacity.fit_lower:,} would fit; by sizes "
            f"alone {capacity.by_rule:,} would fit."
        )
    if capacity.reserve:
        yield capacity.reserve
    if capacity.outlook:
        yield capacity.outlook
    if capacity.first_refusal:
        yield f"What prevents one more: {capacity.first_refusal}."


def _worst_off(plan: Plan) -> Iterable[str]:
    before, after = _worst(plan.before), _worst(plan.after)
    then = afterwards(plan)
    if not after:
        return
    if before and _reaches(*before) == _reaches(*after):
        when = f"Now and {then} the" if plan.steps else "The"
        yield f"{when} most affected instance is {_reaches(*after)}."
    elif before:
        host, effect = after
        ratio = effect.throughput_ratio
        yield (
            f"Now the most affected instance is {_reaches(*before)}; {then} it is {effect.instance} on {host}, at "
            f"{percent(ratio.expected)} ({interval(ratio)})."
        )
    else:
        yield f"{then[0].upper()}{then[1:]} the most affected instance is {_reaches(*after)}."


def _worst(effects: Mapping[str, Sequence[Effect]]) -> tuple[str, Effect] | None:
    """The instance with the lowest expected T/B and its host; None of an empty cloud."""
    pairs = [(host, effect) for host, there in effects.items() for effect in there]
    return min(
        pairs, key=lambda pair: (pair[1].throughput_ratio.expected, pair[0], pair[1].instance), default=None
    )  # fmt: skip


def _reaches(host: str, effect: Effect) -> str:
    ratio = effect.throughput_ratio
    return (
        f"{effect.instance} on {host}, predicted to run at {percent(ratio.expected)} of its uncontended speed "
        f"(interval "
        f"{interval(ratio)})"
    )


def _who_pays(stayed: Sequence[tuple[str, InstanceRow]], *, moved: bool) -> Iterable[str]:
    if not stayed or not moved:
        return
    there = f"the {count(len(stayed), 'instance')} that stay where they are"
    host, row = min(stayed, key=lambda item: item[1].change)
    if row.change > -FELT or row.before is None or row.after is None:
        yield f"None of {there} loses more than 1 percentage point."
        return
    felt = sum(1 for _, row in stayed if row.change <= -FELT)
    now, then = percent(row.before.expected), percent(row.after.throughput_ratio.expected)
    lose = "loses" if felt == 1 else "lose"
    yield (
        f"{felt:,} of {there} {lose} 1 percentage point or more, {row.instance} on {host} the most, "
        f"from {now} to {then}."
    )


def _limits(below: Sequence[InstanceRow], then: str) -> Iterable[str]:
    if below:
        names = listed([row.instance for row in below], "instances")
        yield f"Predicted below {'its' if len(below) == 1 else 'their'} limit{then}: {names}."


def _uncertain(rows: Sequence[InstanceRow], then: str, *, learned: bool) -> Iterable[str]:
    there = [row for row in rows if row.after is not None]
    outside = sum(1 for row in there if row.after and row.after.outside_training)
    if outside and learned:
        yield (
            f"{outside:,} of {len(there):,} predictions{then} lie outside the training data, so their "
            "intervals are wide."
        )
    unsure = sum(1 for row in there if row.may_break)
    if unsure:
        whose = "its" if unsure == 1 else "their"
        yield f"{count(unsure, 'instance')} may fall below {whose} limit{then} at the worse edge of the interval."


def searched(plan: Plan) -> list[str]:
    """How the plan was found, and its distance to the bound."""
    search = plan.search
    if search is None:
        return []
    gap = f"It reaches {search.value:.4g} ({search.aim}); "
    if search.gap <= 0:
        gap += "no plan can surpass that."
    elif search.aim == "hosts in use":  # the bound counts no limits of groups of three and more
        gap += f"sizes, and pairs that cannot share a host, alone would allow {search.bound:.4g}."
    else:
        gap += f"no plan can surpass {search.bound:.4g}, which is {search.away} away."
    return [
        *([_end(plan, search)] if search.ended in _ENDS else []),
        *([gap] if search.ended != "already fine" else []),
    ]


def _done(plan: Plan) -> int:
    return sum(1 for step in plan.steps if step.host is not None)


def _out_of_time(plan: Plan) -> bool:
    """Whether the time limit ended the search, so that what was not found may exist."""
    return plan.search is not None and plan.search.ended == "time"


def _below(plan: Plan) -> int:
    return plan.sums_after.below if plan.sums_after else 0


# A stored plan for reading: the document that every front end shows, and its report.


def document(plan: Plan) -> ReportDocument:
    """What every front end shows of a plan: its result, how it was found, and the tables that compare clouds.

    The report (`advisor.reports.plan`) adds what needs the inventory that the plan was made for.
    """

    sections = (
        Section("sizing", plan_view.SIZING, plan_view.SHORT, tables=[plan_view.sizing_table(plan)]),
        Section("runway", "Month by month", tables=[plan_view.runway_table(plan)]),
        Section("variants", plan_view.VARIANTS, tables=[plan_view.variants_table(plan)]),
        Section("cloud", "The cloud in figures", tables=() if plan.variants else [plan_view.sums_table(plan)]),
        Section("scores", plan_view.SCORES, tables=() if plan.variants else [plan_view.scores_table(plan)]),
    )
    return ReportDocument(
        what="plan",
        title=TITLES[plan.request.kind],
        headline=headline(plan),
        sentences=(*fits(plan), *searched(plan)),
        facts=facts(plan),
        sections=[section for section in sections if section],
        made_at=plan.created_at,
    )


STALE = (
    "The inventory has changed since this plan was made: check whether the plan still holds. Pressure and antagonists "
    "are those of the inventory as it is now."
)


def document_as_html(
    inventory: Inventory, plan: Plan, chosen: ActivePredictor, card: ModelCard | None, *, stale: bool
) -> str:
    """The report on the current cloud; newly computed parts are left out where another model is active now."""
    from advisor import reports

    return reports.plan_as_html(*_behind(inventory, plan, chosen, card, stale=stale))


def document_as_data(
    inventory: Inventory, plan: Plan, chosen: ActivePredictor, card: ModelCard | None, *, stale: bool
) -> dict[str, Any]:
    """The same report as text and numbers."""
    from advisor import reports

    return reports.plan_as_data(*_behind(inventory, plan, chosen, card, stale=stale))


def _behind(
    inventory: Inventory, plan: Plan, chosen: ActivePredictor, card: ModelCard | None, *, stale: bool
) -> tuple[Inventory, Plan, Background]:
    if stale:
        plan = replace(plan, notes=(STALE, *plan.notes))
    return inventory, plan, of_plan(inventory, plan, chosen.predictor, card.card if card else None)
