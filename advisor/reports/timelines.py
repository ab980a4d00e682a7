"""The picture of an instance's windows with coloured phases, drawn without global matplotlib state."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from advisor.domain import InstanceProfile, PhaseProfile
from profiler.pictures import WRITING

# What is drawn, as far as it was measured and not 0 all the time: key, label. The first is drawn in any case.
ROWS = (
    ("cpu", "CPU, %"),
    ("waiting", "waiting, %"),
    ("pages_exchanged", "pages/s"),
    ("execution", "executions/s"),
    ("disk_mb_s", "disk, MB/s"),
)
# Okabe and Ito's colours, safe for colour-blind readers; further phases repeat them with another brightness.
COLOURS = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#0072b2", "#d55e00", "#999999")
WIDTH, ROW, MARGIN = 9.0, 1.15, 1.25  # inches
DAY_S = 86_400  # matplotlib counts days since the epoch
SHARP = 0.1  # width of a load's range up to which its value alone is shown
MOST_NAMED = 12  # phases in the legend


def timeline(profile: InstanceProfile, kind: Literal["png", "svg"]) -> bytes:
    """The picture as file content; the same profile gives the same picture."""
    rows = [row for row in ROWS if row[0] == "cpu" or np.nansum(profile.windows.own.get(row[0], np.zeros(1))) > 0]
    style: Any = {"font.size": 8, "svg.hashsalt": profile.instance, "axes.spines.top": False}
    with WRITING, mpl.rc_context(style):
        figure = Figure(figsize=(WIDTH, MARGIN + ROW * len(rows)), layout="constrained")
        panels = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (key, label) in zip(panels, rows, strict=True):
            _draw(axes, profile, key, label)
        locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
        panels[-1].xaxis.set_major_locator(locator)
        panels[-1].xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
        panels[-1].set_xlabel("time (UTC)")
        figure.suptitle(f"{profile.instance} on {profile.host}", x=0.01, ha="left", weight="bold")
        figure.legend(handles=_legend(profile.phases), loc="outside lower left", ncols=4, frameon=False)
        content = io.BytesIO()
        nothing = {"svg": ("Creator", "Date", "Format", "Type"), "png": ("Software",)}[kind]
        figure.savefig(content, format=kind, dpi=130, metadata=dict.fromkeys(nothing))
    return content.getvalue()


def _draw(axes: Axes, profile: InstanceProfile, key: str, label: str) -> None:
    windows = profile.windows
    ends = windows.times / DAY_S
    for phase in profile.phases:
        for begin, end in phase.spans:
            axes.axvspan(begin / DAY_S, end / DAY_S, color=colour(phase.number), alpha=0.35, linewidth=0)
    top = float(np.nanmax(np.append(windows.own.get(key, np.zeros(1)), 1.0))) * 1.15
    values = windows.own.get(key, np.full(len(windows), np.nan))
    for run in range(int(windows.unbroken[-1]) + 1):
        there = windows.unbroken == run
        axes.plot(ends[there], values[there], color="#222222", linewidth=0.9)
    for begin, end in _stretches(~profile.solo):
        axes.plot([ends[max(begin - 1, 0)], ends[end - 1]], [top * 0.97] * 2, color="#b00020", linewidth=3)
    axes.set_ylim(0, top)
    axes.set_ylabel(label)
    axes.margins(x=0)
    axes.spines["right"].set_visible(False)


def _legend(phases: Sequence[PhaseProfile]) -> list[Patch]:
    shown = [Patch(color=colour(phase.number), alpha=0.5, label=_name(phase)) for phase in phases[:MOST_NAMED]]
    if len(phases) > MOST_NAMED:
        shown.append(Patch(color="none", label=f"and {len(phases) - MOST_NAMED} more"))
    return [*shown, Patch(color="#b00020", label="beside others")]


def _name(phase: PhaseProfile) -> str:
    load = phase.load
    shown = "idle" if load.method == "idle" else "load not known"
    if load.value and load.lower is not None and load.upper is not None:
        is_sharp = load.upper - load.lower <= SHARP
        shown = f"load {load.value:.2f}" if is_sharp else f"load {load.lower:.2f}-{load.upper:.2f}"
    return f"phase {phase.number}: {phase.share:.0%}, {shown}"


def colour(number: int) -> str:
    """The colour of a phase, by its number from 1."""
    return COLOURS[(number - 1) % len(COLOURS)]


def _stretches(marked: np.ndarray[Any, np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """First and one past the last of every run of marked windows."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], marked, [False]]).astype(int)))
    return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]
