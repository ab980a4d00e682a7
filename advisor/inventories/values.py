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


def whole_cpus(value: object, name: str) -> int:
    """The CPUs that an amount such as 0.5 or 1.5 takes at once; ValueError where it is no amount above 0.

    Sums of thousandths are a little off a whole number, which is no CPU more.
    """
    return as_cpus(max(1, math.ceil(round(as_number(value, name, least=1e-6), 6))), name)


def clean_labels(labels: Mapping[str, object]) -> dict[str, str]:
    """The text, without what breaks a line."""
    clean = {
        name: "".join(char for char in str(value) if char.isprintable())[:255]
        for name, value in labels.items()
        if value and name.isprintable() and len(name) <= 100
    }
    return {name: value for name, value in clean.items() if value}
