"""Schemas of alarms: instances with less CPU delivered than was predicted."""

from __future__ import annotations

from pydantic import Field

from api.schemas.base import AnswerBody, Known, Tenths, Time
from api.schemas.scores import HostMemoryOut, VmScoreOut


class AnomalyOut(AnswerBody):
    """One alarm; shares are run / (run + wait) of windows of five minutes."""

    instance: str = Field(description="the instance with less CPU delivered than was predicted")
    host: str = Field(description="where it is")
    since: Time = Field(description="when the first window began that lay below the predicted range")
    raised: Time = Field(description="when the last window ended that it took to be sure")
    windows: int = Field(description="windows since then")
    expected: Known = Field(description="share that was predicted before the last of them")
    lower: Known = Field(description="lower end of its range, as wide as windows here have shown that it must be")
    observed: Known = Field(description="mean share since then")
    cause: str = Field(description="the likely cause: neighbour, itself, or host = no instance there in particular")
    antagonist: str | None = Field(description="that instance; null where it is the host")
    wanted_before: Known = Field(description="CPUs that were expected of it; 0 where it is the host")
    wanted: Known = Field(description="its demand in CPUs when the alarm was raised; 0 where it is the host")
    measured: bool = Field(
        description="true = it ran for most of the time that the other waits more, as the agent's run-queue collector "
        "saw; false = its demand rose most above what was expected"
    )
    text: str = Field(description="the alarm in words")
    score: Tenths = Field(default=None, description="score of the instance now, 0-100; null = not asked for here")


class AlarmsOut(AnswerBody):
    """Alarms that stand, by host and instance."""

    alarms: list[AnomalyOut] = Field(description="each ends by itself when windows agree again")


class DeliveredOut(AnswerBody):
    """CPU time delivered to one instance in the last hour."""

    instance: str = Field(description="the instance")
    host: str = Field(description="where it is")
    share: Known = Field(description="of the CPU time that it asked for, without what its own cap took")


class OwnLoadOut(AnswerBody):
    """What a host uses itself, outside of its instances."""

    host: str = Field(description="the host")
    cpus: Known = Field(description="CPUs that its own work uses")
    pcpus: int = Field(description="CPUs that it has")


class MemoryHereOut(AnswerBody):
    """The memory of one host."""

    host: str = Field(description="the host")
    state: HostMemoryOut = Field(description="as its agent measured it in the last minutes")


class DoctorOut(AnswerBody):
    """What `cotenant doctor` finds wrong, and what it looked at."""

    problems: list[str] = Field(description="all that is wrong, as sentences; empty = nothing is")
    alarms: list[AnomalyOut] = Field(description="anomalies among it: measured beyond the predicted range")
    hosts: int = Field(description="how many hosts are known")
    instances: int = Field(description="how many instances are known")
    measured_instances: int = Field(description="of how many run and wait were measured in the last hour")
    silent: list[str] = Field(description="hosts that sent nothing for as long as is allowed")
    unmeasured: list[str] = Field(description="hosts that never sent a measurement")
    stopped: list[str] = Field(description="hosts that no longer send measurements, though a source reports them")
    starved: list[DeliveredOut] = Field(description="instances with less than 0.8 of their CPU time, the lowest first")
    memory: list[MemoryHereOut] = Field(description="hosts that stall for memory 5 % of the time or more, or swap")
    low_scores: list[VmScoreOut] = Field(description="measured VMs with a score below 60, the lowest first")
    own_load: list[OwnLoadOut] = Field(description="hosts whose own work takes a tenth of their CPUs or more")
    looked_at: str = Field(description="what was looked at, as a sentence")
    elsewhere: bool = Field(description="true = measurements are in another store, and were not looked at")
