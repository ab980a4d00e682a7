"""A report as one HTML page that needs no other file: no script, no network, everything from outside escaped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from advisor.reports import number_format
from advisor.reports.parts import Column, Report
from profiler import look


def _runs(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Headings that columns side by side share, and over how many each stands."""
    return [(over, len(list(group))) for over, group in groupby(columns, key=lambda column: column.over)]


_TEMPLATES = look.environment(Path(__file__).parent.parent / "templates")
_TEMPLATES.filters |= {
    "cell": number_format.cell,
    "when": number_format.when,
    "runs": _runs,
    "numeric": lambda kind: kind in number_format.NUMERIC,
}


def page(report: Report, *, beside: bool) -> str:
    """The page's text; `beside` = its data lie in files next to it. The same report gives the same text."""
    where = " beside this page" if beside else ", which is written when the report is asked for as a folder"
    return _TEMPLATES.get_template("page.html.j2").render(
        report=report, sections=[one for one in report.sections if one], beside=where
    )
