"""Reads the lab's own guests: vCPU threads are instances; QEMU's other threads and kernel I/O the driver domain."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lab.errors import RunError
from lab.guests.machine import QemuGuest
from lab.schedule import PlacedMember
from profiler.backends.base import BackendError, Counters, DomainCounters, HostCounters, TaskCounters
from profiler.backends.libvirt.backend import Events
from profiler.backends.linux import HostReader, TaskReader, attempt, read_interfaces
from profiler.backends.sources import LiveSource
from profiler.names import instance_id
from profiler.observed import Instance, IsolationSettings


@dataclass(frozen=True, slots=True)
class WatchedGuest:
    """A guest that is read, and where it was put."""

    placed: PlacedMember
    machine: QemuGuest

    @property
    def name(self) -> str:
        return self.placed.instance


class GuestBackend:
    """The eight metrics as the libvirt backend has them, without libvirt: the lab knows its QEMUs.

    A guest's bytes are those of its tap, both ways, and those of its drive as QEMU counts them. Events are KVM's exits
    and injected interrupts or, under emulation, the wakeups of QEMU's threads.
    """

    name = "qemu"

    def __init__(self, guests: Iterable[WatchedGuest]) -> None:
        self._source = LiveSource()
        self._guests = tuple(guests)
        self.host = instance_id(socket.gethostname() or "localhost")
        self._vcpus = {guest.name: guest.machine.control.vcpu_threads() for guest in self._guests}
        self._tasks = TaskReader(self._source)
        kvm = any(guest.machine.shape.accelerator == "kvm" for guest in self._guests)
        self._events = Events(self._source, kvm=kvm)
        self._host_reader = HostReader(self._source)

    def list_instances(self) -> list[Instance]:
        instances = [
            Instance(
                guest.name,
                vcpus=guest.placed.member.vcpus,
                memory_mb=float(guest.machine.shape.memory_mb),
                host=self.host,
                workload=guest.placed.member.workload,
            )
            for guest in self._guests
        ]
        return sorted(instances, key=lambda instance: instance.id)

    def read_counters(self) -> Counters:
        time_s, monotonic_s = self._source.clock()
        absent: dict[str, str] = {}
        threads, vanished = self._threads()
        unread: dict[str, str] = {}
        counts = self._tasks.read((tid for tids in threads.values() for tid in tids), unread)
        instances: dict[str, DomainCounters] = {}
        emulators: dict[str, TaskCounters] = {}
        for guest in self._guests:
            if guest.name not in threads:
                continue
            vcpus = self._vcpus[guest.name]
            tasks = {f"CPU {number}": counts[str(tid)] for number, tid in enumerate(vcpus) if str(tid) in counts}
            if len(tasks) < len(vcpus):
                absent[guest.name] = unread.get("tasks", "a thread of its vCPUs ended")
                continue
            instances[guest.name] = self._domain(guest, tasks)
            others = [tid for tid in threads[guest.name] if tid not in vcpus and str(tid) in counts]
            emulators |= {f"{guest.name} {tid}": counts[str(tid)] for tid in others}
        driver, whole = self._read_host(counts, emulators, absent)
        self._source.sweep(ended=bool(vanished))
        return Counters(self.host, time_s, monotonic_s, instances, driver, whole, absent, tuple(vanished))

    def read_isolation(self, instance: Instance) -> IsolationSettings:
        """What the campaign set for this guest."""
        for guest in self._guests:
            if guest.name == instance.id:
                return replace(guest.placed.member.settings, pinning=guest.placed.pinning)
        raise BackendError(f"instance {instance.id} is not one of this run")

    def close(self) -> None:
        self._source.close()

    def _threads(self) -> tuple[dict[str, list[int]], list[str]]:
        """Threads by guest, and the guests that are gone."""
        threads: dict[str, list[int]] = {}
        vanished: list[str] = []
        for guest in self._guests:
            try:
                threads[guest.name] = guest.machine.threads()
            except OSError:
                vanished.append(guest.name)
        return threads, vanished

    def _domain(self, guest: WatchedGuest, tasks: dict[str, TaskCounters]) -> DomainCounters:
        absent: dict[str, str] = {}
        try:
            disk_bytes: int | None = guest.machine.control.disk_bytes()
        except RunError as error:
            disk_bytes = None
            absent["disk_bytes"] = str(error)
        devices = attempt(absent, "net_bytes", read_interfaces, self._source, str(guest.machine.process.pid)) or {}
        tap = devices.get(guest.machine.shape.tap)
        if tap is None:
            absent.setdefault("net_bytes", f"its tap {guest.machine.shape.tap} is gone")
        net_bytes = None if tap is None else tap.received + tap.sent
        return DomainCounters(len(tasks), tasks, net_bytes=net_bytes, disk_bytes=disk_bytes, absent=absent)

    def _read_host(
        self, counts: Mapping[str, TaskCounters], emulators: Mapping[str, TaskCounters], absent: dict[str, str]
    ) -> tuple[DomainCounters | None, HostCounters | None]:
        driver, whole = self._host_reader.read(absent)
        if driver is None or whole is None:
            return driver, whole
        of_host = dict(whole.absent)
        whole = replace(whole, events=self._events.read(counts, of_host), absent=of_host)
        return replace(driver, vcpus=whole.pcpus, tasks={**driver.tasks, **emulators}), whole
