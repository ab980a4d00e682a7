"""What makes a service a demonstration: a clock of its own, and words on each page that say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

REFRESH_S = 4  # after so long a page shows what is new


@dataclass(frozen=True, slots=True)
class Demonstration:
    """`clock` is the time that passes for the service; `listens` is told its URL once it answers."""

    words: str
    clock: Callable[[], datetime]
    listens: Callable[[str], None]
