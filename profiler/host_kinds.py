"""The kinds of hypervisors, and everything in which they differ for measuring, predicting and advising.

A new kind is its name and one entry here, a backend (`backends.detection` chooses it), a module of `definitions` with
the backend's name, and its commands (`advisor.render.host_tools`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
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
