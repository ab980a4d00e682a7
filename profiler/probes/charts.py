"""Charts of probes: values over time, distributions, and histograms on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from profiler.pictures import ACCENT, BAD, SERIES, SOFT, label, log_axis

MOST_POINTS = 6_000  # more cannot be told apart, and make an SVG of megabytes


def over_time(axes: Any, at_s: Sequence[float], values: Sequence[float], unit: str, title: str = "") -> None:
    """Points over time; a long series is thinned, and loses no peak by it."""
    times, shown = thinned(at_s, values)
    axes.plot(times, shown, ".", color=ACCENT, markersize=2.5)
    label(axes, title, "time (s)", unit)


def distribution(
    axes: Any, groups: Mapping[str, Sequence[float]], unit: str, title: str = "", *, log: bool = False
) -> None:
    """Cumulative share of values, one curve per group."""
    for colour, (name, values) in zip(SERIES, groups.items(), strict=False):
        ordered = sorted(values)
        shares = [100 * (rank + 1) / len(ordered) for rank in range(len(ordered))]
        xs, ys = thinned(ordered, shares)
        axes.step(xs, ys, where="post", color=colour, linewidth=1.4, label=name)
    if log:
        log_axis(axes)
    axes.set_ylim(0, 101)
    label(axes, title, unit, "% of values")


def histogram(axes: Any, bins: Sequence[tuple[float, float, int]], unit: str, title: str = "") -> None:
    """Counts of bins (from, to, count) on a logarithmic scale."""
    log_axis(axes)
    axes.bar(
        [low for low, _, _ in bins], [count for _, _, count in bins], width=[high - low for low, high, _ in bins],
        align="edge", color=ACCENT, edgecolor="white", linewidth=0.5,
    )  # fmt: skip
    label(axes, title, unit, "count")


def line_at(axes: Any, value: float, name: str, *, vertical: bool = False, bad: bool = False) -> None:
    """A thin line with its name: a threshold, a mean."""
    colour = BAD if bad else SOFT
    (axes.axvline if vertical else axes.axhline)(value, color=colour, linewidth=0.9, linestyle="--", label=name)


def thinned(
    xs: Sequence[float], ys: Sequence[float], most: int = MOST_POINTS
) -> tuple[Sequence[float], Sequence[float]]:
    """At most about `most` of the points, in order, with the lowest and the highest of every stretch among them."""
    if len(xs) <= most:
        return xs, ys
    stretch = -(-len(xs) * 2 // most)
    kept: list[int] = []
    for begin in range(0, len(xs), stretch):
        inside = range(begin, min(begin + stretch, len(xs)))
        kept += sorted({min(inside, key=ys.__getitem__), max(inside, key=ys.__getitem__)})
    return [xs[place] for place in kept], [ys[place] for place in kept]
