"""The parts of a campaign: members, pinning forms, groups, repeats and the time grid."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from lab.workloads import Workload
from profiler.observed import IsolationSettings

Cpus = tuple[int, ...]
Backing = Literal["container", "native", "qemu", "xen"]
Accelerator = Literal["auto", "kvm", "tcg"]
Vhost = Literal["auto", "on", "off"]
Scheduler = Literal["credit", "credit2"]


@dataclass(frozen=True, slots=True)
class Volume:
    """The disk of all files of the instances: MB/s of reads and writes together, and requests/s, None = no limit."""

    mb_s: float
    requests_s: float | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """One participant of a group: a named workload with load and settings; `label` distinguishes variants."""

    workload: str
    label: str
    load: float
    vcpus: int
    settings: IsolationSettings


@dataclass(frozen=True, slots=True)
class GuestSettings:
    """How VMs are made; `auto` takes the fastest way that works on this host."""

    memory_mb: int = 256
    accelerator: Accelerator = "auto"
    vhost: Vhost = "auto"


@dataclass(frozen=True, slots=True)
class EmulatedXen:
    """A Xen machine that the lab emulates, with two guests of one vCPU.

    Dom0 has at most `dom0_vcpus`; `memory_mb` is the memory of the whole machine. Each pCPU gets at most `pcpu_percent`
    of a CPU of this host, None = no limit. The eight metrics are read over `metrics_s` of each run, 0 = not at all;
    with `kernel_tables` also what guests hold of grant entries and slab objects, at rest and at work.
    """

    pcpus: int = 4
    dom0_vcpus: int = 4
    memory_mb: int = 2048
    scheduler: Scheduler = "credit"
    pcpu_percent: float | None = None
    metrics_s: float = 2.0
    kernel_tables: bool = False


@dataclass(frozen=True, slots=True)
class PinningForm:
    """Where the members run: member i on `cpus[i % len]`, its load generator on `clients[i % len]`, None = with it.

    `driver` are the CPUs that do the host's I/O work for the instances, None = where the kernel puts it.
    """

    name: str
    cpus: tuple[Cpus, ...]
    clients: tuple[Cpus, ...] | None
    driver: Cpus | None

    def place(self, position: int) -> tuple[Cpus, Cpus]:
        """CPUs of the member at this position, and of its load generator."""
        own = self.cpus[position % len(self.cpus)]
        return own, own if self.clients is None else self.clients[position % len(self.clients)]


@dataclass(frozen=True, slots=True)
class MemberGroup:
    """Members that share the host, in one pinning form."""

    members: tuple[Member, ...]
    pinning: PinningForm


@dataclass(frozen=True, slots=True)
class Repeats:
    """How often rounds are measured.

    After `least` rounds, rounds go on up to `most` with those runs only whose 95 % interval of T/B is wider than
    +-`narrow`, relative to the median; None = no further rounds. No run begins after `minutes` of measuring.
    """

    least: int
    most: int
    narrow: float | None = None
    minutes: float | None = None


@dataclass(frozen=True, slots=True)
class Temporal:
    """Rounds on a fixed time grid, as in the papers' campaigns over days."""

    every_min: float
    hours: float

    @property
    def slots(self) -> int:
        """How many rounds the grid has."""
        return max(1, round(self.hours * 60 / self.every_min))


@dataclass(frozen=True, slots=True)
class OnOff:
    """Groups are measured on/off, within one run: in states of `dwell_ms`, of which the first `guard_ms` do not count.

    Where both are None, each workload has a run beside the workload `beside` before the first round, which finds them.
    With `fill_idle`, CPUs without work are kept busy meanwhile, so that each is as fast as beside a busy one.
    """

    beside: str
    dwell_ms: int | None
    guard_ms: int | None
    fill_idle: bool

    @property
    def tunes(self) -> bool:
        """Whether both lengths are still to be found."""
        return self.dwell_ms is None or self.guard_ms is None


@dataclass(frozen=True, slots=True)
class Campaign:
    """A whole campaign. `fingerprint` changes whenever earlier runs are no longer comparable.

    `members` are the workloads as defined, without the changes of groups, by name. All instances together get at most
    `host_cap_percent` of CPU time, 100 = one CPU, None = all that there is.
    """

    name: str
    platform: str
    seconds: int
    warmup_s: float
    repeats: Repeats
    seed: int
    link_mbit: float | None
    notes: str
    licence: str
    learn: bool
    hidden: bool
    workloads: Mapping[str, Workload]
    members: Mapping[str, Member]
    groups: tuple[MemberGroup, ...]
    pinnings: tuple[PinningForm, ...]
    fingerprint: str
    instances: Backing
    guests: GuestSettings
    temporal: Temporal | None
    warmup_most_s: float
    line_mbit: float | None
    queue_packets: int
    routers: int
    volume: Volume | None
    host_cap_percent: float | None
    on_off: OnOff | None
    emulated: EmulatedXen | None

    @property
    def cpus(self) -> frozenset[int]:
        """All CPUs that are named anywhere."""
        sets = [cpus for form in self.pinnings for cpus in (*form.cpus, *(form.clients or ()), form.driver or ())]
        return frozenset(cpu for cpus in sets for cpu in cpus)

    def repeated(self, rounds: int | None, minutes: float | None) -> Campaign:
        """This campaign with another minimum of rounds and another limit of minutes; None = unchanged."""
        repeats = self.repeats
        least = repeats.least if rounds is None else rounds
        most = least if repeats.narrow is None else max(least, repeats.most)
        minutes = repeats.minutes if minutes is None else minutes
        return replace(self, repeats=Repeats(least, most, repeats.narrow, minutes))

    def measured_on(self, platform: str | None) -> Campaign:
        """This campaign for a host that is called `platform`, with a name of its own; None = unchanged.

        Two hosts are two platforms, so runs of one do not continue the journal of the other.
        """
        if platform is None:
            return self
        fingerprint = hashlib.sha256(f"{self.fingerprint} {platform}".encode()).hexdigest()
        return replace(self, platform=platform, name=f"{self.name}-{platform}", fingerprint=fingerprint)
