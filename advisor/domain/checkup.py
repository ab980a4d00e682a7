"""What a check-up of the cloud finds: memory, own load, alarms, hosts without measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, computed_field

from advisor.domain.models import Anomaly
from advisor.domain.scores import LOW_SCORE, LowScore, VmScore
from advisor.domain.words import listed
from models.figures import Known, Tenths

# The state of a host's memory beyond its size: stalls, swap, merged pages.

# Kernel, Documentation/accounting/psi.rst: the example of a trigger is a partial stall of 150 ms within 1 s. A host
# that stalls so much takes no new VM. systemd-oomd kills from 60 % on (oomd.conf, DefaultMemoryPressureLimit).
STALLED_PERCENT = 15.0
# Assumed: where the kernel counts no pressure (psi=0), 256 pages of 4 kB a second that are needed again count as such.
SWAPS_IN_MB_S = 1.0
MEMORY_SHORT = "memory_short"  # label of a host, while answers are made: why it takes no new VM
NOTICED_PERCENT = 1.0  # of stalls: less is not named


@dataclass(frozen=True, slots=True)
class HostMemory:
    """A host's memory over about five minutes, as its agent measured it; null = the host does not show it."""

    stalled: Annotated[
        Tenths | None, Field(description="part of the time in which some task stalled for memory (PSI), %")
    ] = None
    swap_mb: Annotated[Tenths | None, Field(description="memory that is swapped out, MB")] = None
    swap_in_mb_s: Annotated[
        Known | None, Field(description="memory that comes back from swap, MB/s: it is needed and is not there")
    ] = None
    swap_out_mb_s: Annotated[Known | None, Field(description="memory that goes to swap, MB/s")] = None
    ksm_mb: Annotated[
        Tenths | None,
        Field(description="memory saved by merged pages (KSM), which come back as demand when they change, MB"),
    ] = None
    available_mb: Annotated[Tenths | None, Field(description="memory that can be used without swapping, MB")] = None
    huge_mb: Annotated[Tenths | None, Field(description="the pool of huge pages of the default size, MB")] = None
    huge_free_mb: Annotated[Tenths | None, Field(description="of this pool what nothing uses, MB")] = None

    @property
    def swaps(self) -> bool:
        """Whether memory that is needed was swapped out, and comes back."""
        return (self.swap_in_mb_s or 0.0) >= SWAPS_IN_MB_S

    def is_short(self, stalled_percent: float = STALLED_PERCENT) -> bool:
        """Whether the host takes no new VM: its tasks stall for memory, or it swaps and does not show stalls."""
        if self.stalled is not None:
            return self.stalled >= stalled_percent
        return self.swaps

    @property
    def short_words(self) -> str:
        """Why it is short of memory, as a part of a sentence, in steps of 5 % and of powers of two."""
        parts = []
        if self.stalled is not None and self.stalled >= NOTICED_PERCENT:
            parts.append(f"stalls for memory about {max(5 * round(self.stalled / 5), 1)} % of the time")
        if self.swaps:
            parts.append(f"swaps in about {2 ** round(math.log2(self.swap_in_mb_s or 1.0))} MB/s")
        return " and ".join(parts)

    @property
    def words(self) -> str:
        """What is wrong with it, as a part of a sentence; empty = nothing is."""
        parts = []
        if self.stalled is not None and self.stalled >= NOTICED_PERCENT:
            parts.append(f"stalls for memory {self.stalled:.0f} % of the time")
        if self.swaps:
            parts.append(f"swaps in {self.swap_in_mb_s:.1f} MB/s")
        if parts and self.swap_mb:
            parts.append(f"has {self.swap_mb:,.0f} MB in swap")
        return ", ".join(parts)


MOST_BROKEN = 5  # rules that a sentence names
LOW_DELIVERY = 0.8  # of the CPU time that an instance asked for, over an hour: CPU ready of 20 %


@dataclass(frozen=True, slots=True)
class Delivered:
    """CPU time delivered to one instance in the last hour."""

    instance: Annotated[str, Field(description="the instance")]
    host: Annotated[str, Field(description="where it is")]
    share: Annotated[Known, Field(description="of the CPU time that it asked for, without what its own cap took")]


