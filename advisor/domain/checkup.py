"""A check-up: what is wrong with the cloud and the service now, and how much of it was looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.domain.contradictions import Contradiction
from advisor.domain.host_memory import HostMemory
from advisor.domain.list_words import listed
from advisor.domain.scores import LOW_SCORE, VmScore

LOW_DELIVERY = 0.8  # of the CPU time that an instance asked for, over an hour: CPU ready of 20 %


@dataclass(frozen=True, slots=True)
class Delivered:
    """CPU time delivered to an instance in the last hour: `share` of what it asked for, without what its cap took."""

    instance: str
    host: str
    share: float


@dataclass(frozen=True, slots=True)
class OwnLoad:
    """CPUs that a host uses itself, outside of its instances, of how many it has."""

    host: str
    cpus: float
    pcpus: int


@dataclass(frozen=True, slots=True)
class MemoryHere:
    """The memory of a host."""

    host: str
    state: HostMemory


@dataclass(frozen=True, slots=True)
class Checkup:
    """What was found, by host and instance, and what could be looked at.

    `hosts` and `instances` are how many the service knows, `measured_instances` of how many run and wait were measured
    in the last hour. `silent` hosts sent nothing for as long as is allowed, `unmeasured` ones never sent a measurement,
    those in `stopped` did and no longer do, though another source still reports them. `starved` instances got less than
    LOW_DELIVERY. `low_scores` are measured and below LOW_SCORE. Hosts in `memory` stall for memory or swap.
    `elsewhere` = measurements are in another store, so that only predictions were looked at.
    """

    hosts: int
    instances: int
    measured_instances: int
    alarms: tuple[Contradiction, ...] = ()
    silent: tuple[str, ...] = ()
    unmeasured: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    starved: tuple[Delivered, ...] = ()
    low_scores: tuple[VmScore, ...] = ()
    memory: tuple[MemoryHere, ...] = ()
    own_load: tuple[OwnLoad, ...] = ()
    disagreements: tuple[tuple[str, str], ...] = ()
    malformed: tuple[tuple[str, str], ...] = ()
    degraded: bool = False
    elsewhere: bool = False

    @property
    def problems(self) -> tuple[str, ...]:
        """All that is wrong, as sentences; empty = nothing is."""
        found = [alarm.text for alarm in self.alarms]
        if not self.hosts:
            found.append("No hosts are known: put an inventory, start a sync or an agent (docs/your-cloud.md).")
        if self.silent:
            found.append(
                f"{len(self.silent)} of {self.hosts} hosts sent nothing of late and get no instances: look at their "
                f"agents ({listed(self.silent)})."
            )
        if self.unmeasured:
            found.append(
                f"{len(self.unmeasured)} of {self.hosts} hosts have sent no measurements, and what happens on them is "
                f"not known: start cotenant-profiler there ({listed(self.unmeasured)})."
            )
        if self.stopped:
            found.append(
                f"{len(self.stopped)} of {self.hosts} hosts no longer send measurements: look at their agents "
                f"({listed(self.stopped)})."
            )
        if self.starved:
            worst = [f"{one.instance} on {one.host} {100 * one.share:.0f} %" for one in self.starved]
            found.append(
                f"CPU delivered to {len(self.starved)} of {self.measured_instances} measured instances was below "
                f"{100 * LOW_DELIVERY:.0f} % in the last hour: {listed(worst)}."
            )
        if self.memory:
            pressed = [f"{one.host} {one.state.words}" for one in self.memory]
            found.append(f"Hosts that are short of memory: {listed(pressed)}.")
        if self.low_scores:
            lowest = [f"{one.instance} on {one.host} {one.score:.0f}" for one in self.low_scores]
            found.append(
                f"The score of {len(self.low_scores)} measured VMs is below {LOW_SCORE:.0f}: {listed(lowest)}."
            )
        found += [
            f"{one.host} uses {one.cpus:.1f} of its {one.pcpus} CPUs itself, outside of its instances."
            for one in self.own_load
        ]
        found += [f"Sources disagree on {host}: {text}." for host, text in self.disagreements]
        found += [f"Of what {host} reports, {text}." for host, text in self.malformed]
        if self.degraded:
            found.append("The active model cannot be read, and the analytic model stands in: look at cotenant models.")
        return tuple(found)

    @property
    def looked_at(self) -> str:
        """What a check-up that found nothing rests on, in words."""
        if self.elsewhere:
            return (
                f"Nothing wrong was found with {self.hosts} hosts; their measurements are in another store, and were "
                "not looked at."
            )
        return (
            f"Nothing wrong was found: {self.hosts} hosts send measurements, and CPU delivered was at least "
            f"{100 * LOW_DELIVERY:.0f} % in the last hour for the {self.measured_instances} of {self.instances} "
            "instances that were measured."
        )


def worst_first(found: Sequence[Delivered]) -> tuple[Delivered, ...]:
    """By share, then by name."""
    return tuple(sorted(found, key=lambda one: (one.share, one.host, one.instance)))
