"""Numbers in the labels of hosts and instances."""

from __future__ import annotations

import math
from collections.abc import Mapping


def label_number(labels: Mapping[str, str], name: str) -> float | None:
    """What a label says; None where that is no number from 0 on."""
    try:
        value = float(labels.get(name, ""))
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None
