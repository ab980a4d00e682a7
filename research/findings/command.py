"""`cotenant-research findings`: what papers say beside what was measured and what is predicted."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any, Literal

from pydantic import Field

from api.cli.options import AsJson, ModelDir, settings
from api.cli.output import clean, figure, print_json, print_table, progress, say
from api.schemas.base import AnswerBody
from research import findings as found
from research.findings.tally import tally

FINDING_COLUMNS = (
    "situation", "paper", "measured (range, how often it holds)", "verdict", "measured in", "predicted", "verdict",
    "left out", "verdict",
)  # fmt: skip
MOST_PRINTED = 4  # printed figures per finding in the table; --json has all


class FindingOut(AnswerBody):
    """One figure or ordering of a paper beside what was measured and predicted."""

    finding: str = Field(description="its key, as in docs/findings.md")
    title: str = Field(description="what it is about")
    kind: Literal["prediction", "statement", "method"] = Field(
        description="whether a model predicts it, a paper prints that it was found, or how it was measured"
    )
    situation: str = Field(description="what ran, and how")
    quantity: str = Field(description="what was measured of it")
    paper: float | str | None = Field(description="what the paper says")
    measured: str = Field(description="what our own runs say")
    measured_value: float | None = Field(description="mean over rounds")
    measured_lower: float | None = Field(description="lower end of the rounds' range")
    measured_upper: float | None = Field(description="upper end of it")
    measured_unit: str | None = Field(description="unit of these three")
    measured_coverage: float | None = Field(description="part of the rounds in which the claim holds")
    rounds: int = Field(description="rounds that were measured")
    source: str | None = Field(description="datasets that they are from")
    measured_verdict: str | None = Field(description="agrees, disagrees or undetermined")
    predicted: float | str | None = Field(description="what the model says")
    predicted_verdict: str | None = Field(description="agrees, disagrees or undetermined")
    basis: str | None = Field(description="where the prior's constants came from the finding itself")
    left_out: float | str | None = Field(description="what the prior says when they did not")
    left_out_verdict: str | None = Field(description="agrees, disagrees or undetermined")
    remark: str | None = Field(description="what else to know")


def findings(as_json: AsJson = False, model: ModelDir = None) -> None:
    """The papers' findings: paper, measured, predicted.

    Without --model all papers are predicted by a model that was trained without any paper's co-locations. A prediction
    is "fitted" where its finding fixed a constant of the analytic model; "left out" is what that model predicts
    when it did not. Verdicts are agrees, disagrees and undetermined.
    """
    with progress() as advance:
        rows = found.findings(settings(), model, advance)
    if as_json:
        print_json(rows)
        return
    for finding, group in groupby(rows, key=lambda row: str(row["finding"])):
        of_finding = list(group)
        shown = [row for row in of_finding if row["kind"] == "prediction" or row["rounds"]]
        say(f"{finding}  {clean(of_finding[0]['title'])}")
        if shown:
            print_table(FINDING_COLUMNS, [_finding(row) for row in shown])
        else:
            plain = [[figure(row[name]) for name in ("situation", "quantity", "paper")] for row in of_finding]
            print_table(("printed", "quantity", "paper"), plain[:MOST_PRINTED])
        hidden = len(of_finding) - (len(shown) or MOST_PRINTED)
        if hidden > 0:
            say(f"   and {hidden} more printed figures: --json")
        if of_finding[0]["remark"]:
            say(f"   {clean(of_finding[0]['remark'])}")
        say()
    for line in tally(rows):
        say(line)


def _finding(row: Mapping[str, Any]) -> list[str]:
    """Cells of FINDING_COLUMNS."""
    fitted = str(row["basis"] or "").startswith("fitted")
    predicted = f"{figure(row['predicted'])} (fitted)" if fitted else row["predicted"]
    left_out = (row["left_out"], row["left_out_verdict"]) if fitted else ("", "")
    cells = [
        row["situation"], row["paper"], row["measured"], row["measured_verdict"], row["source"], predicted,
        row["predicted_verdict"], *left_out,
    ]  # fmt: skip
    return [figure(cell) for cell in cells]
