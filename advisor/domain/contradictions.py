"""An anomaly: an instance gets less of the CPU time that it wants than was predicted, window after window."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, computed_field

from advisor.domain.figures import Known, Tenths

# Who is likely behind it: a neighbour that wants more than before, the instance itself for the same reason, or the
# host, where no instance in particular changed.
AnomalyCause = Literal["neighbour", "itself", "host"]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """An alarm that stands; shares are run / (run + wait) of windows of five minutes."""

    instance: Annotated[str, Field(description="the instance with less CPU delivered than was predicted")]
    host: Annotated[str, Field(description="where it is")]
    since: Annotated[datetime, Field(description="when the first window began that lay below the predicted range")]
    raised: Annotated[datetime, Field(description="when the last window ended that it took to be sure")]
    windows: Annotated[int, Field(description="windows since then")]
    expected: Annotated[Known, Field(description="share that was predicted before the last of them")]
    lower: Annotated[
        Known, Field(description="lower end of its range, as wide as windows here have shown that it must be")
    ]
    observed: Annotated[Known, Field(description="mean share since then")]
    cause: Annotated[
        AnomalyCause,
        Field(description="the likely cause: neighbour, itself, or host = no instance there in particular"),
    ]
    antagonist: Annotated[str | None, Field(description="that instance; null where it is the host")] = None
    demand_before: Annotated[Known, Field(description="CPUs that were expected of it; 0 where it is the host")] = 0.0
    demand: Annotated[
        Known, Field(description="its demand in CPUs when the alarm was raised; 0 where it is the host")
    ] = 0.0
    measured: Annotated[
        bool,
        Field(
            description="true = it ran for most of the time that the other waits more, as the agent's run-queue "
            "collector saw; false = its demand rose most above what was expected"
        ),
    ] = False
    score: Annotated[
        Tenths | None, Field(description="score of the instance now, 0-100; null = not asked for here")
    ] = None

    @computed_field(description="the alarm in words")  # type: ignore[prop-decorator]
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
        change = f"demand rose from {self.demand_before:.2f} to {self.demand:.2f} CPUs"
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
