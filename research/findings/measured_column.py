"""Fills the measured column: every claim is one small function from the lab's runs to values, one per repeat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import research.findings.claims  # noqa: F401 - importing registers them
from models.data.tables import DatasetError, read_rows
from research.findings.claim_registry import NUMBERS, ORDERS, Number, Several
from research.findings.claim_values import Values, agrees, ordered
from research.findings.lab_runs import LabRuns
from research.findings.paper_statements import Row, Statements

REMARKS = "findings.csv"  # of a measured dataset: finding, remark


def fill(rows: list[Row], lab: LabRuns, statements: Statements) -> None:
    """Write what was measured into the rows; a claim that the datasets cannot show leaves its row as it is."""
    for row in rows:
        key = row["finding"], row["situation"]
        printed = statements.get(key)
        if key in NUMBERS:
            claim, unit = NUMBERS[key]
            values = _one(claim, lab)
            if values is not None:
                _fill_number(row, values, unit or (printed["unit"] if printed else ""))
                row["measured_agrees"] = None if printed is None else agrees(printed, values)
        elif key in ORDERS:
            members, statement = ORDERS[key]
            several = _several(members, lab)
            if several:
                sources = sorted({values.source for values in several.values()})
                row["source"] = "; ".join(sources)
                row["repeats"] = min(len(values.values) for values in several.values())
                row["measured"], verdict = ordered(statements[row["finding"], statement], several)
                row["measured_agrees"] = verdict


# One dataset is asked after the other, and all together only for what none can show: rounds of two campaigns were
# measured on other days, and are set against each other only where a claim is about just that (C1 to C3).
def _one(claim: Number, lab: LabRuns) -> Values | None:
    return next((values for part in (*lab.parts, lab) if (values := claim(part)) is not None), None)


def _several(claim: Several, lab: LabRuns) -> Mapping[str, Values]:
    found = [claim(part) for part in (*lab.parts, lab)]
    known = [{name: values for name, values in one.items() if values is not None} for one in found]
    return max(known, key=len)


def _fill_number(row: Row, values: Values, unit: str) -> None:
    lower, upper = values.bounds
    row["measured"] = values.text(unit)
    row["measured_value"] = values.middle
    row["measured_lower"] = None if lower == float("-inf") else lower
    row["measured_upper"] = None if upper == float("inf") else upper
    row["measured_unit"] = unit
    row["repeats"] = len(values.values)
    row["source"] = values.source


def read_remarks(directories: Iterable[Path]) -> dict[str, str]:
    """One sentence per finding on agreement, or on why it differs or was not measured."""
    remarks: dict[str, str] = {}
    for path in directories:
        file = path / REMARKS
        if not file.is_file():
            continue
        try:
            for row in read_rows(file, ("finding", "remark")):
                remarks.setdefault(row.text("finding"), row.text("remark"))
        except DatasetError as error:
            raise DatasetError(f"{path.name}: {error}") from None
    return remarks
