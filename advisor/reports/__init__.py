"""Plans and evaluations as self-contained HTML files, a profile as a picture; nothing is predicted or learned here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2

from advisor.domain import InstanceProfile, Inventory, Plan
from advisor.reports import evaluation_words, pictures, timelines, view, words
from advisor.validation import picture_kind
from advisor.writing import write_whole

if TYPE_CHECKING:
    from models.evaluation import Evaluation

__all__ = [
    "evaluation_as_html",
    "plan_as_html",
    "write_evaluation_report",
    "write_plan_report",
    "write_profile_picture",
]

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent.parent / "templates"),
    autoescape=True,  # names come from outside
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {
    "percent": words.percent,
    "points": words.points,
    "band": words.band,
    "settings": words.settings,
    "refusals": words.refusals,
    "error": evaluation_words.points,
    "share": evaluation_words.percent,
    "edges": evaluation_words.edges,
    "times": evaluation_words.times,
}


def write_plan_report(inventory: Inventory, plan: Plan, path: Path) -> None:
    """Write the report, whole or not at all; a file that is there is replaced when the new one is complete.

    OutOfSpace when the disk is full, InvalidInput when `path` cannot be written.
    """
    write_whole(path, plan_as_html(inventory, plan).encode(), "report")


def plan_as_html(inventory: Inventory, plan: Plan) -> str:
    """The report's text; the same plan gives the same text."""
    hosts = view.hosts(inventory, plan)
    drawn = view.worth_a_picture(hosts, plan)
    return _TEMPLATES.get_template("plan.html.j2").render(
        plan=plan,
        steps=view.steps(inventory, plan),
        hosts=hosts,
        drawn=list(zip(drawn, pictures.throughput(drawn, salt=plan.id), strict=True)),
        headline=words.headline(plan),
        sentences=words.summary(inventory, plan, hosts),
        refused=[step for step in plan.steps if step.host is None],
        origin=words.origin(plan.model_origin),
        outside=any(row.after and row.after.outside_training for host in hosts for row in host.rows),
        left_out=sum(1 for host in hosts if host.rows) - len(drawn),
    )


def write_evaluation_report(found: Sequence[Evaluation], path: Path) -> None:
    """Write evaluations as one report, whole or not at all; a file that is there is replaced when it is complete.

    OutOfSpace when the disk is full, InvalidInput when `path` cannot be written.
    """
    write_whole(path, evaluation_as_html(found).encode(), "report")


def evaluation_as_html(found: Sequence[Evaluation]) -> str:
    """The report's text; the same evaluations give the same text."""
    from advisor.reports import evaluation  # with the learning libraries, which a plan's report does without

    figures = [one.figures for one in found]
    return _TEMPLATES.get_template("evaluation.html.j2").render(
        parts=evaluation.parts(found),
        ranks=evaluation.ranks(found),
        headline=evaluation_words.headline(figures),
        limits={name: text for one in figures for name, text in one["limits"].items()},
    )


def write_profile_picture(profile: InstanceProfile, path: Path) -> None:
    """Write the windows of an instance with its phases as .png or .svg, whole or not at all.

    OutOfSpace when the disk is full, InvalidInput for another suffix and when `path` cannot be written.
    """
    write_whole(path, timelines.timeline(profile, picture_kind(path)), "picture")
