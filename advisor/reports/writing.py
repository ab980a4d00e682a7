"""Reports of plans, replays, evaluations and clouds as files, and pictures of profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.domain import AdviceWorth, InstanceProfile, Inventory, Plan
from advisor.domain.replays import Replay
from advisor.files import write_whole
from advisor.reports import files, timelines
from advisor.reports.cloud import cloud_report
from advisor.reports.page import page
from advisor.reports.plan import plan_report
from advisor.reports.plan_background import Background, of_plan
from advisor.reports.replay import replay_report
from advisor.reports.worth import worth_report
from advisor.validation import picture_kind
from profiler import pictures

if TYPE_CHECKING:
    from models.evaluation.run import Evaluation

__all__ = [
    "plan_as_data",
    "plan_as_html",
    "write_cloud_report",
    "write_evaluation_report",
    "write_plan_report",
    "write_profile_picture",
    "write_replay_report",
    "write_worth_report",
]


def write_plan_report(inventory: Inventory, plan: Plan, path: Path, background: Background | None = None) -> None:
    """Write the report atomically: one page where `path` ends in .html, else a folder that also has its data.

    An existing report is replaced when the new one is complete. OutOfSpace when the disk is full, InvalidInput when
    `path` cannot be written.
    """
    files.write(plan_report(inventory, plan, background or of_plan(inventory, plan, None)), path)


def plan_as_html(inventory: Inventory, plan: Plan, background: Background | None = None) -> str:
    """The report as one self-contained page; the same plan gives the same text.

    `inventory` is the cloud that the plan was made for. `advisor.reports.plan_background.of_plan` makes the
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
    kind, figure = picture_kind(path), timelines.timeline(profile)
    content = pictures.as_png(figure) if kind == "png" else pictures.as_svg(figure, profile.instance).encode()
    write_whole(path, content, "picture")
