"""The report of a plan: its sections, variants beside each other, rows of tables; nothing is predicted here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from advisor.domain import Inventory, Plan, duration_in_words, settings_in_words, settings_named
from advisor.reports import host_sections, plan_view
from advisor.reports import host_sections as pictures
from advisor.reports import plan_sentences as words
from advisor.reports.parts import Column, Picture, ReportDocument, Section, Table, percent
from advisor.reports.plan_view import Background
from advisor.reports.shared_sentences import card_section, origin, refusals
from models.physics.prior import PriorPredictor
from profiler.look import AFTER, BEFORE

# Sections that compare clouds: before and after, month by month, variants, and sizes.

LEAST_SPREAD = 0.05  # T/B between the most and the least affected, for a picture of how it is distributed
MOST_CLASSES = 16  # in the picture of sizes; the table has all
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 1.0)


def before_and_after(plan: Plan) -> Section:
    """The cloud in figures, and how T/B is distributed, as a picture where it says more than the figures."""
    table = plan_view.sums_table(plan)
    values = _throughput_ratios(plan)
    everyone = [ratio for ratios in values.values() for ratio in ratios]
    spread = bool(everyone) and max(everyone) - min(everyone) >= LEAST_SPREAD  # else it is one vertical line
    lines = {name: (ratios, BEFORE if name == "before" else AFTER) for name, ratios in values.items()}
    drawn = (
        [Picture("Predicted T/B of every instance", pictures.distribution_picture(lines, plan.id, "T/B"))]
        if spread
        else []
    )
    return Section(
        "cloud",
        "The cloud, before and after" if len(table.rows) > 1 else "The cloud",
        "Predicted throughput beside others over throughput alone (T/B).",
        pictures=drawn,
        tables=[table, plan_view.scores_table(plan), _distribution(values)],
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
    answer, runway = plan.capacity, plan_view.runway_table(plan)
    if answer is None:
        return Section("capacity", "Capacity")
    long = len(runway.rows) >= plan_view.LEAST_MONTHS
    drawn = [Picture("Run-way", pictures.runway_picture(answer, plan.id), _growth(plan), broad=True)] if long else []
    return Section("capacity", "Capacity", pictures=drawn, tables=[plan_view.fit_table(plan), runway])


def _growth(plan: Plan) -> str:
    growth = plan.request.growth
    if growth is None:
        return ""
    more = "1 more instance" if growth.instances_per_month == 1 else f"{growth.instances_per_month:g} more instances"
    line = "; the line is where the cloud is full" if plan.capacity and plan.capacity.runs_out_month is not None else ""
    return f"{more} a month, load growing by {growth.load_percent_per_month:g} % a month{line}"


def variants(plan: Plan) -> Section:
    """Clouds side by side."""
    drawn = [Picture("Lowest and mean T/B", pictures.variants_picture(plan.variants, plan.id))] if plan.variants else []
    return Section("variants", plan_view.VARIANTS, pictures=drawn, tables=[plan_view.variants_table(plan)])


def sizing(plan: Plan) -> Section:
    """What new sizes save and risk."""
    caption = "vCPUs of those that get another size, by class"
    drawn = [Picture(caption, pictures.sizes_picture(plan.sizing[:MOST_CLASSES], plan.id))] if plan.sizing else []
    note = plan_view.SHORT if plan.sizing else ""
    return Section("sizing", plan_view.SIZING, note, pictures=drawn, tables=[plan_view.sizing_table(plan)])


MOST_STEPS = 300
_NO_LOSER = "none loses 1 % or more"
_AS_IS = "as they are"  # settings


def plan_report(inventory: Inventory, plan: Plan, background: Background) -> ReportDocument:
    """The report of a plan of any kind; `inventory` is the cloud that it was made for."""
    hosts = plan_view.hosts(inventory, plan)
    sections = (
        sizing(plan),
        capacity(plan),
        variants(plan),
        before_and_after(plan),
        _steps(inventory, plan),
        _commands(plan),
        _refused(plan),
        host_sections.pressure(background, plan),
        *host_sections.interference(background, plan),
        host_sections.throughput(hosts, plan),
        host_sections.instances(inventory, hosts, plan),
        _uncertainty(hosts, learned=plan.model_origin != PriorPredictor.origin),
        card_section(plan.model_version, plan.model_origin, background.card),
        _how(plan, background),
    )
    return ReportDocument(
        what="plan",
        title=words.TITLES[plan.request.kind],
        headline=words.headline(plan),
        sentences=words.summary(inventory, plan, hosts),
        facts=_facts(plan),
        sections=[section for section in sections if section],
        made_at=plan.created_at,
    )


def _facts(plan: Plan) -> Mapping[str, str]:
    facts = {"Model": f"{plan.model_version}: {origin(plan.model_origin)}."}
    if plan.degraded:
        facts["Degraded"] = "The active model failed; the analytic model answered in its place."
    if plan.generation is not None:
        facts["Inventory"] = f"generation {plan.generation:,}; the plan is stale when the cloud has another one"
    return {**facts, "Plan": plan.id}


def _steps(inventory: Inventory, plan: Plan) -> Section:
    after = {effect.instance: effect.throughput_ratio for effects in plan.after.values() for effect in effects}
    sizes = {instance.id: instance.vcpus for instance in inventory.instances}
    staged = len({step.stage for step in plan.steps}) > 1
    rows = [
        (
            number, shown.step.stage + 1 if staged else None, shown.step.subject, shown.step.action,
            shown.step.source or shown.origin, shown.step.host or "none", after.get(shown.step.instance),
            shown.step.gain, _loser(shown), sizes.get(shown.step.instance) if shown.step.vcpus else None,
            shown.step.vcpus, _takes(shown), tuple(_settings(shown)), tuple(_why(shown)),
        )
        for number, shown in enumerate(plan_view.steps(inventory, plan), 1)
    ]  # fmt: skip
    # What is the same for every step says nothing in a column, and takes the room of the reasons.
    moves = any(step.action in ("move", "place") or step.host is None for step in plan.steps)
    gains = any(step.gain and abs(step.gain.expected) >= words.FELT for step in plan.steps)
    losers = any(row[8] not in (None, _NO_LOSER) for row in rows)
    set_anew = any(row[12] not in ((), (_AS_IS,)) for row in rows)
    columns = (
        Column("step", "Step", "count"), Column("stage", "Stage", "count"), Column("instance", "Instance", "name"),
        Column("action", "What"), Column("source", "From", "name", shown=moves),
        Column("host", "To" if moves else "Host", "name"),
        Column("after", "T/B after the plan", "band"), Column("gain", "Gain", "band", shown=gains),
        Column("loser", "Neighbours", shown=losers), Column("vcpus_now", "now", "count", "vCPUs"),
        Column("vcpus", "then", "count", "vCPUs"), Column("takes", "Takes", "duration"),
        Column("settings", "Settings", "listed", shown=set_anew), Column("why", "Why", "sentences"),
    )  # fmt: skip
    note = "Neighbours and reasons are those of the step itself; later ones change more."
    if staged:
        note = f"Steps of one stage may run together; those of the next one begin when it is done. {note}"
    table = Table("steps", "Steps, in this order", columns, rows, most=MOST_STEPS)
    return Section("steps", "What to do", note if rows else "", tables=[table])


def _takes(shown: plan_view.StepView) -> str | None:
    return None if shown.step.duration_s is None else duration_in_words(shown.step.duration_s)


def _loser(shown: plan_view.StepView) -> str | None:
    if shown.step.new_vm is None:
        return None
    if not shown.step.neighbours:
        return "none there"
    if shown.loser is None or shown.loser.before is None or shown.loss < words.FELT:
        return _NO_LOSER
    before, after = shown.loser.before.expected, shown.loser.throughput_ratio.expected
    return f"{shown.loser.instance} {percent(before)} → {percent(after)}"


def _settings(shown: plan_view.StepView) -> Iterator[str]:
    step = shown.step
    own = [f"{name} {value}" for name, value in settings_named(step.settings)]
    yield from own or ([_AS_IS] if step.host else [])
    for name, wanted in sorted(step.changes.items()):
        yield f"{name}: {settings_in_words(wanted)}"


def _why(shown: plan_view.StepView) -> Iterator[str]:
    step = shown.step
    if step.why:
        yield step.why
    yield from step.notes
    if step.host is None:
        yield "No host can take it; see instances without a host."


def _commands(plan: Plan) -> Section:
    tables = []
    for name, caption, steps in (
        ("commands", "Commands, in this order", plan.steps), ("undo", "To undo, in this order", plan.undo)
    ):  # fmt: skip
        rows = [
            (number, step.subject, command.tool, (" ".join(command.argv),),
             (" ".join(command.undo),) if command.undo else None, command.note)
            for number, step in enumerate(steps, 1)
            for command in step.commands
        ]  # fmt: skip
        columns = (
            Column("step", "Step", "count"), Column("instance", "Instance", "name"), Column("tool", "Tool"),
            Column("command", "Command", "argv"), Column("undo", "Undo", "argv", shown=name == "commands"),
            Column("note", "Note"),
        )  # fmt: skip
        tables.append(Table(name, caption, columns, rows, look="folded", printed=name == "commands"))
    note = "Nothing was run: read them and carry them out yourself. Words with blanks in them need quotes in a shell."
    if not any(table.rows for table in tables):
        return Section("commands", "Commands")
    return Section("commands", "Commands", note, tables=tables)


def _refused(plan: Plan) -> Section:
    rows = [(step.instance, tuple(refusals(step.rejected))) for step in plan.steps if step.host is None]
    columns = (Column("instance", "Instance", "name"), Column("reasons", "Why", "sentences"))
    table = Table("refused", "Refusals of each instance", columns, rows, most=50)
    return Section("refused", "Instances without a host, and why", tables=[table])


def _uncertainty(hosts: Sequence[plan_view.HostRows], *, learned: bool) -> Section:
    there = [row for host in hosts for row in host.rows if row.after is not None]
    if not there:
        return Section("uncertainty", "What is not sure")
    widths = sorted(row.after.throughput_ratio.upper - row.after.throughput_ratio.lower for row in there if row.after)
    outside = sum(1 for row in there if row.after and row.after.outside_training)
    rows = [(len(there), outside, outside / len(there), quantile(widths, 0.5), quantile(widths, 0.9), widths[-1],
             sum(1 for row in there if row.may_break))]  # fmt: skip
    columns = (
        Column("predictions", "Predictions", "count"), Column("outside", "Outside training", "count", shown=learned),
        Column("outside_share", "Share of all", "share", shown=learned),
        Column("width", "Median width, points", "figure"),
        Column("width_p90", "Nine in ten below", "figure"), Column("width_most", "Widest", "figure"),
        Column("may_break", "May break a limit", "count"),
    )  # fmt: skip
    note = "An interval is expected to hold the value nine times out of ten; its width is in percentage points of T/B."
    if learned:
        note += " Outside the training data the analytic model answers alone, with a wider interval."
    return Section(
        "uncertainty",
        "What is not sure",
        note,
        tables=[Table("uncertainty", "Intervals of T/B after the plan", columns, rows)],
    )


def _how(plan: Plan, background: Background) -> Section:
    facts = {
        "What they are": "Predictions, not measurements.",
        "T/B": "Relative throughput: that of an instance beside its neighbours over that alone on the same host; 100 "
        "% means that "
        "the neighbours do not slow it.",
        "Pressure": "The uncontended demand of a host's residents for a resource, over its capacity, by solo profiles, "
        "load and limits.",
    }
    if any(abs(loss.taken) >= host_sections.FELT for loss in (*background.harm_before, *background.harm_after)):
        facts["Antagonists"] = (
            "The difference between the predicted T/B without that one neighbour and with it. Without it the others "
            "use more, so the figures of several neighbours do not add up to the whole loss."
        )
    if searched := words.searched(plan):
        facts["Search"] = " ".join(searched)
    if background.notes:
        facts["Left out"] = " ".join(background.notes)
    return Section("how", "How these figures were obtained", facts=facts)
