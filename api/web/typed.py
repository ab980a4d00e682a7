"""What people type into a field of a form → a value, or a ValueError that says what is wrong with it."""

from __future__ import annotations

import math
import re

from api.schemas.base import TEXT_PATTERN
from profiler.observed import check_id


def number(text: str, low: float, high: float, *, whole: bool = False) -> float:
    """A number from `low` to `high`; a comma is a decimal point, too."""
    text = text.replace(",", ".")
    try:
        value = float(int(text)) if whole else float(text)
    except (ValueError, OverflowError):
        value = math.nan
    if not low <= value <= high:
        raise ValueError(f"is not a {'whole ' if whole else ''}number from {low:g} to {high:.15g}")
    return value


def name(text: str) -> str:
    """An id, such as a host's."""
    try:
        check_id(text, "name")
    except ValueError:
        raise ValueError("is not 1–255 letters, digits or . _ : -") from None
    return text


def title(text: str) -> str:
    """A name that may have blanks and letters of any language, such as a workload's."""
    if not 1 <= len(text) <= 255 or not re.fullmatch(TEXT_PATTERN, text):
        raise ValueError("is not 1–255 characters without control characters")
    return text
