"""The eight metrics of the NEIGHBOR paper, formula by formula; plain arithmetic on differences, no I/O.

Each formula says its source on Linux containers, its unit and how far it is from the paper's definition (section 3.4),
where a domain is a Xen guest with vCPUs. A container has tasks instead. It is treated as `vcpus` virtual CPUs (what its
cpuset and quota let it use at once), each of which is running, waiting or blocked at any time, so that
cpu + waiting + block = 100 · vcpus as on Xen.
"""

from __future__ import annotations

from profiler.collectors.counter_deltas import Deltas
from profiler.metrics import PAGE_BYTES


def cpu(deltas: Deltas) -> float | None:
    """Δ run time / Δt, %, 100 = one whole CPU.

    Source: `cpuacct.usage` (v1), `cpu.stat` usage_usec (v2); driver domain: irq and softirq ticks of /proc/stat plus
    run time of the kernel's I/O threads. As in the paper. Softirqs that run on an instance's back count for both, on
    kernels without IRQ_TIME_ACCOUNTING; ticks resolve 10 ms.
    """
    return None if deltas.cpu_ns is None else 100.0 * deltas.cpu_ns / 1e9 / deltas.seconds


def waiting(deltas: Deltas, running: float | None) -> float | None:
    """Δ time runnable and not running / Δt, %, at most what cpu, which is `running`, leaves of 100 · vcpus.

    Source: schedstat of every task, summed. On Xen the vCPU waits; here its tasks do. Tasks of one instance that queue
    for each other would count as waiting, which Xen does not see: the limit takes that away when the instance is busy
    all the time (a lone busy instance waits 0), and leaves an upper bound when it is not.
    """
    if deltas.wait_ns is None or running is None:
        return None
    room = max(0.0, 100.0 * deltas.vcpus - running)
    return min(100.0 * deltas.wait_ns / 1e9 / deltas.seconds, room)


def block(deltas: Deltas, running: float | None, wait: float | None) -> float | None:
    """100 · vcpus − cpu − waiting, %, never below 0.

    As in the paper it holds everything that is neither running nor runnable: blocked on I/O, and idle. It is a lower
    bound where waiting is an upper one.
    """
    return None if running is None or wait is None else max(0.0, 100.0 * deltas.vcpus - running - wait)


def execution(deltas: Deltas) -> float | None:
    """Execution periods per second: Δ timeslices of the tasks / Δt.

    Source: third number of schedstat. The paper counts how often a domain is put on a CPU; here how often a task is.
    The driver domain adds its network and block softirqs: each is one period of work for an instance's I/O.
    """
    return None if deltas.executions is None else deltas.executions / deltas.seconds


def pages_exchanged(deltas: Deltas) -> float | None:
    """(Δ network bytes in and out + Δ block bytes read and written) / 4096 / Δt, pages per second.

    Source: host side of the veth pair (or interfaces inside the namespace); `io.stat` (v2),
    `blkio.throttle.io_service_bytes` or the tasks' own `io` (v1). Xen flips or grants a page per packet or block, so a
    small packet is a whole page there and a part of one here: small-packet loads are lower than in the paper. Where
    the hypervisor counts pages itself (Xen), its count is used.
    """
    if deltas.pages is not None:
        return deltas.pages / deltas.seconds
    if deltas.net_bytes is None or deltas.disk_bytes is None:
        return None
    return (deltas.net_bytes + deltas.disk_bytes) / PAGE_BYTES / deltas.seconds


def of_instance(deltas: Deltas) -> dict[str, float | None]:
    """The six metrics of an instance, or of the driver domain, by name.

    pages_per_execution is undefined for an instance that never ran.
    """
    running, pages, executions = cpu(deltas), pages_exchanged(deltas), execution(deltas)
    wait = waiting(deltas, running)
    return {
        "pages_exchanged": pages,
        "execution": executions,
        "pages_per_execution": None if pages is None or not executions else pages / executions,
        "cpu": running,
        "waiting": wait,
        "block": block(deltas, running, wait),
    }


def event(events: int, seconds: float) -> float:
    """Network and block softirqs of the host per second.

    Stand-in for the event channel: on Xen each notifies a domain of I/O, here the softirq does that work. Several
    packets may share one softirq, as several may share one event. Counts the whole host, load generators included.
    """
    return events / seconds


def switch(domains: list[Deltas], seconds: float) -> float | None:
    """Δ context switches of all instances' tasks and of the kernel's I/O threads / Δt.

    Source: the tasks' arrivals on a CPU (third number of schedstat), each of which is one switch to the task. The paper
    counts switches of the VMM among VMs; switches between tasks of one instance are in here and are not in there.
    """
    counts = [deltas.switches for deltas in domains]
    known = [value for value in counts if value is not None]
    return sum(known) / seconds if known and len(known) == len(counts) else None
