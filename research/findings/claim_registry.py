"""The registry of claims: which function measures which figure or order. Importing the claims fills it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from research.findings.claim_values import Values
from research.findings.lab_runs import LabRuns
from research.findings.verdicts import Region

Number = Callable[[LabRuns], Values | None]
Several = Callable[[LabRuns], Mapping[str, Values | None]]


class NumberClaim(NamedTuple):
    """How a figure is measured, its unit where the row is no printed statement, and which values agree where the
    statement is a fact in words or an absolute figure that is still comparable."""

    measure: Number
    unit: str | None
    agree: Region | None


class OrderClaim(NamedTuple):
    """How the members of an order are measured, and the printed statement that orders them."""

    measure: Several
    statement: str


NUMBERS: dict[tuple[str, str], NumberClaim] = {}
ORDERS: dict[tuple[str, str], OrderClaim] = {}


def number(
    finding: str, *situations: str, unit: str | None = None, agree: Region | None = None
) -> Callable[[Number], Number]:
    """Register how a figure is measured."""

    def register(claim: Number) -> Number:
        for situation in situations:
            NUMBERS[finding, situation] = NumberClaim(claim, unit, agree)
        return claim

    return register


def order(finding: str, statement: str, *situations: str) -> Callable[[Several], Several]:
    """Register how the members of a printed order are measured, for its statement and further rows that show it."""

    def register(claim: Several) -> Several:
        for situation in (statement, *situations):
            ORDERS[finding, situation] = OrderClaim(claim, statement)
        return claim

    return register
