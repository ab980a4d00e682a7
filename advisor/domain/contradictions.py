"""A contradiction: an instance gets less of the CPU time that it wants than was predicted, window after window."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

# Who is likely behind it: a neighbour that wants more than before, the instance itself for the same reason, or the
# host, where nobody in particular changed.
ContradictionCause = Literal["neighbour", "itself", "host"]


@dataclass(frozen=True, slots=True)
class Contradiction:
    """An alarm that stands. Shares are run / (run + wait) of windows of five minutes: `observed` is their mean since
    `since` over `windows`, `expected` and `lower` what was predicted before the last of them.

    `antagonist` is who likely holds it back, None = nobody in particular; it wanted `wanted_before` CPUs and wants
    `wanted`. `measured` = the run queue was watched, and this one ran for most of the time that it waits more; else it
    is who wants more than before.
    """

    instance: str
    host: str
    since: datetime
    raised: datetime
    windows: int
    expected: float
    lower: float
    observed: float
    cause: ContradictionCause
    antagonist: str | None = None
    wanted_before: float = 0.0
    wanted: float = 0.0
    measured: bool = False

    @property
    def text(self) -> str:
        """It in words: what was measured, what was predicted, and who is likely behind it."""
        return (
            f"{self.instance} on {self.host} got {self.observed:.2f} of the CPU time that it wanted in "
            f"{self.windows} windows since {self.since:%Y-%m-%d %H:%M} UTC, and {self.expected:.2f} was predicted "
            f"(at least {self.lower:.2f}). {self._why}"
        )

    @property
    def _why(self) -> str:
        change = f"{self.wanted:.2f} CPUs in place of {self.wanted_before:.2f}"
        if self.cause == "itself":
            return f"It wants {change} itself."
        if self.antagonist is None:
            return (
                "Nobody there in particular wants more than before: it is likely the host, with slower CPUs or work "
                "that nobody told of."
            )
        if self.measured:
            return f"It was {self.antagonist} that ran for most of the time that it waits more, and wants {change}."
        return f"It is likely {self.antagonist}, which wants {change}."
