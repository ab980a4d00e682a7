"""Documents of answers, which every front end shows, and reports; nothing is learned here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advisor.reports.writing import (
        plan_as_data,
        plan_as_html,
        write_cloud_report,
        write_evaluation_report,
        write_plan_report,
        write_profile_picture,
        write_replay_report,
        write_worth_report,
    )

__all__ = [
    "plan_as_data",
    "plan_as_html",
    "write_cloud_report",
    "write_evaluation_report",
    "write_plan_report",
    "write_profile_picture",
    "write_replay_report",
    "write_worth_report",
]


def __getattr__(name: str) -> Any:
    """Import what writes reports when it is asked for (PEP 562): a document needs no templates and no pictures."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("advisor.reports.writing"), name)
