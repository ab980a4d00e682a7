"""Several names in a sentence."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first few names, and the number of the others."""
    others = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + others
