"""A contradiction: an instance gets less of the CPU time that it wants than was predicted, window after window."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

# Who is likely behind it: a neighbour that wants more than before, the instance itself for the same reason, or the
# host, where no instance in particular changed.
ContradictionCause = Literal["neighbour", "itself", "host"]


@dataclass(frozen=True, slots=True)
class Contradiction:
    """An alarm that stands. Shares are run / (run + wait) of windows of five minutes: `observed` is their mean since
    `since` over `windows`, `expected` and `lower` what was predicted before the last of them.

    `antagonist` is who likely holds it back, None = no instance in particular; it wanted `wanted_before` CPUs and wants
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
            f"CPU delivered to {self.instance} on {self.host} was {100 * self.observed:.0f} % of its demand in "
            f"{self.windows} windows since {self.since:%Y-%m-%d %H:%M} UTC; {100 * self.expected:.0f} % was predicted, "
            f"and at least {100 * self.lower:.0f} %. {self._why}"
        )

    @property
    def _why(self) -> str:
        change = f"demand rose from {self.wanted_before:.2f} to {self.wanted:.2f} CPUs"
        if self.cause == "itself":
            return f"Its own {change}."
        if self.antagonist is None:
            return (
                "The demand of no instance there rose much: the likely cause is the host, with slower CPUs or work "
                "that the inventory does not show."
            )
        if self.measured:
            return f"{self.antagonist}, whose {change}, ran for most of the additional time that it waits."
        return f"The likely cause is {self.antagonist}, whose {change}."
