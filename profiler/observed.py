"""Data types for observations: hosts, instances, settings, samples, probe results and co-locations."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from profiler import host_kinds
from profiler.demand import Demand, Resource
from profiler.host_kinds import HOST_KINDS, Groups, HostKind, as_said, first_of_core

NetMode = Literal["none", "shared", "dedicated"]
DiskKind = Literal["", "hdd", "ssd", "nvme", "network"]

NET_MODES: tuple[NetMode, ...] = ("none", "shared", "dedicated")
DEFAULT_WEIGHT = 256  # Xen's default scheduler weight; renderers convert it to each hypervisor's own scale
MAX_WEIGHT = 65_535  # xl(1), sched-credit
ANTI_AFFINITY_LABEL = "anti_affinity"  # names the groups, with commas, of which no two instances share a host
ANTI_AFFINITY_MOST_LABEL = "anti_affinity_most"  # how many of each of these may share one, where it is not one
AFFINITY_LABEL = "affinity"  # names the group whose instances share one host
NEVER_MOVE_LABEL = "never_move"  # "true" = no plan moves the instance
MOVED_LABEL = "moved_at"  # when the instance moved lately: moments of ISO 8601 with a comma between two
REQUIRE_LABEL = "require."  # before the name of a host's label that must have the same value
MAX_CPUS = 4096  # what the parsers accept, against absurd ranges in input
_ID = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._:-]{1,255}\Z")  # `.` and `..` are steps of a path
_NOTHING: Mapping[str, str] = MappingProxyType({})
_NOT_PROBED: Mapping[str, float] = MappingProxyType({})
_NO_DEMAND: Mapping[Resource, Demand] = MappingProxyType({})


def check_id(value: str, what: str = "id") -> str:
    """Return `value` if it is an id of the contract (1-255 of letters, digits, `._:-`, not `.` or `..`).

    Raises ValueError.
    """
    if not _ID.match(value):
        raise ValueError(f"{what} {value[:60]!r} is not 1-255 letters, digits or ._:- characters (and not . or ..)")
    return value


def parse_cpus(text: str) -> tuple[int, ...]:
    """Read a CPU list such as `0,2-3` into sorted CPU numbers; ValueError names the part that is wrong."""
    cpus: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,5})(?:\s*-\s*(\d{1,5}))?\s*", part)
        if not match:
            raise ValueError(f"{part!r} in CPU list {text!r} is not a number or a range")
        first = int(match[1])
        last = int(match[2]) if match[2] is not None else first
        if last < first or last >= MAX_CPUS:
            raise ValueError(f"range {part!r} in CPU list {text!r} runs backwards or beyond CPU {MAX_CPUS - 1}")
        cpus.update(range(first, last + 1))
    return tuple(sorted(cpus))


def format_cpus(cpus: tuple[int, ...] | frozenset[int]) -> str:
    """Write CPU numbers as the shortest list with ranges, the inverse of `parse_cpus`."""
    parts: list[str] = []
    ordered = sorted(cpus)
    start = 0
    for position, cpu in enumerate(ordered):
        if position + 1 < len(ordered) and ordered[position + 1] == cpu + 1:
            continue
        first = ordered[start]
        parts.append(str(first) if first == cpu else f"{first}-{cpu}")
        start = position + 1
    return ",".join(parts)


@dataclass(frozen=True, slots=True)
class Pinning:
    """Which pCPUs each vCPU may run on; `cpus[v]` is the sorted set of vCPU v, empty = any."""

    cpus: tuple[tuple[int, ...], ...]

    @classmethod
    def parse(cls, text: str) -> Pinning | None:
        """Read `0:2|1:3` or `0:2-3` (vCPU:pCPU list); an empty text means unpinned and gives None.

        An empty list means any pCPU, as in `0:2|1:`.
        """
        if not text.strip():
            return None
        by_vcpu: dict[int, tuple[int, ...]] = {}
        for part in text.split("|"):
            vcpu, colon, cpus = part.partition(":")
            if not colon or not vcpu.strip().isdecimal() or len(vcpu) > 5:
                raise ValueError(f"{part!r} in pinning {text!r} is not vCPU:pCPUs")
            if int(vcpu) in by_vcpu:
                raise ValueError(f"vCPU {int(vcpu)} stands twice in pinning {text!r}")
            by_vcpu[int(vcpu)] = parse_cpus(cpus) if cpus.strip() else ()
        if sorted(by_vcpu) != list(range(len(by_vcpu))):
            raise ValueError(f"vCPUs in pinning {text!r} are not numbered from 0 without gaps")
        return cls(tuple(by_vcpu[vcpu] for vcpu in range(len(by_vcpu))))

    @classmethod
    def all_on(cls, cpus: tuple[int, ...], vcpus: int) -> Pinning:
        """Pin each of `vcpus` vCPUs to the same set of pCPUs."""
        return cls((tuple(sorted(cpus)),) * vcpus)

    @property
    def named(self) -> frozenset[int]:
        """All pCPUs that any vCPU is pinned to."""
        return frozenset(cpu for cpus in self.cpus for cpu in cpus)

    @property
    def union(self) -> frozenset[int]:
        """All pCPUs that any vCPU may use; empty when some vCPU may use any."""
        if not all(self.cpus):
            return frozenset()
        return self.named

    def __str__(self) -> str:
        return "|".join(f"{vcpu}:{format_cpus(cpus)}" for vcpu, cpus in enumerate(self.cpus))


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """How tc treats an instance: `shared` may borrow up to `ceil_mbit`, `dedicated` keeps to `rate_mbit` (L9, L10)."""

    mode: NetMode = "none"
    rate_mbit: float | None = None
    ceil_mbit: float | None = None

    def __post_init__(self) -> None:
        if self.mode not in NET_MODES:
            raise ValueError(f"network mode {self.mode!r} is none of {', '.join(NET_MODES)}")
        if self.mode != "none" and not (self.rate_mbit and self.rate_mbit > 0):
            raise ValueError(f"network mode {self.mode} needs a rate_mbit above 0")
        if self.ceil_mbit is not None and self.rate_mbit is not None and self.ceil_mbit < self.rate_mbit:
            raise ValueError(f"ceil_mbit {self.ceil_mbit} is below rate_mbit {self.rate_mbit}")


@dataclass(frozen=True, slots=True)
class IsolationSettings:
    """What holds an instance back; None = leave as is. The same type is observed and recommended.

    `cap_percent`: 100 = one whole pCPU (Xen's unit, xl(1)); `weight`: Xen's scale with 256 as default;
    `disk_limit_mb_s`: read plus write; of a container each way by itself, as control groups count.
    """

    pinning: Pinning | None = None
    cap_percent: float | None = None
    weight: int | None = None
    network: NetworkSettings | None = None
    disk_limit_mb_s: float | None = None

    def __post_init__(self) -> None:
        if self.cap_percent is not None and self.cap_percent <= 0:
            raise ValueError(f"cap_percent {self.cap_percent} is not above 0 (leave it out for no cap)")
        if self.weight is not None and not 1 <= self.weight <= MAX_WEIGHT:
            raise ValueError(f"weight {self.weight} is outside 1-{MAX_WEIGHT}")
        if self.disk_limit_mb_s is not None and self.disk_limit_mb_s <= 0:
            raise ValueError(f"disk_limit_mb_s {self.disk_limit_mb_s} is not above 0")


CpuKey = tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Host:
    """A hypervisor host: its resources, and where its driver domain runs.

    A pCPU is named by the number that the host gives it. `cpu_ids` are the numbers of its `pcpus` pCPUs, in ascending
    order, where they have gaps (siblings switched off, CPUs offline); empty = 0 to pcpus - 1. On `isolated_cpus` runs
    nothing that is not pinned there; `dedicated_cpus` serve dedicated vCPUs only, one each. `numa[n]` are the pCPUs of
    node n; empty = one node. `siblings` are the pCPUs of each core that has several, where their numbers do not say so
    (profiler.host_kinds). `driver_cpus` are those of the driver domain (Dom0, or vhost and emulator threads); empty =
    it may run anywhere, and then it has as many vCPUs (dom0_max_vcpus of xen-command-line). `driver_weight` is its
    scheduler weight; xl gives Dom0 256 as every instance (xl(1)). `*_overcommit` is how much may be promised per
    unit there; `driver_overcommit` how much work guests may ask of the driver domain per unit of what its pCPUs can do.
    `disk_mb_s` and `mem_bw_mb_s` are the measured limits of its disk and its memory for all instances together, in
    MB/s. `probed` are values that probes found, by name (some of PROBED_VALUES). `own_cpus` are the CPUs that its own
    work uses, outside of instances and driver domain.
    `second_thread` (0-1) is what a second hyperthread adds to the work of a core, `cpu_mhz` the nominal clock of a core
    and `turbo_mhz` its highest one; a `turbo_mhz` that is not above `cpu_mhz` says that there is none. `disk_iops` are
    the requests per second that its disk serves for all instances together. None = unknown.
    """

    id: str
    kind: HostKind
    pcpus: int
    memory_mb: float
    threads_per_core: int = 1
    cpu_mhz: float | None = None
    l2_mb: float | None = None
    l3_mb: float | None = None
    nic_mbit: float | None = None
    disk_gb: float | None = None
    disk_kind: DiskKind = ""
    disk_mb_s: float | None = None
    mem_bw_mb_s: float | None = None
    numa: tuple[tuple[int, ...], ...] = ()
    driver_cpus: tuple[int, ...] = ()
    driver_weight: int = DEFAULT_WEIGHT
    labels: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    enabled: bool = True
    cpu_overcommit: float = 4.0
    memory_overcommit: float = 1.0
    driver_overcommit: float = 2.0
    platform: str = ""  # the measured platform it is like; empty = its own numbers only
    probed: Mapping[str, float] = field(default_factory=lambda: _NOT_PROBED)
    cpu_ids: tuple[int, ...] = ()
    isolated_cpus: tuple[int, ...] = ()
    own_cpus: float = 0.0
    second_thread: float | None = None
    turbo_mhz: float | None = None
    dedicated_cpus: tuple[int, ...] = ()
    disk_iops: float | None = None
    siblings: Groups = ()

    def __post_init__(self) -> None:
        check_id(self.id, "host")
        if self.kind not in HOST_KINDS:
            raise ValueError(f"host {self.id}: kind {self.kind!r} is none of {', '.join(HOST_KINDS)}")
        if not 1 <= self.pcpus <= MAX_CPUS:
            raise ValueError(f"host {self.id}: pcpus {self.pcpus} is outside 1-{MAX_CPUS}")
        if self.memory_mb <= 0:
            raise ValueError(f"host {self.id}: memory_mb {self.memory_mb} is not above 0")
        if self.own_cpus < 0:
            raise ValueError(f"host {self.id}: own_cpus {self.own_cpus:g} is below 0")
        if self.disk_iops is not None and self.disk_iops <= 0:
            raise ValueError(f"host {self.id}: disk_iops {self.disk_iops:g} is not above 0")
        if self.second_thread is not None and not 0 <= self.second_thread <= 1:
            raise ValueError(f"host {self.id}: second_thread {self.second_thread:g} is outside 0-1")
        if self.cpu_ids and self.cpu_ids == tuple(range(self.pcpus)):
            object.__setattr__(self, "cpu_ids", ())  # one way to say it, so that equal hosts are equal
        if self.cpu_ids and (len(self.cpu_ids) != self.pcpus or list(self.cpu_ids) != sorted(set(self.cpu_ids))):
            raise ValueError(f"host {self.id}: cpu_ids name {len(set(self.cpu_ids))} CPUs, pcpus is {self.pcpus}")
        if self.cpu_ids and not 0 <= self.cpu_ids[0] <= self.cpu_ids[-1] < MAX_CPUS:
            raise ValueError(f"host {self.id}: cpu_ids {format_cpus(self.cpu_ids)} are not within 0-{MAX_CPUS - 1}")
        for name in ("driver_cpus", "isolated_cpus", "dedicated_cpus"):
            absent = self.lacks(getattr(self, name))
            if absent:
                raise ValueError(f"host {self.id}: {name} name CPU {format_cpus(absent)}; it has {self.shown_cpus}")
        if self.siblings:
            threads, siblings = as_said(f"host {self.id}: ", self.pcpus, self.cpu_ids, self.numa, self.siblings)
            object.__setattr__(self, "threads_per_core", threads)
            object.__setattr__(self, "siblings", siblings)

    @property
    def cpus(self) -> Sequence[int]:
        """The numbers of its pCPUs, ascending; the position of a pCPU here is its place in arrays."""
        return self.cpu_ids or range(self.pcpus)

    @property
    def shown_cpus(self) -> str:
        """The numbers of its pCPUs in words."""
        return format_cpus(tuple(self.cpus))

    @property
    def shared_cpus(self) -> tuple[int, ...]:
        """The pCPUs of instances without pins: all but isolated and dedicated ones."""
        kept = {*self.isolated_cpus, *self.dedicated_cpus}
        return tuple(cpu for cpu in self.cpus if cpu not in kept) if kept else tuple(self.cpus)

    @property
    def cores(self) -> tuple[int, ...]:
        """The place of the first pCPU on the core of each pCPU, by places among `cpus`."""
        return first_of_core(self.pcpus, self.threads_per_core, self.cpu_ids, self.numa, self.siblings)

    @property
    def cpu_key(self) -> CpuKey:
        """What decides where a pinning puts an instance among its pCPUs."""
        return self.pcpus, self.cpu_ids, self.isolated_cpus, self.dedicated_cpus

    def isolates(self, pinning: Pinning | None) -> bool:
        """Whether an instance with these pins runs on isolated pCPUs only."""
        return pinning is not None and bool(pinning.union) and pinning.union <= set(self.isolated_cpus)

    def lacks(self, cpus: Iterable[int]) -> tuple[int, ...]:
        """Those of these numbers that no pCPU of it has, ascending."""
        known = self.cpus
        return tuple(sorted({cpu for cpu in cpus if cpu not in known}))

    def places(self, cpus: Iterable[int]) -> list[int]:
        """The positions of these pCPUs among its `cpus`, ascending; numbers that it lacks are left out."""
        if not self.cpu_ids:
            return sorted(cpu for cpu in cpus if 0 <= cpu < self.pcpus)
        position = {cpu: place for place, cpu in enumerate(self.cpu_ids)}
        return sorted(position[cpu] for cpu in cpus if cpu in position)

    @property
    def ordinary_memory_mb(self) -> float:
        """Its memory without its pools of huge pages (labels `has.hugepages_…`)."""
        return max(self.memory_mb - host_kinds.pooled_mb(self.labels), 0.0)

    @property
    def probed_key(self) -> tuple[tuple[str, float], ...]:
        """`probed` as a value that can be hashed and compared."""
        return tuple(sorted(self.probed.items()))


@dataclass(frozen=True, slots=True)
class Instance:
    """A VM or a container; `host` None = not placed. `load` is offered load over what it can do alone.

    It accepts no throughput ratio below `min_throughput_ratio`, no latency ratio above `max_latency_ratio`, and no more
    than the share `max_time_short` (0-1) of the time in which it gets less CPU than it demands. `dedicated_vcpus`
    of its vCPUs have a pCPU each that no other instance uses. An `exclusive` instance shares its host with no other.
    `demand` is what is known of its demand over time, by resource.
    """

    id: str
    vcpus: int = 1
    memory_mb: float = 0.0
    disk_gb: float = 0.0
    host: str | None = None
    workload: str | None = None
    load: float = 1.0
    settings: IsolationSettings = field(default_factory=IsolationSettings)
    service: Literal["latency", "throughput"] = "throughput"
    min_throughput_ratio: float | None = None
    labels: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    max_latency_ratio: float | None = None
    exclusive: bool = False
    demand: Mapping[Resource, Demand] = field(default_factory=lambda: _NO_DEMAND)
    max_time_short: float | None = None
    dedicated_vcpus: int = 0

    def __post_init__(self) -> None:
        check_id(self.id, "instance")
        if not 1 <= self.vcpus <= MAX_CPUS:
            raise ValueError(f"instance {self.id}: vcpus {self.vcpus} is outside 1-{MAX_CPUS}")
        if self.memory_mb < 0 or self.disk_gb < 0:
            raise ValueError(f"instance {self.id}: memory_mb and disk_gb cannot be negative")
        if not 0 < self.load <= 10:
            raise ValueError(f"instance {self.id}: load {self.load} is outside (0, 10]")
        if self.min_throughput_ratio is not None and not 0 < self.min_throughput_ratio <= 1:
            raise ValueError(f"instance {self.id}: min_throughput_ratio {self.min_throughput_ratio} is outside (0, 1]")
        if self.max_latency_ratio is not None and not self.max_latency_ratio >= 1:
            raise ValueError(f"instance {self.id}: max_latency_ratio {self.max_latency_ratio} is below 1")
        if self.max_time_short is not None and not 0 <= self.max_time_short < 1:
            raise ValueError(f"instance {self.id}: max_time_short {self.max_time_short} is outside [0, 1)")
        if not 0 <= self.dedicated_vcpus <= self.vcpus:
            raise ValueError(f"instance {self.id}: dedicated_vcpus {self.dedicated_vcpus} is outside 0-{self.vcpus}")
        for resource, demand in self.demand.items():
            if demand.resource != resource:
                raise ValueError(f"instance {self.id}: demand for {demand.resource} stands under {resource}")
            if resource == "cpu" and demand.mean > self.vcpus:
                raise ValueError(f"instance {self.id}: demand of {demand.mean:g} CPUs is above its {self.vcpus} vCPUs")

    @property
    def ordinary_memory_mb(self) -> float:
        """Its memory without what is of huge pages (labels `needs.hugepages_…`)."""
        return max(self.memory_mb - host_kinds.needed_mb(self.labels), 0.0)

    @property
    def shared_vcpus(self) -> int:
        """Its vCPUs that share pCPUs with those of others."""
        return self.vcpus - self.dedicated_vcpus

    @property
    def anti_affinity_groups(self) -> tuple[str, ...]:
        """The groups of which no two instances share a host, from the label `anti_affinity`, with commas between."""
        return tuple(filter(None, map(str.strip, self.labels.get(ANTI_AFFINITY_LABEL, "").split(","))))

    @property
    def anti_affinity_most(self) -> int:
        """How many instances of its anti-affinity group may share a host, from the label `anti_affinity_most`; 1 where
        that is not a whole number above 0."""
        most = self.labels.get(ANTI_AFFINITY_MOST_LABEL, "")
        return max(int(most), 1) if most.isascii() and most.isdecimal() and len(most) < 6 else 1

    @property
    def affinity_group(self) -> str | None:
        """The group whose instances share one host, from the label `affinity`; None = it is in none."""
        return self.labels.get(AFFINITY_LABEL) or None

    @property
    def never_moves(self) -> bool:
        """Whether no plan may move it, from the label `never_move`."""
        return self.labels.get(NEVER_MOVE_LABEL, "").lower() == "true"

    @property
    def required_labels(self) -> dict[str, str]:
        """Labels that its host must have, with their values, from its labels that begin with `require.`."""
        start = len(REQUIRE_LABEL)
        return {name[start:]: value for name, value in sorted(self.labels.items()) if name.startswith(REQUIRE_LABEL)}

    @property
    def demand_key(self) -> tuple[Demand, ...]:
        """`demand` as a value that can be hashed and compared, in order of the resources."""
        return tuple(self.demand[resource] for resource in sorted(self.demand))


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One value of one metric at one time (seconds since the epoch, UTC); `instance` None = of the host."""

    host: str
    instance: str | None
    scope: Literal["instance", "driver_domain", "host"]
    metric: str
    value: float
    time_s: float


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its unit; never NaN or infinite, for unknown values are left out."""

    value: float
    unit: str

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"a quantity in {self.unit or 'no unit'} cannot be {self.value}")


PROBE_NAMES = (  # whose results the server takes; profiler.probes says what each measures
    "cpu-share", "cpu-work", "rtt", "tcp", "udp", "loss", "disk", "hops", "transfer", "messages", "requests",
)  # fmt: skip
# Probes' values that show how a host differs from its inventory, as PROBE.NAME, in the probe's unit: the share of a CPU
# and its gaps, the network to others (propagation, jitter, throughput), and the disk. No probe measures the memory.
PROBED_VALUES = (
    "cpu-share.share", "cpu-share.longest_gap", "rtt.median", "rtt.stdev", "tcp.throughput", "disk.read_small_mean",
    "disk.write_small_mean", "disk.read_sustained_mean", "disk.write_sustained_mean",
)  # fmt: skip
# Beginnings and parts of marks that describe a finding itself, or values that no other program reads: such marks do not
# mean that the values are not typical.
HELD_BACK = "by this system's own account the"  # ... ran X % of the time
SHORT_GAPS = "% of the time is in gaps of 20 us and more"
STOLEN = "% of a CPU meanwhile (steal)"  # what a neighbour takes, where a probe runs beside one
OWN_END = "(this machine)"  # ends the circumstance `peer` where both ends of a probe were on one machine
INCIDENTAL = frozenset({"taken_at", "load", "host"})  # circumstances that differ from run to run on the same machine


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """A probe's values with the circumstances under which they were measured.

    `main` names the value that stands for the probe; `marks` are reasons to distrust the values, one sentence each.
    """

    probe: str
    values: Mapping[str, Quantity]
    main: str
    circumstances: Mapping[str, str]
    marks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.main not in self.values:
            raise ValueError(f"probe {self.probe}: there is no value {self.main!r} to stand for it")

    def document(self) -> dict[str, Any]:
        """As JSON, for people and for the server."""
        return {
            "probe": self.probe,
            "values": {name: {"value": number.value, "unit": number.unit} for name, number in self.values.items()},
            "main": self.main,
            "circumstances": dict(self.circumstances),
            "marks": list(self.marks),
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """One instance of a co-location with what it reached: `solo` B_i and `colocated` T_i in `unit`, None = unknown.

    `ratio_se` is the standard error of colocated / solo, where both are of one run (the lab's on/off runs).
    """

    instance: Instance
    outcome: str
    solo: float | None
    colocated: float | None
    unit: str
    ratio_se: float | None = None


@dataclass(frozen=True, slots=True)
class Colocation:
    """Instances that shared a host under their settings, each with T_i against B_i: one training example.

    `ends_s` (since the epoch) is the end of the agent's window that it is made of, 0 = it is not made of one;
    `importance` is its weight in training beside other windows. `generators` are the load generators of the instances
    (models.data.dataset_rules): each uses CPUs of the host and has no outcome. `probe` is the probe that ran in the
    instance with an outcome and reached it in place of that one's own work, empty = there was none.
    """

    run: str
    platform: str
    repeat: str
    outcomes: tuple[Outcome, ...]
    driver_cpus: tuple[int, ...] = ()
    paper: str = ""  # where the figures are from a paper: which one, and the finding they belong to
    finding: str = ""
    ends_s: float = 0.0
    importance: float = 1.0
    generators: tuple[Instance, ...] = ()
    probe: str = ""
