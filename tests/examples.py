"""How many examples a property test tries: a third of them before each change, all of them in `make test-fuzz`."""

from __future__ import annotations

import os

ALL = os.environ.get("COTENANT_TEST_FUZZ") == "1"
LEAST = 10


def examples(most: int, least: int = LEAST) -> int:
    """`most` in `make test-fuzz`, elsewhere a third of them, at least `least`."""
    return most if ALL else min(most, max(least, most // 3))
