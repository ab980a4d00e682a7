"""Fills the measured column: every claim is one small function from the lab's runs to values, one per repeat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import research.findings.claims  # noqa: F401 - importing registers them
from models.data.tables import DatasetError, read_rows
from research.findings.claim_registry import NUMBERS, ORDERS, Number, NumberClaim, OrderClaim, Several
from research.findings.claim_values import Values, ordered, verdict
from research.findings.lab_runs import LabRuns
from research.findings.paper_statements import Row, Statements
from research.findings.verdicts import Region, figure_region, region_of

REMARKS = "findings.csv"  # of a measured dataset: finding, remark


def fill(rows: list[Row], lab: LabRuns, statements: Statements) -> None:
    """Write what was measured into the rows; a claim that the datasets cannot show leaves its row as it is."""
    for row in rows:
        key = row["finding"], row["situation"]
        if key in NUMBERS:
            _number(row, NUMBERS[key], lab, statements)
        elif key in ORDERS:
            _order(row, ORDERS[key], lab, statements)


def _number(row: Row, claim: NumberClaim, lab: LabRuns, statements: Statements) -> None:
    values = _one(claim.measure, lab)
    if values is not None:
        printed = statements.get((row["finding"], row["situation"]))
        _fill_number(row, values, claim.unit or (printed["unit"] if printed else ""))
        row["measured_verdict"] = verdict(claim.agree or _region(row, statements), values)


def _region(row: Row, statements: Statements) -> Region | None:
    """A printed statement's, or that of a row's own figure."""
    printed = statements.get((row["finding"], row["situation"]))
    if printed is not None:
        return region_of(printed)
    return figure_region(row["paper"], "ratio") if isinstance(row["paper"], float) else None


def _order(row: Row, claim: OrderClaim, lab: LabRuns, statements: Statements) -> None:
    several = _several(claim.measure, lab)
    if several:
        fewest = min(several.values(), key=lambda values: len(values.values))
        row["source"] = "; ".join(sorted({values.source for values in several.values()}))
        row["rounds"], row["measured_coverage"] = len(fewest.values), fewest.coverage
        row["measured"], row["measured_verdict"] = ordered(statements[row["finding"], claim.statement], several)


# The rule by which runs are chosen, the same for every claim: of the datasets that show all of it, the one with the
# most rounds, and the first by name among equals. All together are asked only for what none can show: rounds of two
# campaigns were measured on other days, and are set against each other only where a claim is about just that (C1-C3).
def _one(claim: Number, lab: LabRuns) -> Values | None:
    found = [values for part in lab.parts if (values := claim(part)) is not None]
    return max(found, key=lambda values: len(values.values)) if found else claim(lab)


def _several(claim: Several, lab: LabRuns) -> Mapping[str, Values]:
    known = [{name: values for name, values in claim(part).items() if values is not None} for part in (*lab.parts, lab)]
    return max(known, key=lambda one: (len(one), min((len(values.values) for values in one.values()), default=0)))


def _fill_number(row: Row, values: Values, unit: str) -> None:
    lower, upper = values.bounds
    row["measured"] = values.text(unit)
    row["measured_value"] = values.middle
    several = len(values.values) > 1
    row["measured_lower"], row["measured_upper"] = (lower, upper) if several else (None, None)
    row["measured_coverage"] = values.coverage if several else None
    row["measured_unit"] = unit
    row["rounds"] = len(values.values)
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
