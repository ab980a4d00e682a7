"""Sections that compare clouds: before and after, month by month, variants, and sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from advisor.domain import Plan
from advisor.reports import plan_pictures as pictures
from advisor.reports import plan_tables, plan_view
from advisor.reports.parts import Column, Picture, Section, Table
from profiler.look import AFTER, BEFORE

LEAST_SPREAD = 0.05  # T/B between the most and the least affected, for a picture of how it is distributed
MOST_CLASSES = 16  # in the picture of sizes; the table has all
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 1.0)


def before_and_after(plan: Plan) -> Section:
    """The cloud in figures, and how T/B is distributed, as a picture where it says more than the figures."""
    table = plan_tables.sums(plan)
    values = _throughput_ratios(plan)
    everyone = [ratio for ratios in values.values() for ratio in ratios]
    spread = bool(everyone) and max(everyone) - min(everyone) >= LEAST_SPREAD  # else it is one vertical line
    lines = {name: (ratios, BEFORE if name == "before" else AFTER) for name, ratios in values.items()}
    drawn = [Picture("Predicted T/B of every instance", pictures.distribution(lines, plan.id, "T/B"))] if spread else []
    return Section(
        "cloud",
        "The cloud, before and after" if len(table.rows) > 1 else "The cloud",
        "Predicted throughput beside others over throughput alone (T/B).",
        pictures=drawn,
        tables=[table, plan_tables.scores(plan), _distribution(values)],
    )


def _throughput_ratios(plan: Plan) -> dict[str, list[float]]:
    """The expected T/B of every instance in each cloud, lowest first; one cloud where the plan changes none."""
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


def capacity(plan: Plan) -> Section:
    """How much more fits, and the run-way, as a picture where it is long."""
    answer, runway = plan.capacity, plan_tables.runway(plan)
    if answer is None:
        return Section("capacity", "Capacity")
    long = len(runway.rows) >= plan_tables.LEAST_MONTHS
    drawn = [Picture("Run-way", pictures.runway(answer, plan.id), _growth(plan), broad=True)] if long else []
    return Section("capacity", "Capacity", pictures=drawn, tables=[plan_tables.fit(plan), runway])


def _growth(plan: Plan) -> str:
    growth = plan.request.growth
    if growth is None:
        return ""
    more = "1 more instance" if growth.instances_per_month == 1 else f"{growth.instances_per_month:g} more instances"
    line = "; the line is where the cloud is full" if plan.capacity and plan.capacity.runs_out_month is not None else ""
    return f"{more} a month, load growing by {growth.load_percent_per_month:g} % a month{line}"


def variants(plan: Plan) -> Section:
    """Clouds side by side."""
    drawn = [Picture("Lowest and mean T/B", pictures.variants(plan.variants, plan.id))] if plan.variants else []
    return Section("variants", plan_tables.VARIANTS, pictures=drawn, tables=[plan_tables.variants(plan)])


def sizing(plan: Plan) -> Section:
    """What new sizes save and risk."""
    caption = "vCPUs of those that get another size, by class"
    drawn = [Picture(caption, pictures.sizes(plan.sizing[:MOST_CLASSES], plan.id))] if plan.sizing else []
    note = plan_tables.SHORT if plan.sizing else ""
    return Section("sizing", plan_tables.SIZING, note, pictures=drawn, tables=[plan_tables.sizing(plan)])
