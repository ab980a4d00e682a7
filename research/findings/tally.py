"""What all verdicts come to: how many figures agree, and how far predictions are off, fitted and not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from research.findings.paper_statements import Row


def tally(rows: Sequence[Row]) -> list[str]:
    """The sentences below the tables; rows of predictions are of figures that statements print once more, so that
    only statements count as measured."""
    statements = [row for row in rows if row["kind"] == "statement"]
    shown = [row for row in statements if row["rounds"]]
    methods = sum(row["kind"] == "method" for row in rows)
    predictions = [row for row in rows if row["kind"] == "prediction"]
    return [
        f"Measured, of {len(statements)} printed statements: {_counted(row['measured_verdict'] for row in shown)}, "
        f"{sum(row['measured_verdict'] is None for row in shown)} shown and not judged, "
        f"{len(statements) - len(shown)} not measured; {methods} more say how the papers measured.",
        f"Predictions whose finding fixed no constant: {_of(predictions, _is_predicted, 'predicted')}.",
        f"Fitted, so that agreement proves nothing: {_of(predictions, _is_fitted, 'predicted')}.",
        f"The same without their finding: {_of(predictions, _is_fitted, 'left_out')}.",
        "A range is of the rounds' values and holds the median as often as the percentage says, if rounds do not "
        "depend on each other. It agrees where all of it lies within 10 % of the figure, 5 points of a percentage, "
        "5 % of no change, or beyond that where a direction is printed.",
    ]


def _is_predicted(row: Row) -> bool:
    return bool(row["basis"] == "predicted")


def _is_fitted(row: Row) -> bool:
    return not _is_predicted(row)


def _of(rows: Iterable[Row], which: Callable[[Row], bool], column: str) -> str:
    chosen = [row for row in rows if which(row)]
    off = [abs(row[column] - row["paper"]) for row in chosen if isinstance(row["paper"], float)]
    error = f"mean error {fmean(off):.3f} of {len(off)} figures" if off else "no figure"
    return f"{_counted(row[f'{column}_verdict'] for row in chosen)}; {error}"


def _counted(verdicts: Iterable[str | None]) -> str:
    counts = Counter(verdicts)
    words = {"agrees": "agree", "disagrees": "disagree", "undetermined": "undetermined"}
    return ", ".join(f"{counts[name]} {word}" for name, word in words.items() if counts[name]) or "none"
