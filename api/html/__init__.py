"""Pages; and what makes a service a demonstration: a clock of its own, and words on each page that say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

REFRESH_S = 4  # seconds between refreshes of a page


@dataclass(frozen=True, slots=True)
class Demonstration:
    """`clock` gives the time for the service; `listens` is called with its URL once it answers."""

    words: str
    clock: Callable[[], datetime]
    listens: Callable[[str], None]
