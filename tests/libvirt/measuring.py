"""Readings of the lab through the backend, and the same things through sources that the backend does not use."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from profiler.backends.base import Counters
from profiler.backends.libvirt.backend import LibvirtBackend
from profiler.backends.libvirt.connection import LibvirtConnection
from profiler.backends.sources import HostSource
from profiler.collectors import Collected, collect
from profiler.names import instance_id
from tests.lab.qemu_accounts import qemu_threads, value_of
from tests.libvirt.guests import Guest, Lab
from tests.libvirt.lab_source import LabSource


@dataclass(frozen=True, slots=True)
class Window:
    """What two readings gave."""

    first: Counters
    second: Counters
    collected: Collected

    @property
    def seconds(self) -> float:
        return self.collected.seconds

    def of(self, guest: Guest, metric: str, scope: str = "instance") -> float:
        return value_of(self.collected, instance_id(guest.name), metric, scope)

    def host(self, metric: str, scope: str = "host") -> float:
        return value_of(self.collected, None, metric, scope)


def open_backend(lab: Lab, source: HostSource | None = None) -> LibvirtBackend:
    """The backend on the lab's libvirtd."""
    return LibvirtBackend(source or LabSource(lab.daemon.state), "lab-host", LibvirtConnection(lab.uri))


def during(backend: LibvirtBackend, work: Callable[[], object]) -> Window:
    """Two readings around a piece of work."""
    first = backend.read_counters()
    work()
    second = backend.read_counters()
    return Window(first, second, collect(first, second))


def over(backend: LibvirtBackend, seconds: float) -> Window:
    """Two readings so many seconds apart."""
    return during(backend, lambda: time.sleep(seconds))


def vcpu_threads(lab: Lab, guest: Guest) -> list[Path]:
    """The guest's vCPU threads, found by their names."""
    return qemu_threads(lab.qemu_pid(guest), vcpus=True)


def switches(folder: Path) -> int:
    """Voluntary and involuntary context switches of a thread (proc(5), status)."""
    lines = (folder / "status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)


def driver_threads(lab: Lab) -> list[Path]:
    """All threads of all guests' QEMU processes but their vCPUs."""
    return [task for guest in lab.guests for task in qemu_threads(lab.qemu_pid(guest), vcpus=False)]


@contextlib.contextmanager
def on_one_cpu(lab: Lab, cpu: int) -> Iterator[None]:
    """All vCPUs on one CPU, and the guests' group ahead of whatever else the machine runs there."""
    shares = Path("/sys/fs/cgroup/cpu/machine/cpu.shares")
    weight = Path("/sys/fs/cgroup/machine.slice/cpu.weight")
    file, favoured = (shares, "200000") if shares.exists() else (weight, "10000")
    before = file.read_text() if file.exists() else None
    try:
        if before is not None:
            file.write_text(favoured)
        for guest in lab.guests:
            lab.daemon.virsh("vcpupin", *guest.arguments, "--vcpu", "0", "--live", "--cpulist", str(cpu))
        yield
    finally:
        for guest in lab.guests:
            lab.daemon.virsh("vcpupin", *guest.arguments, "--vcpu", "0", "--live", "--cpulist", "r")
        if before is not None:
            file.write_text(before)
