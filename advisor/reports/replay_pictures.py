"""Pictures of a replay as inline SVG: hosts and violations over time, and the distribution of T/B."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from advisor.reports.parts import drawn
from profiler.look import AFTER, inline, short
from profiler.pictures import INK, LINE, SOFT, label, legend_below, line_at, new_figure, series_style

MOST_MOMENTS = 400  # of one line; of more the highest in each stretch is drawn
_WIDTH, _HEIGHT = 3.9, 2.7  # inches
_NAME_WIDE, _NAME_HIGH = 0.4, 0.1  # of a name, as a share of how far the points lie apart
_OURS, _BOUND = "cotenant", "lower bound"


@drawn
def panels(
    hours: Sequence[float], lines: Mapping[str, Sequence[float]], words: str, salt: str, *, step: float
) -> Markup:
    """A panel per policy over the hours of the trace, on one scale; each moment lasts `step` hours."""
    figure, axes = new_figure(len(lines), columns=1, width=2.2 * _WIDTH, height=0.5 + 0.72 * len(lines))
    top = max(1, *(max(values) for values in lines.values()))
    for number, (panel, (policy, values)) in enumerate(zip(axes, lines.items(), strict=True)):
        x, y = _peaks(hours, values)
        panel.fill_between(
            [*x, hours[-1] + step], [*y, y[-1]], step="post", color=_style(policy, number)["color"], linewidth=0
        )
        panel.set_ylim(0, 1.1 * top)
        panel.set_xlim(hours[0], hours[-1] + step)
        panel.locator_params(axis="y", nbins=3, integer=True)
        panel.tick_params(axis="x", labelbottom=number == len(lines) - 1)
        panel.set_ylabel(short(policy), rotation=0, ha="right", va="center", fontsize=8, color=INK)
    axes[-1].set_xlabel("hours since the trace began", fontsize=8, color=SOFT)
    return inline(figure, f"{salt} {words}", f"{words} over the hours of the trace, a panel per policy, on one scale")


def _peaks(hours: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """The highest value of each stretch, where there are too many moments to draw."""
    size = math.ceil(len(values) / MOST_MOMENTS)
    starts = range(0, len(values), size)
    return [hours[at] for at in starts], [max(values[at : at + size]) for at in starts]


@drawn
def spread(lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], keep: float, salt: str) -> Markup:
    """The share of instance-moments at or below each T/B, one line per policy: (shares, ratios)."""
    figure, (axes,) = new_figure(width=2.2 * _WIDTH, height=_HEIGHT)
    for number, (policy, (shares, ratios)) in enumerate(lines.items()):
        axes.plot(ratios, shares, label=short(policy), marker="o", markersize=2.5, **_style(policy, number))
    line_at(axes, keep, vertical=True)
    axes.set_yscale("log")  # the interesting part is the small share that suffers
    least = min((share for shares, _ in lines.values() for share in shares if share > 0), default=0.01)
    axes.set_ylim(max(least, 1e-4) * 0.8, 1.2)
    axes.yaxis.set_major_formatter(lambda value, _at: f"{100 * value:g} %")
    axes.yaxis.set_minor_formatter("")
    axes.xaxis.set_major_formatter(lambda value, _at: f"{100 * value:.0f} %")
    label(axes, x="predicted T/B", y="instance-moments up to it")
    legend_below(figure, 6)
    return inline(
        figure, f"{salt} spread", "Share of instance-moments up to each predicted T/B; the table has the quantiles"
    )


@drawn
def against(points: Mapping[str, tuple[float, float]], salt: str) -> Markup:
    """Mean hosts in use against the share of instance-moments below the limit; lower left is better."""
    figure, (axes,) = new_figure(width=_WIDTH, height=_HEIGHT)
    alike: dict[tuple[float, float], list[str]] = {}
    for policy, (hosts, share) in points.items():
        alike.setdefault((round(hosts, 1), round(100 * share, 1)), []).append(policy)
    most = max(share for _, share in alike) or 1.0
    wide = max(hosts for hosts, _ in alike) - min(hosts for hosts, _ in alike)
    named: list[tuple[float, float]] = []  # hosts, and how high the names there reach
    for (hosts, share), policies in sorted(alike.items(), key=lambda entry: entry[0][1]):
        ours = _OURS in policies
        axes.plot([hosts], [share], "o", color=AFTER if ours else SOFT, markersize=6 if ours else 4.5)
        bottom = max([share, *(top for other, top in named if abs(other - hosts) <= _NAME_WIDE * wide)])
        axes.annotate(
            "\n".join(short(policy) for policy in policies), (hosts, bottom), color=INK if ours else SOFT, fontsize=8,
            va="bottom", xytext=(5, 3), textcoords="offset points",
        )  # fmt: skip
        named.append((hosts, bottom + _NAME_HIGH * most * len(policies)))
    axes.margins(x=0.35)
    axes.set_ylim(-0.05 * most, max(1.35 * most, *(top + 0.05 * most for _, top in named)))
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= 1.3 * most])
    axes.grid(axis="x", color=LINE, linewidth=0.7)
    label(axes, x="hosts in use, mean", y="below the limit, %")
    return inline(
        figure, f"{salt} against", "Hosts in use against violations, one point per policy; the table has every figure"
    )


def _style(policy: str, number: int) -> dict[str, Any]:
    if policy == _OURS:
        return {"color": AFTER, "linewidth": 2.0, "linestyle": "-"}
    if policy == _BOUND:
        return {"color": SOFT, "linewidth": 1.2, "linestyle": ":"}
    return {"linewidth": 1.3} | series_style(number)
