"""A report as one self-contained HTML page: no script, no network, and everything from outside escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from advisor import extras
from advisor.reports import number_format
from advisor.reports.parts import Column, ReportDocument
from profiler import look


def _runs(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Shared headings of adjacent columns, with the number of columns below each."""
    return [(over, len(list(group))) for over, group in groupby(columns, key=lambda column: column.over)]


_TEMPLATES = look.environment(Path(__file__).parent.parent / "templates")
_TEMPLATES.filters |= {
    "cell": number_format.cell,
    "when": number_format.when,
    "runs": _runs,
    "numeric": lambda kind: kind in number_format.NUMERIC,
}


def page(report: ReportDocument, *, beside: bool) -> str:
    """The page's text; `beside` = its data are in files next to it. The same report gives the same text.

    It opens with the headline, two sentences and the first picture that stands alone in its section.
    """
    undrawn = ""
    if libraries := extras.missing("plots"):
        undrawn = f"Pictures are left out: {', '.join(libraries)} is not installed ({extras.how_to_install('plots')})."
    where = " beside this page" if beside else ", which is written when the report is asked for as a folder"
    lead = next((section for section in report.sections if len(section.pictures) == 1), None)
    sections = [replace(section, pictures=()) if section is lead else section for section in report.sections]
    return _TEMPLATES.get_template("page.html.j2").render(
        report=report,
        lead=lead and lead.pictures[0],
        sections=[section for section in sections if section],
        beside=where,
        undrawn=undrawn,
    )
