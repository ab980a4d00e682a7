"""The picture of an instance's windows with its phases as coloured stretches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from advisor.domain import InstanceProfile, PhaseProfile
from profiler.pictures import BAD, INK, SERIES, Figure, label, legend_below, new_figure, time_axis

# What is drawn, as far as it was measured and not 0 all the time: key, label. The first is drawn in any case.
ROWS = (
    ("cpu", "CPU, %"),
    ("waiting", "waiting, %"),
    ("pages_exchanged", "pages/s"),
    ("execution", "executions/s"),
    ("disk_mb_s", "disk, MB/s"),
)
WIDTH, ROW, MARGIN = 9.0, 1.15, 1.25  # inches
DAY_S = 86_400  # matplotlib counts days since the epoch
SHARP = 0.1  # width of a load's range up to which its value alone is shown
MOST_NAMED = 12  # phases in the legend


def timeline(profile: InstanceProfile) -> Figure:
    """One panel per metric that was measured; the same profile gives the same picture."""
    rows = [row for row in ROWS if row[0] == "cpu" or np.nansum(profile.windows.own.get(row[0], np.zeros(1))) > 0]
    figure, panels = new_figure(len(rows), columns=1, width=WIDTH, height=MARGIN + ROW * len(rows))
    for axes, (key, name) in zip(panels, rows, strict=True):
        is_first, is_last = axes is panels[0], axes is panels[-1]
        if not is_first:
            axes.sharex(panels[0])
        _draw(axes, profile, key)
        time_axis(axes)
        axes.tick_params(labelbottom=is_last)
        title = f"{profile.instance} on {profile.host}" if is_first else ""
        label(axes, title, "time (UTC)" if is_last else "", name)
    legend_below(figure, 4, handles=_legend(profile.phases))
    return figure


def _draw(axes: Any, profile: InstanceProfile, key: str) -> None:
    windows = profile.windows
    ends = windows.times / DAY_S
    for phase in profile.phases:
        for begin, end in phase.spans:
            axes.axvspan(begin / DAY_S, end / DAY_S, color=colour(phase.number), alpha=0.35, linewidth=0)
    top = float(np.nanmax(np.append(windows.own.get(key, np.zeros(1)), 1.0))) * 1.15
    values = windows.own.get(key, np.full(len(windows), np.nan))
    for run in range(int(windows.unbroken[-1]) + 1):
        there = windows.unbroken == run
        axes.plot(ends[there], values[there], color=INK, linewidth=0.9)
    for begin, end in _stretches(~profile.solo):
        axes.plot([ends[max(begin - 1, 0)], ends[end - 1]], [top * 0.97] * 2, color=BAD, linewidth=3)
    axes.set_ylim(0, top)
    axes.margins(x=0)


def _legend(phases: Sequence[PhaseProfile]) -> list[Any]:
    from matplotlib.patches import Patch

    shown = [Patch(color=colour(phase.number), alpha=0.5, label=_name(phase)) for phase in phases[:MOST_NAMED]]
    if len(phases) > MOST_NAMED:
        shown.append(Patch(color="none", label=f"and {len(phases) - MOST_NAMED} more"))
    return [*shown, Patch(color=BAD, label="beside others")]


def _name(phase: PhaseProfile) -> str:
    load = phase.load
    shown = "idle" if load.method == "idle" else "load not known"
    if load.value and load.lower is not None and load.upper is not None:
        is_sharp = load.upper - load.lower <= SHARP
        shown = f"load {load.value:.2f}" if is_sharp else f"load {load.lower:.2f}-{load.upper:.2f}"
    return f"phase {phase.number}: {phase.share:.0%}, {shown}"


def colour(number: int) -> str:
    """The colour of a phase, by its number from 1."""
    return SERIES[(number - 1) % len(SERIES)]


def _stretches(marked: np.ndarray[Any, np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """First and one past the last of every run of marked windows."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], marked, [False]]).astype(int)))
    return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]
