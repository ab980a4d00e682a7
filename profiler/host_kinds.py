"""Kinds of hosts, how their cores belong together, and huge pages as labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, get_args

HostKind = Literal["xen", "kvm", "lxc"]
HOST_KINDS: tuple[HostKind, ...] = get_args(HostKind)


@dataclass(frozen=True, slots=True)
class HostKindTraits:
    """How hosts of one kind behave. Findings (N, L) are those of datasets/papers.

    `title` is its name for people, `backend` that of the backend that reads it, `tool` its own command,
    `lab_instances` the kind of instances that the lab makes in its place. `has_driver_domain`: I/O is done by a
    domain or threads beside the instance; `driver_apart`: by a domain with vCPUs and a weight of its own (Xen), not
    by threads in the instance's control group (libvirt puts vhost and emulator threads there); `driver_servers` are
    the CPUs of it that one bridge can keep busy (N9, N11), inf = all; `events_grow` with the CPUs of both sides
    (N10, N11). `cpu_s_per_page` is the driver domain's CPU time for a page where a profile says nothing: 65 % at
    7,728 and 82 % at 15,402 pages/s were seen on emulated Xen, real machines do a few times better; assumed.

    `weight_exponent`: a share is proportional to weight ** exponent; ten times the weight got 57.1 against 42.9 %
    under Xen's credit scheduler (L4). `brief_exponent`: the same for bursts of a few ms that are all served in the
    end, because none is interrupted before its slice is over. `work_astray`: by how much waits are longer while
    some CPU idles, because work does not find it at once. Both were chosen on the containers of
    datasets/container-contention, on one and two CPUs, Linux 6.18, and `work_astray` so that programs with bursts of 5
    ms on two CPUs are met as well (research/results/contention.md). `turn_ms`: how long an instance that never
    blocks keeps a CPU: sched_credit_tslice_ms of Xen (xen-command-line); Linux's base slice, 0.75 ms times 1 + log2
    of up to 8 CPUs (kernel/sched/fair.c).

    `synced_wait_ms`: for how long a write that is waited for (fsync) waits for a busy CPU at most: until the next tick
    of the clock (models/physics/latency.py), 4 ms at the usual HZ=250; measured with containers, not with
    guests, and not at other rates; 0 = nothing is known.

    `cap_period_ms`: the fixed period of a cap, None = that of Linux's quota; `cap_per_vcpu`: the quota holds for
    each vCPU alone (libvirt, formatdomain). `disk_limit` can be set; `disk_limit_each_way`: for reads and writes
    apart.
    """

    title: str
    backend: str
    tool: str
    lab_instances: str
    has_driver_domain: bool
    driver_apart: bool
    driver_servers: float
    events_grow: bool
    cpu_s_per_page: float
    weight_exponent: float
    brief_exponent: float
    work_astray: float
    turn_ms: float
    synced_wait_ms: float
    cap_period_ms: float | None
    cap_per_vcpu: bool
    disk_limit: bool
    disk_limit_each_way: bool


TRAITS: Mapping[HostKind, HostKindTraits] = MappingProxyType(
    {
        "xen": HostKindTraits(
            title="Xen",
            backend="xen",
            tool="xl",
            lab_instances="xen",
            has_driver_domain=True,
            driver_apart=True,
            driver_servers=1.0,
            events_grow=True,
            cpu_s_per_page=2e-5,
            weight_exponent=math.log10(57.1 / 42.9),
            brief_exponent=1.0,
            work_astray=0.0,  # not measured
            turn_ms=30.0,
            synced_wait_ms=0.0,  # not measured: BOOST (credit) lets guests go first that wake up for I/O
            cap_period_ms=10.0,  # credit2_cap_period_ms of Xen's boot line; no tool sets it for one domain
            cap_per_vcpu=False,
            disk_limit=False,
            disk_limit_each_way=False,
        ),
        "kvm": HostKindTraits(
            title="KVM and QEMU (libvirt)",
            backend="libvirt",
            tool="virsh",
            lab_instances="qemu",
            has_driver_domain=True,
            driver_apart=False,
            driver_servers=math.inf,
            events_grow=False,
            cpu_s_per_page=2e-5,
            weight_exponent=1.0,
            brief_exponent=0.5,
            work_astray=0.8,
            turn_ms=3.0,
            synced_wait_ms=4.0,
            cap_period_ms=None,
            cap_per_vcpu=True,
            disk_limit=True,
            disk_limit_each_way=False,
        ),
        "lxc": HostKindTraits(  # containers: the kernel works for them mostly in the time of their own tasks
            title="containers",
            backend="lxc",
            tool="lxc",
            lab_instances="container",
            has_driver_domain=False,
            driver_apart=False,
            driver_servers=math.inf,
            events_grow=False,
            cpu_s_per_page=0.0,
            weight_exponent=1.0,
            brief_exponent=0.5,
            work_astray=0.8,
            turn_ms=3.0,
            synced_wait_ms=4.0,
            cap_period_ms=None,
            cap_per_vcpu=False,
            disk_limit=True,
            disk_limit_each_way=True,
        ),
    }
)


# Which pCPUs of a host share a core: as the host says, else by their numbers.

Groups = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=4096)
def first_of_core(
    pcpus: int, threads: int, cpu_ids: tuple[int, ...], numa: Groups, siblings: Groups
) -> tuple[int, ...]:
    """The place of the first pCPU on the core of each pCPU, by its own place among the numbers of the host's CPUs.

    `siblings` are the pCPUs of each core that has several; a pCPU in none of them has a core of its own. Without them
    a core has so many `threads`, numbered side by side where only that fits the NUMA nodes or the gaps between
    `cpu_ids`, else those of one thread after those of the other, as Linux numbers them on most servers. Of a number of
    pCPUs that makes no whole cores each is one.
    """
    if siblings:
        place = {cpu: at for at, cpu in enumerate(cpu_ids or range(pcpus))}
        found = list(range(pcpus))
        for core in siblings:
            for cpu in core:
                found[place[cpu]] = place[core[0]]
        return tuple(found)
    threads = threads if pcpus % threads == 0 else 1
    near, far = tuple(at - at % threads for at in range(pcpus)), tuple(at % (pcpus // threads) for at in range(pcpus))
    if _in_runs(cpu_ids, threads):
        return near
    node = _nodes(pcpus, cpu_ids, numa)
    is_near, is_far = (all(node[first] == node[at] for at, first in enumerate(each)) for each in (near, far))
    return near if is_near and not is_far else far


def as_said(
    host: str, pcpus: int, cpu_ids: tuple[int, ...], numa: Groups, siblings: Iterable[Sequence[int]]
) -> tuple[int, Groups]:
    """The most threads of a core, and `siblings` as they are kept: in order; empty where numbers say the same.

    ValueError, which begins with `host`, where a CPU is not one of its `pcpus`, or stands in two cores.
    """
    cores: Groups = tuple(sorted({tuple(sorted(set(core))) for core in siblings if len(set(core)) > 1}))
    named = [cpu for core in cores for cpu in core]
    there = frozenset(cpu_ids or range(pcpus))
    absent = sorted({cpu for cpu in named if cpu not in there})
    if absent:
        raise ValueError(f"{host}siblings name CPU {absent[0]}, which it does not have")
    if len(named) != len(set(named)):
        twice = min(cpu for cpu in set(named) if named.count(cpu) > 1)
        raise ValueError(f"{host}siblings have CPU {twice} on two cores")
    threads = max(map(len, cores), default=1)
    by_numbers = first_of_core(pcpus, threads, cpu_ids, numa, ())
    return threads, () if first_of_core(pcpus, threads, cpu_ids, numa, cores) == by_numbers else cores


def _in_runs(cpu_ids: tuple[int, ...], threads: int) -> bool:
    """Whether the numbers come in runs as long as a core has threads, with gaps between them."""
    if threads < 2 or not cpu_ids or len(cpu_ids) % threads:
        return False
    known = set(cpu_ids)
    runs = [cpu_ids[at : at + threads] for at in range(0, len(cpu_ids), threads)]
    return all(run[-1] - run[0] == threads - 1 and run[0] - 1 not in known for run in runs)


def _nodes(pcpus: int, cpu_ids: tuple[int, ...], numa: Groups) -> list[int]:
    place = {cpu: at for at, cpu in enumerate(cpu_ids or range(pcpus))}
    node = [len(numa)] * pcpus
    for number, cpus in enumerate(numa):
        for cpu in cpus:
            if cpu in place:
                node[place[cpu]] = number
    return node


# Huge pages as labels: a host has so many of a size, an instance needs so many, and other memory is not made of them.
#
# The pool is set at boot or by hand (kernel: hugetlbpage.rst); memory in it serves nothing else, used or not.

NEEDS, HAS = "needs.", "has."  # before the name of something that is counted: of an instance, of a host
# Sizes of the architectures on which the kernel has them (hugetlb_add_hstate of x86, arm64, powerpc, s390, riscv).
_SIZES_KIB = (64, 1024, 2048, 16384, 32768, 65536, 524288, 1048576, 2097152, 16777216)
DEFAULT_KIB = 2048  # of x86 and arm64 with pages of 4 KiB, where no default_hugepagesz= says another


def name_of(kib: int) -> str:
    """What pages of this size are called, such as hugepages_2mib."""
    for unit, size in (("gib", 1 << 20), ("mib", 1 << 10)):
        if kib >= size and kib % size == 0:
            return f"hugepages_{kib // size}{unit}"
    return f"hugepages_{kib}kib"


PAGES_MB: Mapping[str, float] = {name_of(kib): kib / 1024 for kib in _SIZES_KIB}
_NEEDS_MB = {f"{NEEDS}{name}": mb for name, mb in PAGES_MB.items()}
_HAS_MB = {f"{HAS}{name}": mb for name, mb in PAGES_MB.items()}
LABELS = frozenset({*_NEEDS_MB, *_HAS_MB})


def pages_in_words(name: str) -> str:
    """The size of pages by what they are called: 2 MiB of hugepages_2mib."""
    size = name.rpartition("_")[2]
    return f"{size[:-3]} {size[-3].upper()}iB"


def pools(pages: Mapping[int, int]) -> dict[str, str]:
    """Labels of a host with so many pages of each size in KiB."""
    return {f"{HAS}{name_of(kib)}": str(count) for kib, count in sorted(pages.items()) if count > 0}


def needs(memory_mb: float, kib: int) -> dict[str, str]:
    """The label of an instance whose memory is of pages of this size; none for a size that no kernel has."""
    label = f"{NEEDS}{name_of(kib)}"
    return {label: str(math.ceil(round(memory_mb * 1024 / kib, 6)))} if label in _NEEDS_MB else {}


def needed_mb(labels: Mapping[str, str]) -> float:
    """MB of an instance that are of huge pages."""
    return _mb(labels, _NEEDS_MB)


def pooled_mb(labels: Mapping[str, str]) -> float:
    """MB of a host that are huge pages."""
    return _mb(labels, _HAS_MB)


def _mb(labels: Mapping[str, str], sizes: Mapping[str, float]) -> float:
    return 0.0 if sizes.keys().isdisjoint(labels) else sum(_parts(labels, sizes))


def _parts(labels: Mapping[str, str], sizes: Mapping[str, float]) -> Iterable[float]:
    for name, mb in sizes.items():
        text = labels.get(name, "0")
        yield mb * float(text) if text.isascii() and text.replace(".", "", 1).isdecimal() and len(text) < 16 else 0.0
