"""Sections and pictures of hosts in a report: pressure before and after, interference, the host of each move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from advisor.domain import Band, Capacity, ClassSizing, Effect, Inventory, Plan, Variant
from advisor.explanation.comparison import AttributedLoss
from advisor.reports import plan_view
from advisor.reports.parts import (
    HARMED,
    PRESSED,
    Column,
    HeatMap,
    Picture,
    Section,
    Table,
    count,
    drawn,
    joined,
    percent,
    points,
    scale,
)
from advisor.reports.plan_view import Background, HostRows, Pressures
from models.physics.prior import PriorPredictor
from profiler import pictures
from profiler.look import AFTER, BAD, BEFORE, NEW, SHADES, inline, short
from profiler.pictures import INK, LINE, PAPER, PERCENT_TICKS, SOFT

# Pictures of a plan as inline SVG: throughput per host, distributions, pressure, run-way, variants, sizes.

MAX_ROWS = 16  # the others of a crowded host are in the table
MAX_NAME = 20
MAX_COUNTED = 30  # letters of a name in the wide picture of pressure
_WIDTH, _HEIGHT = 3.9, 2.5  # inches
_ROW = 0.27
RANGES = tuple(words for _, words in scale(PRESSED, percent))


@drawn
def throughput_picture(host: HostRows, salt: str) -> Markup:
    """The instances of a host with their T/B before and after, and their limits."""
    rows = host.rows[:MAX_ROWS]
    figure, (axes,) = pictures.new_figure(width=_WIDTH, height=0.62 + _ROW * len(rows))
    for position, row in enumerate(rows):
        moved = row.comes or row.goes or row.change
        if row.before is not None and moved:
            _band(axes, row.before, position - 0.18, BEFORE, hollow=True)
        if row.after is not None:
            place = position + (0.18 if moved else 0.0)
            _band(axes, row.after.throughput_ratio, place, NEW if row.comes else AFTER, hollow=False)
        axes.plot([row.limit.throughput] * 2, [position - 0.42, position + 0.42], color=BAD, linewidth=1.3)
    bands = [band for row in rows for band in (row.before, row.after and row.after.throughput_ratio) if band]
    most = max((band.upper for band in bands), default=1.0)
    axes.set_xlim(0, min(max(1.1, most + 0.02), 1.5))
    axes.set_xticks(*PERCENT_TICKS)
    pictures.named_rows(axes, [short(row.instance, MAX_NAME) for row in rows])
    pictures.line_at(axes, 1, vertical=True)
    return inline(
        figure, f"{salt} {host.name}", f"T/B of the instances on {host.name}; the last table has every figure"
    )


def _band(axes: Any, band: Band, y: float, colour: str, *, hollow: bool) -> None:
    pictures.interval(axes, [band.lower, band.upper], y, colour)
    axes.plot(
        [band.expected], [y], "o", markersize=4.4, markerfacecolor=PAPER if hollow else colour, markeredgecolor=colour,
        markeredgewidth=1.2,
    )  # fmt: skip


@drawn
def distribution_picture(lines: Mapping[str, tuple[Sequence[float], str]], salt: str, x: str) -> Markup:
    """The number of instances at or below each T/B, one line per name: (values, colour)."""
    figure, (axes,) = pictures.new_figure(width=_WIDTH, height=_HEIGHT)
    curves = [(name, pictures.cumulative(values)) for name, (values, _) in lines.items()]
    pictures.distribution(axes, curves, x, of="instances", colours=[colour for _, colour in lines.values()])
    low = min((min(values) for values, _ in lines.values()), default=0.0)
    axes.set_xlim(min(max(low - 0.05, 0), 0.9), max(1.02, *(max(values) + 0.01 for values, _ in lines.values())))
    axes.locator_params(axis="x", nbins=6)
    axes.xaxis.set_major_formatter(lambda value, _at: f"{100 * value:.0f} %")
    if len(lines) > 1:
        pictures.legend_below(figure, 3)
    return inline(figure, f"{salt} distribution", f"Share of instances up to each T/B: {', '.join(lines)}")


@drawn
def pressure_picture(counts: Mapping[str, Sequence[int]], salt: str) -> Markup:
    """The number of hosts in use in each band of pressure, one bar per name, from idle to overloaded."""
    figure, (axes,) = pictures.new_figure(width=2.1 * _WIDTH, height=0.95 + 0.24 * len(counts))
    ends = [0] * len(counts)
    for number, (shade, words) in enumerate(zip(SHADES, RANGES, strict=True)):
        widths = [widths_of[number] for widths_of in counts.values()]
        axes.barh(
            range(len(counts)), widths, left=ends, height=0.72, color=shade, edgecolor=SOFT, linewidth=0.4, label=words
        )
        for at, (width, end) in enumerate(zip(widths, ends, strict=True)):
            if width >= 0.05 * max(sum(widths_of) for widths_of in counts.values()):
                colour = PAPER if number == len(SHADES) - 1 else INK
                axes.text(end + width / 2, at, f"{width}", ha="center", va="center", fontsize=7, color=colour)
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    pictures.named_rows(axes, [short(name, MAX_COUNTED) for name in counts])
    pictures.label(axes, x="hosts in use")
    axes.xaxis.get_major_locator().set_params(integer=True)
    pictures.legend_below(figure, 6, handlelength=1.2, columnspacing=1.1)
    return inline(
        figure, f"{salt} pressure", "Hosts by demand over capacity, for each resource; the table has the counts"
    )


def by_band_picture(values: Sequence[float | None]) -> list[int]:
    """The number of values in each band of PRESSED and above; None is not counted."""
    counts = [0] * (len(PRESSED) + 1)
    for value in values:
        if value is not None:
            counts[next((at for at, (_, below) in enumerate(PRESSED) if value < below), len(PRESSED))] += 1
    return counts


@drawn
def runway_picture(capacity: Capacity, salt: str) -> Markup:
    """By month: the most affected instance, and the number below their limit, until the cloud is full."""
    points = capacity.runway
    months = [point.month for point in points]
    figure, (upper, lower) = pictures.new_figure(2, columns=1, width=2.1 * _WIDTH, height=1.5 * _HEIGHT)
    upper.plot(months, [point.sums.worst for point in points], "o-", color=AFTER, markersize=3.5, label="lowest")
    upper.plot(months, [point.sums.mean for point in points], "s--", color=BEFORE, markersize=3, label="mean")
    upper.set_ylim(0, 1.05)
    upper.set_yticks(*PERCENT_TICKS)
    pictures.label(upper, y="T/B")
    lower.plot(months, [point.sums.instances for point in points], "o-", color=AFTER, markersize=3.5, label="instances")
    lower.plot(
        months, [point.sums.below for point in points], "s--", color=BAD, markersize=3, label="below their limit"
    )
    lower.set_ylim(bottom=0)
    pictures.label(lower, x="months from now", y="instances")
    for axes in (upper, lower):
        axes.xaxis.get_major_locator().set_params(integer=True)
        if capacity.runs_out_month is not None:
            pictures.line_at(axes, capacity.runs_out_month, vertical=True, colour=BAD)
        axes.set_xlim(min(months) - 0.2, max(months) + 0.2)
        pictures.legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return inline(figure, f"{salt} runway", "The cloud month by month; the table has every figure")


@drawn
def variants_picture(shown: Sequence[Variant], salt: str) -> Markup:
    """The lowest and the mean T/B of each variant."""
    rows = [(variant.name, variant.sums.mean, variant.sums.worst) for variant in shown]
    figure, axes = _pairs(rows, ("mean", "lowest"))
    axes.set_xlim(0, 1.1)
    axes.set_xticks(*PERCENT_TICKS)
    return inline(figure, f"{salt} variants", "Lowest and mean T/B of each variant; the table has every figure")


@drawn
def sizes_picture(shown: Sequence[ClassSizing], salt: str) -> Markup:
    """The vCPUs of each class now and with the new sizes."""
    figure, axes = _pairs([(row.name, row.vcpus, row.vcpus_then) for row in shown], ("now", "then"))
    axes.set_xlim(left=0)
    pictures.label(axes, x="vCPUs")
    return inline(figure, f"{salt} sizes", "vCPUs of each class now and then; the table has every figure")


def _pairs(rows: Sequence[tuple[str, float, float]], names: tuple[str, str]) -> tuple[pictures.Figure, Any]:
    """Two figures of each row as two marks that a line joins; the second one is what counts."""
    figure, (axes,) = pictures.new_figure(width=_WIDTH, height=0.85 + 0.3 * len(rows))
    for at, (_, first, second) in enumerate(rows):
        axes.plot([first, second], [at, at], color=LINE, linewidth=1.4)
    axes.plot([first for _, first, _ in rows], range(len(rows)), "s", color=BEFORE, markersize=4.5, label=names[0])
    axes.plot([second for _, _, second in rows], range(len(rows)), "o", color=AFTER, markersize=5, label=names[1])
    pictures.named_rows(axes, [short(name, MAX_NAME) for name, _, _ in rows])
    pictures.legend_below(figure, 2)
    return figure, axes


RESOURCES = {
    "cpu": "CPU",
    "driver_domain": "driver domain",
    "nic": "network",
    "disk": "disk",
    "memory": "memory bandwidth",
}
ANTAGONISTS_NOW = "harm"  # id of the section, and of its table
MAX_HOSTS = 40  # rows of the heat map
MOST_INSTANCES = 400
FEW_ROWS = 25  # on the page, where nothing happens to more of them
MOST_PAIRS = 50  # of a victim and a neighbour
MOST_STRONGEST = 3  # antagonists named in a sentence
FELT = 0.01  # T/B: neighbours who take less from each other are not shown one by one
IDLE = 0.005  # of a capacity: a resource of which no instance asks for more is reported in words


def pressure(background: Background, plan: Plan) -> Section:
    """Hosts by resource, highest pressure first; before and after where they differ."""
    before, after = background.before, background.after
    if not after and not before:
        return Section("pressure", "Pressure on the hosts")
    title_when = "now" if before == after else f"now and {plan_view.afterwards(plan)}"
    same = before == after
    clouds = {"now": after} if same else {"before": before, "after": after}
    names = sorted({*before, *after}, key=lambda name: (-_most(name, before, after), name))
    known = {
        resource: [
            value for cloud in clouds.values() for of in cloud.values() if (value := of.get(resource)) is not None
        ]
        for resource in RESOURCES
    }
    idle = [name for name, values in known.items() if name != "cpu" and values and max(values) < IDLE]
    columns = [Column("host", "Host", "name")]
    columns += [
        Column(
            resource if same else f"{resource}_{cloud}",
            title if same else cloud,
            "pressure",
            "" if same else title,
            shown=resource not in idle,
        )
        for resource, title in RESOURCES.items()
        for cloud in clouds
    ]
    rows = [
        (name, *(by_host.get(name, {}).get(resource) for resource in RESOURCES for by_host in clouds.values()))
        for name in names
    ]
    in_use = {
        cloud: {host: by_host[host] for host, there in effects.items() if there and host in by_host}
        for (cloud, by_host), effects in zip(clouds.items(), (plan.before, plan.after), strict=False)
    }
    counts = {
        (resource, cloud): by_band_picture([of.get(resource) for of in by_host.values()])
        for resource in RESOURCES
        for cloud, by_host in in_use.items()
    }
    fewer = len({len(by_host) for by_host in in_use.values()}) > 1
    bars = {  # of a resource that is pressed nowhere they would say nothing, but that fewer hosts are in use
        _bar(resource, cloud, same=same): bands
        for (resource, cloud), bands in counts.items()
        if any(sum(counts[resource, name][1:]) for name in clouds) or (fewer and resource == "cpu")
    }
    caption = "Hosts in use, by demand over capacity"
    drawn = [Picture(caption, pressure_picture(bars, plan.id), broad=True)] if bars and len(names) > 1 else []
    heads = [Column(f"band_{at}", words, "count") for at, words in enumerate(RANGES)]
    totals = [(_bar(resource, cloud, same=same), *bands) for (resource, cloud), bands in counts.items() if sum(bands)]
    note = (
        "Demand over capacity of each resource, the most pressed hosts first. Above 100 % some instances must wait; a "
        "dash: the capacity is not known, or there is no such resource."
    )
    if idle:
        note += f" There is almost no demand for {joined([RESOURCES[resource] for resource in idle])}."
    return Section(
        "pressure",
        f"Pressure on the hosts {title_when}",
        note,
        pictures=drawn,
        key=scale(PRESSED, percent),
        tables=[
            Table("pressure", "Hosts by resources", columns, rows, most=MAX_HOSTS, look="matrix"),
            Table(
                "pressure_bands",
                "Hosts in use in each band",
                (Column("resource", "", "name"), *heads),
                totals,
                look="folded",
            ),
        ],
    )


def _bar(resource: str, cloud: str, *, same: bool) -> str:
    return RESOURCES[resource] if same else f"{RESOURCES[resource]}, {cloud}"


def _most(name: str, *clouds: Pressures) -> float:
    return max((value for cloud in clouds for value in cloud.get(name, {}).values() if value is not None), default=0.0)


def interference(background: Background, plan: Plan) -> tuple[Section, ...]:
    """Antagonists and victims as they are now, then after the plan where it changes any prediction."""
    now = _interference(ANTAGONISTS_NOW, "now", background.harm_before)
    if background.harm_before == background.harm_after:
        return (now,)
    return now, _interference("harm_after", plan_view.afterwards(plan), background.harm_after)


def _interference(name: str, when: str, losses: Sequence[AttributedLoss]) -> Section:
    """A heat map per host, victims by antagonists, and all pairs in a table."""
    title = f"Antagonists and victims {when}"
    if not losses:
        return Section(name, title)
    by_host: dict[str, list[AttributedLoss]] = {}
    for loss in losses:
        by_host.setdefault(loss.host, []).append(loss)
    columns = (
        Column("host", "Host", "name"), Column("victim", "Victim"), Column("neighbour", "Antagonist"),
        Column("ratio", "T/B", "ratio"), Column("without", "Without that antagonist", "ratio"),
        Column("taken", "Taken", "harm"),
    )  # fmt: skip
    by_host = {host: felt for host, pairs in by_host.items() if (felt := _felt(pairs))}
    ordered = sorted(losses, key=lambda loss: (-loss.taken, loss.host, loss.victim, loss.neighbour))
    rows = [(loss.host, loss.victim, loss.neighbour, loss.ratio, loss.without, loss.taken) for loss in ordered]
    seen = sum(abs(loss.taken) >= FELT for loss in losses)
    most = min(max(seen, FEW_ROWS), MOST_PAIRS)
    return Section(
        name,
        title,
        f"Percentage points of T/B that the instance of a column takes from the instance of a row, {when}: the "
        "predicted T/B of the row without that one neighbour, minus its T/B with it. Of the hosts with the most "
        "affected instances "
        + (
            f"{count(len(by_host), 'host')} {'is' if len(by_host) == 1 else 'are'} shown; on the others no neighbour "
            "takes a point."
            if by_host
            else "there is none on which a neighbour takes a point."
        ),
        sentences=_strongest(ordered),
        key=scale(HARMED, lambda value: f"{100 * value:.0f}") if by_host else (),
        matrices=[_heat_map(host, pairs) for host, pairs in by_host.items()],
        tables=[Table(name, f"All pairs {when}, the largest effect first", columns, rows, most=most, look="folded")],
    )


def _strongest(losses: Sequence[AttributedLoss]) -> list[str]:
    """The antagonists with the largest effects, each with its most affected victim; `losses` are the largest first."""
    largest: dict[tuple[str, str], AttributedLoss] = {}
    for loss in losses:
        if loss.taken >= FELT:
            largest.setdefault((loss.host, loss.neighbour), loss)
    if not largest:
        return []
    named = [
        f"{loss.neighbour} on {loss.host} takes {points(loss.taken)[1:]} points from {loss.victim}"
        for loss in list(largest.values())[:MOST_STRONGEST]
    ]
    more = f"; {count(len(largest), 'antagonist')} in all" if len(largest) > MOST_STRONGEST else ""
    return [f"{'; '.join(named)}{more}."]


def _felt(pairs: Sequence[AttributedLoss]) -> list[AttributedLoss]:
    """The pairs among those that lose a point by one neighbour, or that take one."""
    felt = [pair for pair in pairs if abs(pair.taken) >= FELT]
    involved = {name for pair in felt for name in (pair.victim, pair.neighbour)}
    return [pair for pair in pairs if {pair.victim, pair.neighbour} <= involved]


def _heat_map(host: str, pairs: Sequence[AttributedLoss]) -> HeatMap:
    """Victims by antagonists, those with the largest effect first."""
    taken: Mapping[tuple[str, str], float] = {(pair.victim, pair.neighbour): pair.taken for pair in pairs}
    felt = sorted((pair for pair in pairs if abs(pair.taken) >= FELT), key=lambda pair: -pair.taken)
    across = list(dict.fromkeys(pair.neighbour for pair in felt))
    victims = list(dict.fromkeys(pair.victim for pair in felt))
    return HeatMap(host, across, [(name, [taken.get((name, other)) for other in across]) for name in victims], "harm")


def throughput(hosts: Sequence[plan_view.HostRows], plan: Plan) -> Section:
    """A picture of each host that the plan changes, else of every used host; the worst where there are many."""
    chosen = plan_view.worth_a_picture(hosts, plan)
    left_out = sum(1 for host in hosts if host.rows) - len(chosen)
    more = (
        f" {left_out:,} more host{'' if left_out == 1 else 's'} with instances are in the last table."
        if left_out
        else ""
    )
    return Section(
        "throughput",
        f"Predicted throughput on each host, {plan_view.when(plan)}",
        "In percent of the instance's uncontended speed; the line is the 90 % interval; red: its limit."
        + ("" if plan_view.unchanged(plan) else " Hollow: before the plan; filled: after it; green: comes here.")
        + more,
        pictures=[
            Picture(host.name, throughput_picture(host, plan.id), "" if host.changed else "unchanged")
            for host in chosen
        ],
    ) if chosen else Section("throughput", "")  # fmt: skip


def _waiting(effect: Effect | None) -> tuple[float | None, ...]:
    """Expected latency with its edges, and expected jitter; an overloaded instance has none that is finite."""
    if effect is None:
        return None, None, None, None
    late = effect.latency_shown
    jitter = effect.jitter_ratio.expected if effect.jitter_ratio and not effect.overloaded else None
    return late.expected, late.lower, late.upper, jitter


def instances(inventory: Inventory, hosts: Sequence[plan_view.HostRows], plan: Plan) -> Section:
    """Every instance with its predictions, the most affected first; one that moves stands once, on its new host.

    On the page are those that are or may come below a limit, that are slowed, and the instances that the plan changes
    by a point.
    """
    left = {row.instance: host.name for host in hosts for row in host.rows if row.goes}
    arrived = {row.instance for host in hosts for row in host.rows if row.comes}
    every = [
        (host.name, row) for host in hosts for row in host.rows if not (row.goes and row.instance in arrived)
    ]  # fmt: skip
    moved = not plan_view.unchanged(plan)
    every.sort(key=lambda entry: (not _notable(entry[1]), plan_view.ratio(entry[1]), entry[1].instance, entry[0]))
    rows: list[tuple[Any, ...]] = [
        (
            row.instance, host, left.get(row.instance) if row.comes else None, row.limit.throughput,
            row.before, _happens(row, left), row.after.throughput_ratio if row.after else None,
            None if row.before is None or row.after is None else row.change,
            *_waiting(row.after),
            row.after.cpu.short if row.after and row.after.cpu else None,
            "yes" if row.after and row.after.outside_training else None,
        )
        for host, row in every
    ]  # fmt: skip
    then = plan_view.afterwards(plan).capitalize() if moved else ""
    least = {row.limit.throughput for _, row in every}
    columns = (
        Column("instance", "Instance", "name"), Column("host", "Host", "name"), Column("source", "From", "name"),
        Column("limit", "Limit", "ratio", shown=len(least) > 1), Column("before", "T/B now", "band", shown=moved),
        Column("happens", "", "name", then), Column("after", "T/B", "band", then),
        Column("change", "Change, points", "points", then, shown=moved),
        Column("latency", "Latency", "times", then), Column("latency_lower", "at least", "times", then, shown=False),
        Column("latency_upper", "at most", "latest", then), Column("jitter", "Jitter", "times", then),
        Column("short", "Contended", "time_share", then),
        Column("outside_training", "Outside training", over=then, shown=plan.model_origin != PriorPredictor.origin),
    )  # fmt: skip
    empty = sum(1 for host in hosts if not host.rows)
    limit = (
        f"A limit is the instance's own, or {percent(plan.request.keep_ratio)} where it has none"
        if len(least) > 1
        else f"The limit of each instance is {percent(min(least, default=plan.request.keep_ratio))}"
    )
    note = (
        f"{limit}; an instance that may fall below it does so at the worse edge of the interval. Latency and jitter "
        "are multiples of what the instance has alone. Contended is the part of the time in which the instance "
        "gets less CPU than its demand."
        + (f" {count(empty, 'host')} {'is' if empty == 1 else 'are'} empty." if empty else "")
    )
    notable = sum(1 for _, row in every if _notable(row))
    none_notable = (
        f"No instance is near a limit or below {percent(1 - plan_view.SLOWED)} of its uncontended speed"
        + (f" {plan_view.afterwards(plan)}, and the plan changes none by a point." if moved else ".")
    )  # fmt: skip
    first = f"the most affected {plan_view.afterwards(plan)} first" if moved else "the most affected first"
    caption = first.capitalize() if notable else f"All instances, {first}"
    table = Table(
        "instances", caption, columns, rows,
        most=min(notable or FEW_ROWS, MOST_INSTANCES), look="plain" if notable else "folded",
    )  # fmt: skip
    fine = () if notable else [none_notable, *plan_view.known_demand(inventory)]
    return Section("instances", "Every instance", note, sentences=fine, tables=[table])


def _notable(row: plan_view.InstanceRow) -> bool:
    slowed = row.after is not None and row.after.throughput_ratio.expected < 1 - plan_view.SLOWED
    return slowed or row.below_limit or row.may_break or abs(row.change) >= FELT


def _happens(row: plan_view.InstanceRow, left: Mapping[str, str]) -> str:
    what = ("moves" if row.instance in left else "comes") if row.comes else "goes" if row.goes else ""
    broken = "below its limit" if row.below_limit else "may fall below" if row.may_break else ""
    return ", ".join(text for text in (what, broken) if text)
