"""The tables of a plan that compare clouds: figures, month by month, side by side, and sizes."""

from __future__ import annotations

from typing import Literal

from advisor.domain import SCORE_BUCKETS, Plan, PlanSums
from advisor.reports.parts import Column, Table

SCORES = "VMs by predicted score, 100 = uncontended"
SIZING, VARIANTS = "Savings beside risk", "Side by side"
SHORT = "Contended is the part of the time in which the demand exceeds the vCPUs that an instance then has."
LEAST_MONTHS = 3  # of a run-way, for a picture of it
_SUMS = (
    Column("hosts", "Hosts", "count"), Column("hosts_used", "In use", "count"),
    Column("instances", "Instances", "count"), Column("below", "Below their limit", "count"),
    Column("worst", "Lowest T/B", "ratio"), Column("mean", "Mean", "ratio"),
    Column("total", "Sum of T/B", "number", shown=False), Column("watts", "W", "number"),
    Column("price", "Price a month", "number"),
)  # fmt: skip


def sums(plan: Plan) -> Table:
    """The cloud in figures before and after, or now where a plan changes nothing."""
    clouds = [("before", plan.sums_before), ("after", plan.sums_after)]
    if plan.sums_before == plan.sums_after:
        clouds = [("now", plan.sums_before)]
    rows = [(name, *_sums(sums)) for name, sums in clouds if sums is not None]
    return Table("sums", "The cloud in figures", (Column("cloud", "", "name"), *_SUMS), rows)


def scores(plan: Plan) -> Table:
    """Predicted scores of VMs before and after, or now; without rows in a plan that has none."""
    clouds = [("before", plan.sums_before), ("after", plan.sums_after)]
    if plan.sums_before == plan.sums_after:
        clouds = [("now", plan.sums_before)]
    rows = [
        (name, round(sums.score, 1), round(sums.score_lowest, 1), *sums.scores)
        for name, sums in clouds
        if sums is not None and sums.score is not None and sums.score_lowest is not None
    ]
    buckets = (Column(f"score_{name.replace('-', '_')}", name, "count") for name in SCORE_BUCKETS)
    columns = (
        Column("cloud", "", "name"), Column("score", "Mean score", "number"),
        Column("score_lowest", "Lowest", "number"), *buckets,
    )  # fmt: skip
    return Table("scores", SCORES, columns, rows)


def _sums(sums: PlanSums) -> tuple[float | None, ...]:
    return (
        sums.hosts, sums.hosts_used, sums.instances, sums.below, sums.worst, sums.mean, sums.total, sums.watts,
        sums.price,
    )  # fmt: skip


def fit(plan: Plan) -> Table:
    """How many more of a mix fit; without a row where that was not asked."""
    answer = plan.capacity
    columns = (
        Column("fit", "As expected", "count"), Column("fit_lower", "At the lower edges", "count"),
        Column("by_rule", "By sizes alone", "count"), Column("months_examined", "Months examined", "count"),
        Column("runs_out_month", "Full in month", "number"),
        Column("first_refusal", "In the way of one more", "prose", shown=False),
    )  # fmt: skip
    rows = [] if answer is None else [
        (answer.fit, answer.fit_lower, answer.by_rule, answer.months_examined, answer.runs_out_month,
         answer.first_refusal or None)
    ]  # fmt: skip
    return Table("capacity", "How many more of the mix fit", columns, rows)


def runway(plan: Plan) -> Table:
    """The cloud month by month; without rows where no growth was given."""
    columns = (
        Column("month", "Month", "number"), Column("added", "Added", "count"),
        Column("load_factor", "Load", "times"), *_SUMS, Column("fits", "Fits"),
    )  # fmt: skip
    rows = [
        (point.month, point.added, point.load_factor, *_sums(point.sums), "yes" if point.fits else "no")
        for point in (plan.capacity.runway if plan.capacity else ())
    ]
    look: Literal["folded", "plain"] = "folded" if len(rows) >= LEAST_MONTHS else "plain"
    return Table("runway", "The run-way, month by month", columns, rows, look=look, printed=True)


def variants(plan: Plan) -> Table:
    """Clouds side by side."""
    columns = (
        Column("name", "Cloud", "name"), *_SUMS, Column("fit", "More that fit", "count"),
        Column("runs_out_month", "Full in month", "number"), Column("instance_days", "VM-days", "number"),
        Column("notes", "Notes", "listed"),
    )  # fmt: skip
    rows = [
        (variant.name, *_sums(variant.sums), variant.fit, variant.runs_out_month, variant.instance_days, variant.notes)
        for variant in plan.variants
    ]
    return Table("variants", "Clouds side by side", columns, rows)


def sizing(plan: Plan) -> Table:
    """What new sizes save and risk, by class."""
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
        Column("short_mean", "mean", "time_share", "Contended"),
        Column("short", "most", "time_share", "Contended"),
        Column("riskiest", "Most at risk", "name"),
    )  # fmt: skip
    return Table("sizing", "What new sizes save and risk, by class", columns, rows)
