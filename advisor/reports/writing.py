"""Writes the reports of every kind, and the picture of an instance over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from advisor.domain import AdviceWorth, InstanceProfile, Inventory, PhaseProfile, Plan
from advisor.domain.replays import Replay
from advisor.reports import files
from advisor.reports.cloud import cloud_report
from advisor.reports.files import page
from advisor.reports.plan import plan_report
from advisor.reports.plan_view import Background, of_plan
from advisor.reports.replay import replay_report
from advisor.reports.worth import worth_report
from advisor.validation import picture_kind, write_whole
from profiler import pictures
from profiler.pictures import BAD, INK, SERIES, Figure, label, legend_below, new_figure, time_axis

# The picture of an instance's windows with its phases as coloured stretches.

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
        for span in phase.spans:
            begin, end = (time.timestamp() / DAY_S for time in (span.begin, span.end))
            axes.axvspan(begin, end, color=colour(phase.number), alpha=0.35, linewidth=0)
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


if TYPE_CHECKING:
    from models.evaluation.run import Evaluation


def write_plan_report(inventory: Inventory, plan: Plan, path: Path, background: Background | None = None) -> None:
    """Write the report atomically: one page where `path` ends in .html, else a folder that also has its data.

    An existing report is replaced when the new one is complete. OutOfSpace when the disk is full, InvalidInput when
    `path` cannot be written.
    """
    files.write(plan_report(inventory, plan, background or of_plan(inventory, plan, None)), path)


def plan_as_html(inventory: Inventory, plan: Plan, background: Background | None = None) -> str:
    """The report as one self-contained page; the same plan gives the same text.

    `inventory` is the cloud that the plan was made for. `advisor.reports.plan_view.of_plan` makes the
    `background`; without it the page shows neither interference between neighbours nor the model's card.
    """
    return page(plan_report(inventory, plan, background or of_plan(inventory, plan, None)), beside=False)


def plan_as_data(inventory: Inventory, plan: Plan, background: Background | None = None) -> dict[str, Any]:
    """All text and numbers of the report, as in report.json."""
    return files.as_json(plan_report(inventory, plan, background or of_plan(inventory, plan, None)))


def write_evaluation_report(evaluations: Sequence[Evaluation], path: Path) -> None:
    """Write evaluations as one report atomically: a page where `path` ends in .html, else a folder.

    An existing report is replaced when the new one is complete. OutOfSpace when the disk is full, InvalidInput when
    `path` cannot be written.
    """
    from advisor.reports.evaluation import evaluation_report  # with the learning libraries: others do without

    files.write(evaluation_report(evaluations), path)


def write_cloud_report(
    inventory: Inventory, plan: Plan, background: Background, ages: Mapping[str, float], path: Path
) -> str:
    """Write the state of a cloud and what a plan would change, as a folder or a page; returns its headline.

    `ages` are seconds since each host was last seen, inf = never; empty = unknown.
    """
    report = cloud_report(inventory, plan, background, ages)
    files.write(report, path)
    return report.headline


def write_replay_report(replay: Replay, path: Path) -> None:
    """Write the results of a replay atomically: a page where `path` ends in .html, else a folder with its data.

    An existing report is replaced when the new one is complete. OutOfSpace when the disk is full, InvalidInput when
    `path` cannot be written.
    """
    files.write(replay_report(replay), path)


def write_worth_report(worth: AdviceWorth, path: Path) -> None:
    """Write what the advice was worth atomically: a page where `path` ends in .html, else a folder with its data.

    An existing report is replaced when the new one is complete. OutOfSpace when the disk is full, InvalidInput when
    `path` cannot be written.
    """
    files.write(worth_report(worth), path)


def write_profile_picture(profile: InstanceProfile, path: Path) -> None:
    """Write an instance's windows with its phases as .png or .svg, atomically.

    OutOfSpace when the disk is full, InvalidInput for another suffix and when `path` cannot be written.
    """
    kind, figure = picture_kind(path), timeline(profile)
    content = pictures.as_png(figure) if kind == "png" else pictures.as_svg(figure, profile.instance).encode()
    write_whole(path, content, "picture")
