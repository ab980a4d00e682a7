"""The state of a cloud as a report: hosts, most affected instances, scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from markupsafe import Markup

from advisor.domain import LOW_SCORE, SCORE_BUCKETS, CloudScores, Inventory, Plan, ScorePoint, ScoreSummary
from advisor.reports import plan_view
from advisor.reports.host_sections import ANTAGONISTS_NOW, RESOURCES
from advisor.reports.parts import Column, Picture, ReportDocument, Section, Table, count, drawn, percent
from advisor.reports.plan import plan_report
from advisor.reports.plan_sentences import headline as of_plan
from advisor.reports.plan_view import Background
from profiler import pictures
from profiler.look import AFTER, BEFORE, inline

# The scores of VMs in the report of a cloud: now by host, the lowest ones, and the cloud over time.

MOST_HOSTS, MOST_VMS = 50, 25  # rows on the page
LEAST_POINTS = 3  # of a picture over time
_BUCKETS = tuple(Column(f"score_{name.replace('-', '_')}", name, "count") for name in SCORE_BUCKETS)


def scores(now: CloudScores | None, history: Sequence[ScorePoint]) -> Section:
    """Empty where the scores are not known, as with a file: the plan's own table has the predicted ones then."""
    if now is None or now.cloud.mean is None:
        return Section("scores", "Scores of VMs now")
    cloud = now.cloud
    by_host = [("cloud", *_figures(cloud)), *((host, *_figures(of)) for host, of in now.hosts_lowest_first)]
    columns = (
        Column("host", "", "name"), Column("instances", "VMs", "count"), Column("measured", "Measured", "count"),
        Column("score", "Mean score", "number"), Column("score_lowest", "Lowest", "number"), *_BUCKETS,
    )  # fmt: skip
    vms = [
        (one.instance, one.host, round(one.score, 1), one.source, one.cpu, one.devices, one.memory)
        for one in now.lowest(cloud.instances)
    ]
    vm_columns = (
        Column("instance", "VM", "name"), Column("host", "Host"), Column("score", "Score", "number"),
        Column("source", "By"), Column("cpu", "CPU delivered", "share"), Column("devices", "Devices leave", "share"),
        Column("memory", "Not stalled for memory", "share"),
    )  # fmt: skip
    return Section(
        "scores",
        "Scores of VMs now",
        "100 = uncontended: CPU delivered, times what devices leave beyond it, times the part of the time without "
        "stalls for memory.",
        sentences=[
            f"The mean score is {cloud.mean:.0f} and the lowest {cloud.lowest:.0f}; {count(cloud.low, 'VM')} of "
            f"{cloud.instances:,} {'is' if cloud.low == 1 else 'are'} below {LOW_SCORE:.0f}. CPU delivered was "
            f"{_measured(cloud)}."
        ],
        pictures=[Picture("Score of the cloud over time", over_time(history))] if len(history) >= LEAST_POINTS else [],
        tables=[
            Table("scores_now", "Hosts, the lowest mean first", columns, by_host, most=MOST_HOSTS),
            Table("lowest_scores", f"VMs below {LOW_SCORE:.0f}", vm_columns, vms, most=MOST_VMS),
            Table("score_history", "The cloud over time", _TIME_COLUMNS, _rows(history), look="folded"),
        ],
    )


_TIME_COLUMNS = (
    Column("time", "Until", "name"), Column("instances", "VMs", "count"), Column("measured", "Measured", "count"),
    Column("score", "Mean score", "number"), Column("score_lowest", "Lowest", "number"), *_BUCKETS,
)  # fmt: skip


def _measured(of: ScoreSummary) -> str:
    if of.measured == of.instances:
        return "measured for all"
    return f"measured for {of.measured:,}, and is predicted for the others"


def _rows(history: Sequence[ScorePoint]) -> list[tuple[object, ...]]:
    return [(f"{point.time:%Y-%m-%d %H:%M} UTC", *_figures(point)) for point in history]


def _figures(of: ScoreSummary) -> tuple[float | None, ...]:
    return (of.instances, of.measured, _rounded(of.mean), _rounded(of.lowest), *of.counts)


def _rounded(score: float | None) -> float | None:
    return None if score is None else round(score, 1)


@drawn
def over_time(history: Sequence[ScorePoint]) -> Markup:
    """Mean and lowest score, in hours before the last window."""
    last = history[-1].time
    hours = [(point.time - last).total_seconds() / 3600 for point in history]
    figure, (axes,) = pictures.new_figure(1, columns=1, width=6.0, height=2.2)
    axes.plot(hours, [point.mean for point in history], "-", color=AFTER, label="mean")
    axes.plot(hours, [point.lowest for point in history], "--", color=BEFORE, label="lowest")
    axes.set_ylim(0, 105)
    pictures.label(axes, x="hours before the last window", y="score")
    pictures.legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return inline(figure, f"scores {last:%Y%m%d%H%M}", "Mean and lowest score over time; the table has every figure")


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
