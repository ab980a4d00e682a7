"""The papers' printed statements and titles from the dataset, and the rows of the findings page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.data.tables import read_rows

NOT_MEASURED = "not measured here"

Row = dict[str, Any]
Printed = Mapping[str, str]
Statements = Mapping[tuple[str, str], Printed]


def read_titles(path: Path) -> dict[str, Printed]:
    """Every finding with its title, paper and summary, in the order of the list; DatasetError for a broken table."""
    return {row.text("finding"): row.cells for row in read_rows(path / "findings.csv", ("finding", "title"))}


def read_statements(path: Path) -> dict[tuple[str, str], Printed]:
    """Every printed statement by finding and name; DatasetError for a broken table."""
    columns = ("finding", "statement", "quantity", "relation", "value", "low", "high", "unit", "role")
    rows = read_rows(path / "statements.csv", columns)
    return {(row.text("finding"), row.text("statement")): row.cells for row in rows}


def groups(statement: Printed) -> list[list[str]]:
    """`a>b,c>d` as [[a], [b, c], [d]]."""
    return [group.split(",") for group in statement["value"].split(">")]


def in_words(printed: Printed) -> str:
    """`>= 30 %`, `40 to 50 %`, `up`: a statement as a reader takes it in."""
    relation, value, unit = printed["relation"], printed["value"], printed["unit"]
    if relation == "range":
        value = f"{printed['low']} to {printed['high']}"
    sign = relation if relation in {"<", ">", "<=", ">=", "~"} else ""
    if relation in {"fact", "direction"}:
        value = value.replace("_", " ")
    return f"{sign} {value.replace('>', ' > ').replace(',', ', ')} {unit}".strip()


def statement_rows(statements: Statements) -> list[Row]:
    """One row per printed statement; of kind method where it says how a paper measured, and not what it found."""
    kinds = {"finding": "statement", "method": "method"}
    return [
        {**row(finding, name, printed["quantity"], in_words(printed), None), "kind": kinds[printed["role"]]}
        for (finding, name), printed in statements.items()
    ]


def row(finding: str, situation: str, quantity: str, paper: float | str | None, predicted: float | str | None) -> Row:
    """A row without a measurement."""
    return {
        "finding": finding,
        "kind": "prediction",
        "situation": situation,
        "quantity": quantity,
        "paper": paper,
        "measured": NOT_MEASURED,
        "measured_value": None,
        "measured_lower": None,
        "measured_upper": None,
        "measured_unit": None,
        "measured_coverage": None,
        "rounds": 0,
        "source": None,
        "measured_verdict": None,
        "predicted": predicted,
        "predicted_verdict": None,
        "basis": None,
        "left_out": None,
        "left_out_verdict": None,
    }


def said(order: Sequence[Sequence[str]], value: Mapping[str, float]) -> str:
    """The members from the highest value to the lowest."""
    return " > ".join(sorted((name for group in order for name in group), key=lambda name: -value[name]))
