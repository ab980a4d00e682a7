"""The state of a cloud as a report: hosts, worst-off instances, age of the data, and what a plan would change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from advisor.domain import Inventory, Plan
from advisor.reports import plan_view
from advisor.reports.host_sections import ANTAGONISTS_NOW, RESOURCES
from advisor.reports.number_format import count, percent
from advisor.reports.parts import Column, ReportDocument, Section, Table
from advisor.reports.plan import plan_report
from advisor.reports.plan_background import Background
from advisor.reports.plan_sentences import headline as of_plan
from advisor.reports.score_sections import scores

MAX_HOSTS, MOST_WORST = 100, 25  # rows on the page


def cloud_report(inventory: Inventory, plan: Plan, background: Background, ages: Mapping[str, float]) -> ReportDocument:
    """The hosts now, and below them what the plan would change.

    `ages` are seconds since each host was last seen, inf = never; empty = unknown, as with a file.
    """
    whole = plan_report(inventory, plan, background)
    there = sum(len(residents) for residents in plan.before.values())
    now = [section for section in whole.sections if section.id == ANTAGONISTS_NOW]
    others = [section for section in whole.sections if section.id != ANTAGONISTS_NOW]
    return replace(
        whole,
        what="cloud",
        title="State of the cloud",
        headline=_headline(plan, there),
        sentences=list(
            dict.fromkeys(
                [*_ages(ages), *plan_view.known_demand(inventory), f"{whole.title}: {of_plan(plan)}", *whole.sentences]
            )
        ),
        sections=[
            _worst(inventory, plan),
            scores(background.scores, background.score_history),
            _hosts(inventory, plan, background, ages),
            *now,
            *others,
        ],
    )


def _headline(plan: Plan, there: int) -> str:
    counted = f"{count(len(plan.before), 'host')} with {count(there, 'instance')}"
    now = plan.sums_before
    if now is None or not there:
        return f"{counted}."
    below = (
        "no instance is below its limit"
        if not now.below
        else f"{now.below:,} below {'its' if now.below == 1 else 'their'} limit"
    )
    return (
        f"{counted}: {below}, the most affected is predicted to run at {percent(now.worst)} of its uncontended speed."
    )


def _ages(ages: Mapping[str, float]) -> list[str]:
    if not ages:
        return []
    never = sum(1 for age in ages.values() if math.isinf(age))
    seen = [age for age in ages.values() if not math.isinf(age)]
    sentences = [f"The oldest data of a host are {duration(max(seen))} old."] if seen else []
    if never:
        sentences.append(f"{count(never, 'host')} {'was' if never == 1 else 'were'} never seen.")
    return sentences


def duration(seconds: float) -> str:
    """A time in a readable unit."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}s"
    return count(round(seconds), "second")


def _worst(inventory: Inventory, plan: Plan) -> Section:
    """Instances below their limit, then the others, lowest T/B first."""
    limit_of = plan_view.limits(inventory, plan)
    rows = []
    for host, effects in plan.before.items():
        for effect in effects:
            limit, ratio = limit_of(effect.instance), effect.throughput_ratio
            below = "below its limit" if limit.broken(effect) else None
            if below or ratio.expected < 1 - plan_view.SLOWED:
                rows.append((effect.instance, host, ratio, limit.throughput, below))
    rows.sort(key=lambda row: (row[4] is None, row[2].expected, row[0]))
    columns = (
        Column("instance", "Instance", "name"), Column("host", "Host"), Column("ratio", "T/B", "band"),
        Column("limit", "Limit", "ratio"), Column("below", ""),
    )  # fmt: skip
    caption = "Those below their limit, then the lowest predicted throughput"
    if not rows:
        none_below = (
            "No instance is predicted below its limit or below "
            f"{percent(1 - plan_view.SLOWED)} of its uncontended speed."
        )
        return Section("worst", "Most affected instances now", sentences=[none_below])
    return Section(
        "worst", "Most affected instances now", tables=[Table("worst", caption, columns, rows, most=MOST_WORST)]
    )


def _hosts(inventory: Inventory, plan: Plan, background: Background, ages: Mapping[str, float]) -> Section:
    known = {host.id: host for host in inventory.hosts}
    rows = []
    for name, effects in plan.before.items():
        host, pressed = known.get(name), background.before.get(name, {})
        most = max(
            ((value, resource) for resource, value in pressed.items() if value is not None), default=(None, None)
        )
        age = ages.get(name)
        rows.append((
            name, host.kind if host else None, host.pcpus if host else None, len(effects),
            min((effect.throughput_ratio.expected for effect in effects), default=None),
            RESOURCES[most[1]] if most[0] and most[1] else None, most[0] or None,
            None if age is None or math.isinf(age) else round(age, 1),
            "disabled" if host and not host.enabled else "never seen" if age is not None and math.isinf(age) else None,
        ))  # fmt: skip
    rows.sort(key=lambda row: (row[4] if row[4] is not None else 2.0, row[0]))
    columns = (
        Column("host", "Host", "name"), Column("kind", "Kind"), Column("pcpus", "pCPUs", "count"),
        Column("instances", "Instances", "count"), Column("worst", "Lowest T/B", "ratio"),
        Column("pressed_by", "Most pressed"), Column("pressure", "Demand over capacity", "ratio"),
        Column("age_s", "Data, s old", "number"), Column("state", ""),
    )  # fmt: skip
    return Section(
        "hosts",
        "The hosts now",
        tables=[Table("hosts", "Those with the most affected instances first", columns, rows, most=MAX_HOSTS)],
    )
