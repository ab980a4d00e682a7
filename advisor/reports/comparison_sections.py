"""Sections that compare clouds: before and after, month by month, and variants."""

from __future__ import annotations

from advisor.domain import Plan, PlanSums
from advisor.reports import plan_pictures as pictures
from advisor.reports.parts import Column, Picture, Section, Table

_SUMS = (
    Column("hosts", "Hosts", "count"), Column("hosts_used", "In use", "count"),
    Column("instances", "Instances", "count"), Column("below", "Below their limit", "count"),
    Column("worst", "Worst-off", "ratio"), Column("mean", "Mean", "ratio"), Column("total", "Sum of T/B", "number"),
    Column("watts", "W", "number"), Column("price", "Price a month", "number"),
)  # fmt: skip


def before_and_after(plan: Plan) -> Section:
    clouds = [("before", plan.sums_before), ("after", plan.sums_after)]
    if plan.sums_before == plan.sums_after:
        clouds = [("now", plan.sums_before)]
    rows = [(name, *_sums(sums)) for name, sums in clouds if sums is not None]
    table = Table("sums", "The cloud in figures", (Column("cloud", "", "name"), *_SUMS), rows)
    return Section(
        "cloud", "The cloud", "Predicted throughput beside others over throughput alone (T/B).", tables=[table]
    )


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
         Column("first_refusal", "In the way of one more", "prose")),
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
    runway = Table("runway", "The run-way, month by month", columns, rows, look="folded")
    drawn = [Picture("Run-way", pictures.runway(answer, plan.id), _growth(plan), broad=True)] if answer.runway else []
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
        Column("name", "Cloud", "name"),
        *_SUMS,
        Column("fit", "More that fit", "count"),
        Column("runs_out_month", "Full in month", "number"),
        Column("instance_days", "VM-days", "number"),
        Column("notes", "Notes", "listed"),
    )
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
        Column("vcpus", "vCPUs now", "count"), Column("vcpus_then", "vCPUs then", "count"),
        Column("saved", "Saved", "count"), Column("busiest", "Busiest at its p95", "share"),
        Column("short_mean", "Short of CPU, mean", "share"), Column("short", "Most short of CPU", "share"),
        Column("riskiest", "Who is that", "name"),
    )  # fmt: skip
    note = "Short of CPU is the part of the time in which an instance wants more vCPUs than it then has."
    table = Table("sizing", "What new sizes save and risk, by class", columns, rows)
    return Section("sizing", "Savings beside risk", note if rows else "", tables=[table])
