"""The registry of claims: which function measures which figure or order. Importing the claims fills it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from research.findings.claim_values import Values
from research.findings.lab_runs import LabRuns

Number = Callable[[LabRuns], Values | None]
Several = Callable[[LabRuns], Mapping[str, Values | None]]
NUMBERS: dict[tuple[str, str], tuple[Number, str | None]] = {}
ORDERS: dict[tuple[str, str], tuple[Several, str]] = {}


def number(finding: str, *situations: str, unit: str | None = None) -> Callable[[Number], Number]:
    """Register how a figure is measured; `unit` where the row is no printed statement."""

    def register(claim: Number) -> Number:
        for situation in situations:
            NUMBERS[finding, situation] = (claim, unit)
        return claim

    return register


def order(finding: str, statement: str, *situations: str) -> Callable[[Several], Several]:
    """Register how the members of a printed order are measured, for its statement and further rows that show it."""

    def register(claim: Several) -> Several:
        for situation in (statement, *situations):
            ORDERS[finding, situation] = (claim, statement)
        return claim

    return register
