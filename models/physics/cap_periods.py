"""Periods of CPU caps: renderers write them into commands, and the prior predicts with them."""

from __future__ import annotations

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.physics.kinds import holds, trait
from profiler.observed import Instance

DEFAULT_US, MOST_US = 100_000, 1_000_000  # sched-bwc.rst
# A capped instance does not run for up to P - Q of each period (models.physics.queueing.worst_cap_stall). Instances
# that are sensitive to latency get a short period: as long as that of Xen's credit2, and two of the kernel's slices
# (sched_cfs_bandwidth_slice_us).
SHORT_US = 10_000
MIN_QUOTA_US = 1_000  # sched-bwc.rst; virsh(1), schedinfo


def is_short(instance: Instance) -> bool:
    """Whether a cap of this instance is counted over short periods, where the host's tools can say so."""
    return instance.service == "latency"


def period_us(cpus: Floats, short: Bools) -> Floats:
    """Period in µs of Linux's quota for so many CPUs: the usual one, longer where the quota would be under 1 ms."""
    usual = np.where(short, SHORT_US, DEFAULT_US)
    return np.asarray(np.clip(np.ceil(MIN_QUOTA_US / cpus), usual, MOST_US))


def cap_period_ms(kind: Ints, cap: Floats, vcpus: Floats, short: Bools) -> Floats:
    """Period in ms of a cap in CPUs (inf = none) on a host of this kind (index into HOST_KINDS); arrays that broadcast.

    libvirt's quota holds for each vCPU alone (formatdomain, quota), a container's for the whole of it.
    """
    quota = np.where(holds(kind, "cap_per_vcpu"), cap / np.maximum(vcpus, 1.0), cap)
    fixed = trait(kind, "cap_period_ms")
    return np.asarray(np.where(np.isnan(fixed), period_us(quota, short) / 1000, fixed))
