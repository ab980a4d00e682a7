"""When instances had better not share cores, and how each kind of host keeps them apart.

The effect is measured by others and not predicted: on a machine of 52 cores and 104 threads the victims of a program
that uses wide vectors got 11 % more work done with core scheduling while 64 or 128 threads were busy, nothing with up
to 32, where cores are not shared, and 2 % with 256 (core scheduling v3, LWN and LKML, 2019-06-12).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from profiler.host_kinds import HostKind
from profiler.observed import Host, Instance

GAIN = "11 %"  # of the victims on the machine above
CROWDED = 1.25  # busy vCPUs for each thread from which nothing was gained
HOW: Mapping[HostKind, str] = {
    "kvm": 'sched_core = "vcpus" in qemu.conf (libvirt 8.9, Linux 5.14), for VMs that start afterwards',
    "lxc": "coresched new --dest-type pgid of util-linux 2.41 on the first process of each container (Linux 5.14)",
    "xen": "sched-gran=core on Xen's command line (Xen 4.13), after a restart of the host",
}


def core_scheduling_note(host: Host, residents: Sequence[Instance]) -> Iterator[str]:
    """A note where cores of several threads are shared by several instances and CPUs are not short; else nothing."""
    busy = sum(one.demand["cpu"].mean for one in residents if "cpu" in one.demand) + host.own_cpus
    cores = len(set(host.cores))
    if len(residents) < 2 or not cores < busy <= CROWDED * host.pcpus or cores == host.pcpus:
        return
    yield (
        f"{host.id}: {busy:.0f} CPUs are busy on {cores:.0f} cores, so different instances share cores. Core "
        f"scheduling keeps them apart: {HOW[host.kind]}. Victims of a noisy neighbour gained {GAIN} by it on one "
        "machine that others measured; the effect here is not predicted."
    )