@dataclass(frozen=True, slots=True)
class OwnLoad:
    """What a host uses itself, outside of its instances."""

    host: Annotated[str, Field(description="the host")]
    cpus: Annotated[Known, Field(description="CPUs that its own work uses")]
    pcpus: Annotated[int, Field(description="CPUs that it has")]


@dataclass(frozen=True, slots=True)
class MemoryHere:
    """The memory of one host."""

    host: Annotated[str, Field(description="the host")]
    state: Annotated[HostMemory, Field(description="as its agent measured it in the last minutes")]


@dataclass(frozen=True, slots=True)
class Checkup:
    """What is wrong with the cloud and the service now, and what was looked at."""

    hosts: Annotated[int, Field(description="how many hosts are known")]
    instances: Annotated[int, Field(description="how many instances are known")]
    measured_instances: Annotated[int, Field(description="of how many run and wait were measured in the last hour")]
    alarms: Annotated[tuple[Anomaly, ...], Field(description="anomalies: measured beyond the predicted range")] = ()
    silent: Annotated[tuple[str, ...], Field(description="hosts that sent nothing for as long as is allowed")] = ()
    unmeasured: Annotated[tuple[str, ...], Field(description="hosts that never sent a measurement")] = ()
    stopped: Annotated[
        tuple[str, ...],
        Field(description="hosts that no longer send measurements, though a source reports them"),
    ] = ()
    starved: Annotated[
        tuple[Delivered, ...],
        Field(description="instances with less than 0.8 of their CPU time, the lowest first"),
    ] = ()
    low_scores: Annotated[
        tuple[VmScore, ...], Field(description="measured VMs with a score below 60, the lowest first")
    ] = ()
    memory: Annotated[
        tuple[MemoryHere, ...], Field(description="hosts that stall for memory 5 % of the time or more, or swap")
    ] = ()
    own_load: Annotated[
        tuple[OwnLoad, ...], Field(description="hosts whose own work takes a tenth of their CPUs or more")
    ] = ()
    disagreements: Annotated[Mapping[str, str], Field(description="on what sources differ, by host")] = field(
        default_factory=dict
    )
    malformed: Annotated[
        Mapping[str, str], Field(description="what was left out of the reports of agents, by host")
    ] = field(default_factory=dict)
    broken: Annotated[
        tuple[str, ...], Field(description="rules and sizes that do not hold, as sentences; a plan may repair them")
    ] = ()
    degraded: Annotated[bool, Field(description="the active model cannot be read and the analytic model answers")] = (
        False
    )
    elsewhere: Annotated[
        bool, Field(description="true = measurements are in another store, and were not looked at")
    ] = False

    @computed_field(description="all that is wrong, as sentences; empty = nothing is")  # type: ignore[prop-decorator]
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
        starved = {one.instance for one in self.starved}  # named above already, with the same cause
        low = [one for one in self.low_scores if one.instance not in starved]
        if low:
            lowest = [f"{one.instance} on {one.host} {one.score:.0f}" for one in low]
            found.append(f"The score of {len(low)} measured VMs is below {LOW_SCORE:.0f}: {listed(lowest)}.")
        found += [
            f"{one.host} uses {one.cpus:.1f} of its {one.pcpus} CPUs itself, outside of its instances."
            for one in self.own_load
        ]
        found += [f"Sources disagree on {host}: {text}." for host, text in self.disagreements.items()]
        found += [f"Of what {host} reports, {text}." for host, text in self.malformed.items()]
        if self.broken:
            rules = "1 rule does not hold" if len(self.broken) == 1 else f"{len(self.broken):,} rules do not hold"
            found.append(f"{rules}; a plan of the kind repair ends that: {'; '.join(self.broken[:MOST_BROKEN])}.")
        if self.degraded:
            found.append("The active model cannot be read, and the analytic model stands in: look at cotenant models.")
        return tuple(found)

    @computed_field(description="what was looked at, as a sentence")  # type: ignore[prop-decorator]
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


@dataclass(frozen=True, slots=True)
class Alarms:
    """Alarms that stand, by host and instance."""

    alarms: Annotated[tuple[Anomaly, ...], Field(description="each ends by itself when windows agree again")]
    low_scores: Annotated[
        tuple[LowScore, ...],
        Field(description="VMs with a low measured score in three windows or more, the lowest first, at most 100"),
    ] = ()
