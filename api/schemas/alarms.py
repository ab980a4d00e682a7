"""Schemas of alarms: instances that get less of the CPU time that they want than was predicted."""

from __future__ import annotations

from pydantic import Field

from api.schemas.base import AnswerBody, Known, Time


class ContradictionOut(AnswerBody):
    """One alarm; shares are run / (run + wait) of windows of five minutes."""

    instance: str = Field(description="who gets less than was predicted")
    host: str = Field(description="where it is")
    since: Time = Field(description="when the first window began that lay below the predicted range")
    raised: Time = Field(description="when the last window ended that it took to be sure")
    windows: int = Field(description="windows since then")
    expected: Known = Field(description="share that was predicted before the last of them")
    lower: Known = Field(description="lower end of its range, as wide as windows here have shown that it must be")
    observed: Known = Field(description="mean share since then")
    cause: str = Field(description="neighbour or itself: who is likely behind it; host: nobody there in particular")
    antagonist: str | None = Field(description="that instance; null where it is the host")
    wanted_before: Known = Field(description="CPUs that were expected of it; 0 where it is the host")
    wanted: Known = Field(description="CPUs that it wanted when the alarm was raised; 0 where it is the host")
    measured: bool = Field(
        description="true = it ran for most of the time that the other waits more, as the agent's run-queue collector "
        "saw; false = it is who wants most beyond what was expected"
    )
    text: str = Field(description="the alarm in words")


class AlarmsOut(AnswerBody):
    """Alarms that stand, by host and instance."""

    alarms: list[ContradictionOut] = Field(description="each ends by itself when windows agree again")


class DoctorOut(AnswerBody):
    """What `cotenant doctor` finds wrong."""

    problems: list[str] = Field(description="all that is wrong, as sentences")
    alarms: list[ContradictionOut] = Field(description="contradictions between predictions and measurements among it")
