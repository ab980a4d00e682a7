"""Sections that compare clouds: before and after, month by month, variants, and sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from advisor.domain import Plan, PlanSums
from advisor.reports import plan_pictures as pictures
from advisor.reports import plan_view
from advisor.reports.parts import Column, Picture, Section, Table
from profiler.look import AFTER, BEFORE

LEAST_SPREAD = 0.05  # T/B between the worst-off and the best-off, for a picture of how it is distributed
LEAST_MONTHS = 3  # of a run-way, for a picture of it
MOST_CLASSES = 16  # in the picture of sizes; the table has all
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 1.0)
_SUMS = (
    Column("hosts", "Hosts", "count"), Column("hosts_used", "In use", "count"),
    Column("instances", "Instances", "count"), Column("below", "Below their limit", "count"),
    Column("worst", "Worst-off", "ratio"), Column("mean", "Mean", "ratio"),
    Column("total", "Sum of T/B", "number", shown=False), Column("watts", "W", "number"),
    Column("price", "Price a month", "number"),
)  # fmt: skip


def before_and_after(plan: Plan) -> Section:
    """The cloud in figures, and how T/B is distributed, as a picture where it says more than the figures."""
    clouds = [("before", plan.sums_before), ("after", plan.sums_after)]
    if plan.sums_before == plan.sums_after:
        clouds = [("now", plan.sums_before)]
    rows = [(name, *_sums(sums)) for name, sums in clouds if sums is not None]
    table = Table("sums", "The cloud in figures", (Column("cloud", "", "name"), *_SUMS), rows)
    values = _throughput_ratios(plan)
    everyone = [ratio for ratios in values.values() for ratio in ratios]
    spread = bool(everyone) and max(everyone) - min(everyone) >= LEAST_SPREAD  # else it is one vertical line
    lines = {name: (ratios, BEFORE if name == "before" else AFTER) for name, ratios in values.items()}
    drawn = [Picture("Predicted T/B of every instance", pictures.distribution(lines, plan.id, "T/B"))] if spread else []
    return Section(
        "cloud",
        "The cloud, before and after" if len(rows) > 1 else "The cloud",
        "Predicted throughput beside others over throughput alone (T/B).",
        pictures=drawn,
        tables=[table, _distribution(values)],
    )


def _throughput_ratios(plan: Plan) -> dict[str, list[float]]:
    """The expected T/B of everybody in each cloud, lowest first; one cloud where the plan changes none."""
    clouds = {"now": plan.before} if plan_view.unchanged(plan) else {"before": plan.before, "after": plan.after}
    values = {
        name: sorted(effect.throughput_ratio.expected for there in effects.values() for effect in there)
        for name, effects in clouds.items()
    }
    return {name: ratios for name, ratios in values.items() if ratios}


def _distribution(values: dict[str, list[float]]) -> Table:
    rows = [(name, len(ratios), *(quantile(ratios, share) for share in QUANTILES)) for name, ratios in values.items()]
    heads = [Column(f"q{100 * share:.0f}", f"{100 * share:.0f} % up to", "ratio") for share in QUANTILES[1:-1]]
    columns = (
        Column("cloud", "", "name"), Column("instances", "Instances", "count"),
        Column("least", "Least", "ratio"), *heads, Column("most", "Most", "ratio"),
    )  # fmt: skip
    return Table("distribution", "How T/B is distributed", columns, rows, look="folded")


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all does not exceed."""
    return ordered[max(math.ceil(share * len(ordered) - 1e-9), 1) - 1]


def _sums(sums: PlanSums) -> tuple[float | None, ...]:
    return (
        sums.hosts, sums.hosts_used, sums.instances, sums.below, sums.worst, sums.mean, sums.total, sums.watts,
        sums.price,
    )  # fmt: skip


def capacity(plan: Plan) -> Section:
    answer = plan.capacity
    if answer is None:
        return Section("capacity", "Capacity")
    fit = Table(
        "capacity", "How many more of the mix fit",
        (Column("fit", "As expected", "count"), Column("fit_lower", "At the lower edges", "count"),
         Column("by_rule", "By sizes alone", "count"), Column("months_examined", "Months examined", "count"),
         Column("runs_out_month", "Full in month", "number"),
         Column("first_refusal", "In the way of one more", "prose", shown=False)),
        [(answer.fit, answer.fit_lower, answer.by_rule, answer.months_examined, answer.runs_out_month,
          answer.first_refusal or None)],
    )  # fmt: skip
    columns = (
        Column("month", "Month", "number"), Column("added", "Added", "count"),
        Column("load_factor", "Load", "times"), *_SUMS, Column("fits", "Fits"),
    )  # fmt: skip
    rows = [
        (point.month, point.added, point.load_factor, *_sums(point.sums), "yes" if point.fits else "no")
        for point in answer.runway
    ]
    long = len(rows) >= LEAST_MONTHS
    runway = Table(
        "runway", "The run-way, month by month", columns, rows, look="folded" if long else "plain", printed=True
    )
    drawn = [Picture("Run-way", pictures.runway(answer, plan.id), _growth(plan), broad=True)] if long else []
    return Section("capacity", "Capacity", pictures=drawn, tables=[fit, runway])


def _growth(plan: Plan) -> str:
    growth = plan.request.growth
    if growth is None:
        return ""
    more = "1 more instance" if growth.instances_per_month == 1 else f"{growth.instances_per_month:g} more instances"
    line = "; the line is where the cloud is full" if plan.capacity and plan.capacity.runs_out_month is not None else ""
    return f"{more} a month, load growing by {growth.load_percent_per_month:g} % a month{line}"


def variants(plan: Plan) -> Section:
    columns = (
        Column("name", "Cloud", "name"), *_SUMS, Column("fit", "More that fit", "count"),
        Column("runs_out_month", "Full in month", "number"), Column("instance_days", "VM-days", "number"),
        Column("notes", "Notes", "listed"),
    )  # fmt: skip
    rows = [
        (variant.name, *_sums(variant.sums), variant.fit, variant.runs_out_month, variant.instance_days, variant.notes)
        for variant in plan.variants
    ]
    drawn = [Picture("Worst-off and mean T/B", pictures.variants(plan.variants, plan.id))] if rows else []
    table = Table("variants", "Clouds side by side", columns, rows)
    return Section("variants", "Side by side", pictures=drawn, tables=[table])


def sizing(plan: Plan) -> Section:
    rows = [
        (
            row.name, row.instances, row.vcpus, row.vcpus_then, row.saved, row.busiest, row.short_mean, row.short,
            row.riskiest,
        )
        for row in plan.sizing
    ]  # fmt: skip
    columns = (
        Column("class", "Class", "name"), Column("instances", "Instances", "count"),
        Column("vcpus", "now", "count", "vCPUs"), Column("vcpus_then", "then", "count", "vCPUs"),
        Column("saved", "saved", "count", "vCPUs"), Column("busiest", "Busiest at its p95", "ratio"),
        Column("short_mean", "mean", "time_share", "Short of CPU"),
        Column("short", "most", "time_share", "Short of CPU"),
        Column("riskiest", "Most at risk", "name"),
    )  # fmt: skip
    note = "Short of CPU is the part of the time in which an instance wants more vCPUs than it then has."
    table = Table("sizing", "What new sizes save and risk, by class", columns, rows)
    caption = "vCPUs of those that get another size, by class"
    drawn = [Picture(caption, pictures.sizes(plan.sizing[:MOST_CLASSES], plan.id))] if rows else []
    return Section("sizing", "Savings beside risk", note if rows else "", pictures=drawn, tables=[table])
