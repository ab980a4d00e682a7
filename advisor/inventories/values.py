"""Numbers and labels as other systems write them."""

from __future__ import annotations

import math
from collections.abc import Mapping

MOST_CPUS = 8192  # of a host or an instance


def as_number(value: object, name: str, *, least: float = 0.0) -> float:
    """A number that may be written as text; ValueError where it is none from `least` on."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not least <= number < math.inf:
        raise ValueError(f"its {name} {str(value)[:60]!r} is not a number{f' from {least:g} on' if least else ''}")
    return number


def as_cpus(value: object, name: str) -> int:
    """A whole number of CPUs; ValueError where it is none."""
    number = as_number(value, name)
    if not 1 <= number <= MOST_CPUS or number != int(number):
        raise ValueError(f"its {name} {str(value)[:60]!r} is not a number of CPUs")
    return int(number)


def clean_labels(labels: Mapping[str, object]) -> dict[str, str]:
    """What there is, without what breaks a line."""
    clean = {
        name: "".join(char for char in str(value) if char.isprintable())[:255]
        for name, value in labels.items()
        if value and name.isprintable() and len(name) <= 100
    }
    return {name: value for name, value in clean.items() if value}
