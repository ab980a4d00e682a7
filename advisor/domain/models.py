"""Models as registered, how well calibrated their ranges are, and anomalies in measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, computed_field

from models.figures import Known, Tenths

# Models as they are registered, and which of them answered when.


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A registered model."""

    version: Annotated[str, Field(description="the model")]
    status: Annotated[str, Field(description="candidate, shadow, active or retired")]
    created_at: Annotated[datetime, Field(description="when it was registered")]
    origin: Annotated[str, Field(description="where its training data came from")]
    card: Annotated[
        Mapping[str, Any], Field(description="figures, training data and settings, as written by the training")
    ]
    verdict: Annotated[
        Mapping[str, Any] | None,
        Field(
            description="what the gate last said (`models.evaluation.gate.GateVerdict`): `passed`, `refusals` and "
            "`reasons` as sentences, `figures` by target and protocol, `against` which active model; null for the "
            "analytic model"
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Activation:
    """One change of the model that answers."""

    at: Annotated[datetime, Field(description="when")]
    before: Annotated[str, Field(description="the version that answered before; analytic = the analytic model alone")]
    after: Annotated[str, Field(description="the version that answers since; analytic = the analytic model alone")]
    cause: Annotated[str, Field(description="activate, force (against the gate) or rollback")]


# What has shown how often the ranges of an answer hold, in words.

# What an answer's ranges were calibrated on: outcomes on hosts like this one, pairs or windows of hosts that training
# left out, or nothing. Only ranges that outcomes have calibrated are called 90 % intervals.
Calibration = Literal["observed", "trained", "windows", "none"]
SENTENCES: dict[Calibration, str] = {
    "none": "The ranges are not calibrated on your hosts: no outcome there has shown how often they hold.",
    "trained": "The ranges held for 90 of 100 pairs that the model's training left out. "
    "They are not calibrated on your hosts: too little was observed there.",
    "windows": "The ranges held for 90 % of the windows of hosts that the model's training left out. "
    "They are not calibrated on your hosts: too little was observed there.",
    "observed": "The ranges are 90 % intervals: what was observed on such hosts was held against them.",
}
_WEAKEST_FIRST: tuple[Calibration, ...] = ("none", "trained", "windows", "observed")


def calibration_in_words(calibrations: Iterable[Calibration], hosts: int | None = None) -> str:
    """One sentence on several candidates, by the weakest of them; empty where there is none.

    `hosts` is of how many hosts the windows of the model's training were, None = not known.
    """
    known = set(calibrations)
    weakest = next((one for one in _WEAKEST_FIRST if one in known), None)
    if weakest is None:
        return ""
    if weakest == "windows" and hosts is not None:
        return SENTENCES[weakest].replace("windows of hosts", f"windows of {hosts:,} host{'' if hosts == 1 else 's'}")
    return SENTENCES[weakest]


# An anomaly: an instance gets less of the CPU time that it demands than was predicted, window after window.

# The likely cause: a neighbour that demands more than before, the instance itself for the same reason, or the
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
        """It in words: what was measured, what was predicted, and the likely cause."""
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
