"""The table of `cotenant-research bench`, for a terminal and as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from advisor.reports import files
from advisor.reports.parts import Column, ReportDocument, Section, Table
from research.bench.comparisons import QUESTIONS, Comparison, Question

COLUMNS = ("question", "figure", "Cotenant", "beside", "of it", "less with Cotenant (95 %)", "verdict", "data", "cases")
DIGITS: Mapping[Question, int] = {"prediction": 3, "placement": 2, "planning": 2, "speed": 1}


class BenchResult(Protocol):
    """What a report is about."""

    @property
    def date(self) -> str: ...

    @property
    def machine(self) -> str: ...

    @property
    def seconds(self) -> float: ...

    @property
    def headline(self) -> str: ...

    @property
    def comparisons(self) -> Sequence[Comparison]: ...


def cells(one: Comparison) -> list[str]:
    """Cells of COLUMNS."""
    digits = DIGITS[one.question]
    less = f"{one.less:.{digits}f}"
    if one.lower is not None and one.upper is not None:
        less += f" ({one.lower:.{digits}f} to {one.upper:.{digits}f})"
    shown = (f"{value:.{digits}f}" for value in (one.cotenant, one.of_baseline))
    mine, theirs = shown
    beside = f"{one.baseline} ({one.note})" if one.note else one.baseline
    return [one.question, one.figure, mine, beside, theirs, less, one.verdict, one.data, one.cases]


def headline(found: Sequence[Comparison]) -> str:
    """In how many comparisons Cotenant is better, and the baselines that win."""
    count = Counter(one.verdict for one in found)
    worse = [f"{one.baseline} ({one.question})" for one in found if one.verdict == "worse"]
    text = (
        f"Cotenant is better beyond noise in {count['better']} of {len(found)} comparisons, worse in {count['worse']}"
    )
    return f"{text}: {', '.join(worse)}." if worse else f"{text}."


def write(result: BenchResult, path: Path) -> None:
    """Write the table as a page, or as a folder with its data; the errors are those of other reports."""
    columns = [Column(name.partition(" (")[0].replace(" ", "_"), name) for name in COLUMNS]
    sections = [
        Section(
            question,
            question.capitalize(),
            f"{some[0].figure}: less is better.",
            tables=[Table(question, some[0].cases, columns, [cells(one) for one in some])],
        )
        for question in QUESTIONS
        if (some := [one for one in result.comparisons if one.question == question])
    ]
    document = ReportDocument(
        what="bench",
        title="Cotenant beside baselines",
        headline=result.headline,
        sentences=["Every seed is fixed. Intervals are of 95 % by bootstrap over campaigns, clouds or questions."],
        facts={"Date": result.date, "Machine": result.machine, "Time": f"{result.seconds:.0f} s"},
        sections=sections,
        made_at=datetime.now(UTC),
    )
    files.write(document, path)
