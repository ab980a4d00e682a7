"""How many cases a search tries: a part of them before each change, all of them in `make test-fuzz`."""

from __future__ import annotations

import os

ALL = os.environ.get("COTENANT_TEST_FUZZ") == "1"
LEAST = 10
STRIDE = 1 if ALL else 3  # of moments at which something is killed, those from one that is tried to the next


def examples(most: int, least: int = LEAST) -> int:
    """`most` in `make test-fuzz`, elsewhere a fifth of them, at least `least`."""
    return most if ALL else min(most, max(least, most // 5))
