"""Strict reading that all sources share: cells that must be positive, names that must be ids."""

from __future__ import annotations

from models.data.tables import TableRow
from profiler.observed import check_id


def positive(row: TableRow, column: str) -> float:
    """A cell that must hold a number above 0, as times and speeds must; DatasetError names file, line and column."""
    value = row.number(column, required=True)
    if not value:
        raise row.error(column, f"{row.text(column)} is not above 0")
    return value


def workload_id(row: TableRow, column: str) -> str:
    """A program's name as the contract's ids allow it: `/` of paths becomes `.`; DatasetError for anything else."""
    name = row.text(column, required=True).replace("/", ".")
    try:
        return check_id(name, column)
    except ValueError as error:
        raise row.error(column, str(error)) from None
