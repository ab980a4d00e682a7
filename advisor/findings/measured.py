"""Fills the measured column: every claim is one small function from the lab's runs to values, one per repeat."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import advisor.findings.claims  # noqa: F401 - importing registers them
from advisor.findings.estimates import Values, agrees, ordered
from advisor.findings.lab import Lab
from advisor.findings.printed import Row, Statements
from advisor.findings.registry import NUMBERS, ORDERS
from models.tables import DatasetError

REMARKS = "findings.csv"  # of a measured dataset: finding, remark


def fill(rows: list[Row], lab: Lab, statements: Statements) -> None:
    """Write what was measured into the rows; a claim that the datasets cannot show leaves its row as it is."""
    for row in rows:
        key = row["finding"], row["situation"]
        printed = statements.get(key)
        if key in NUMBERS:
            claim, unit = NUMBERS[key]
            values = claim(lab)
            if values is not None:
                _fill_number(row, values, unit or (printed["unit"] if printed else ""))
                row["measured_agrees"] = None if printed is None else agrees(printed, values)
        elif key in ORDERS:
            members, statement = ORDERS[key]
            several = {name: values for name, values in members(lab).items() if values is not None}
            if several:
                sources = sorted({values.source for values in several.values()})
                row["source"] = "; ".join(sources)
                row["repeats"] = min(len(values.values) for values in several.values())
                row["measured"], verdict = ordered(statements[row["finding"], statement], several)
                row["measured_agrees"] = verdict


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
        with file.open(encoding="utf-8", newline="") as text:
            reader = csv.DictReader(text)
            if not {"finding", "remark"} <= set(reader.fieldnames or ()):
                raise DatasetError(f"{path.name}/{REMARKS}, line 1: columns finding and remark are needed")
            for row in reader:
                remarks.setdefault(row["finding"], row["remark"])
    return remarks
