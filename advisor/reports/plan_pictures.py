"""Pictures of a plan as inline SVG: throughput per host, distributions, pressure, run-way, variants, sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from advisor.domain import Band, Capacity, ClassSizing, Variant
from advisor.reports.number_format import PRESSED, percent, scale
from advisor.reports.parts import drawn
from advisor.reports.plan_view import HostRows
from profiler import pictures
from profiler.look import AFTER, BAD, BEFORE, NEW, SHADES, inline, short
from profiler.pictures import INK, LINE, PAPER, PERCENT_TICKS, SOFT

MAX_ROWS = 16  # the others of a crowded host are in the table
MAX_NAME = 20
MAX_COUNTED = 30  # letters of a name in the wide picture of pressure
_WIDTH, _HEIGHT = 3.9, 2.5  # inches
_ROW = 0.27
RANGES = tuple(words for _, words in scale(PRESSED, percent))


@drawn
def throughput(host: HostRows, salt: str) -> Markup:
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
def distribution(lines: Mapping[str, tuple[Sequence[float], str]], salt: str, x: str) -> Markup:
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
def pressure(counts: Mapping[str, Sequence[int]], salt: str) -> Markup:
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


def by_band(values: Sequence[float | None]) -> list[int]:
    """The number of values in each band of PRESSED and above; None is not counted."""
    counts = [0] * (len(PRESSED) + 1)
    for value in values:
        if value is not None:
            counts[next((at for at, (_, below) in enumerate(PRESSED) if value < below), len(PRESSED))] += 1
    return counts


@drawn
def runway(capacity: Capacity, salt: str) -> Markup:
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
def variants(shown: Sequence[Variant], salt: str) -> Markup:
    """The lowest and the mean T/B of each variant."""
    rows = [(variant.name, variant.sums.mean, variant.sums.worst) for variant in shown]
    figure, axes = _pairs(rows, ("mean", "lowest"))
    axes.set_xlim(0, 1.1)
    axes.set_xticks(*PERCENT_TICKS)
    return inline(figure, f"{salt} variants", "Lowest and mean T/B of each variant; the table has every figure")


@drawn
def sizes(shown: Sequence[ClassSizing], salt: str) -> Markup:
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
