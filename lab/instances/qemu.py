"""Whole VMs of one run on this host: each a QEMU process in a control group of its own, on a tap of the lab's switch.

Guests stay booted for a whole campaign (lab.guests.pool). Cap, weight and disk limit hold for all of QEMU, as libvirt's
limits of a domain do. The vCPUs run on the member's CPUs, QEMU's other threads on the driver's CPUs where the run names
any, else on the member's.
"""

from __future__ import annotations

from dataclasses import replace

from lab import network
from lab.guests.backend import GuestBackend, WatchedGuest
from lab.guests.machine import QemuGuest
from lab.guests.pool import GuestPool, pool_of
from lab.instances.virtual_machines import GuestHandle, GuestInstances
from lab.schedule import PlacedMember
from lab.shaping import most_segments
from lab.workloads import Site, Workload


class QemuInstances(GuestInstances):
    """The guests of one run; see `lab.instances.lifecycle.ManagedInstances`."""

    _pool: GuestPool | None = None
    machines: tuple[QemuGuest, ...] = ()

    @property
    def network(self) -> str:
        """Name of the network namespace that the taps and the switch are in."""
        return "" if self._pool is None else self._pool.network

    def backend(self) -> GuestBackend:
        """Reads exactly these guests."""
        pairs = zip(self._standing, self.machines, strict=True)
        return GuestBackend(WatchedGuest(guest.placed, machine) for guest, machine in pairs)

    def circumstances(self) -> dict[str, str]:
        return {} if self._pool is None else self._pool.circumstances()

    def _build(self) -> None:
        setup = self._setup
        self._pool = pool_of(setup.registry, self._maker, setup.guests, setup.directory)
        vcpus = [entry.member.vcpus for entry in setup.placed]
        self.machines = self._pool.take(vcpus)
        for machine in self.machines:
            machine.wake()
        taps = tuple(machine.shape.tap for machine in self.machines)
        wiring = replace(setup.wiring, switch=self._pool.network, taps=taps)
        net = network.build(self._registry, self._networks(), wiring)
        for position, (entry, workload) in enumerate(zip(setup.placed, setup.workloads, strict=True)):
            machine, address = self.machines[position], net.ports[position].address
            site = Site(position, machine.files, self._directory(position), address, entry.member.vcpus)
            lead_s = self._settle(entry, workload, site, machine)
            self._standing.append(
                GuestHandle(entry, workload, site, self._outside(entry, net.generators), lead_s, machine)
            )

    def _settle(self, entry: PlacedMember, workload: Workload, site: Site, machine: QemuGuest) -> float:
        """Give the guest what its work needs, then put it on its CPUs and under its limits; its lead in seconds."""
        workload.prepare(site)
        wiring = self._setup.wiring
        machine.prepare(site.address, most_segments(entry.member.settings.network, wiring.link_mbit, wiring.line_mbit))
        lead_s = machine.lead_s(workload, site)
        driver = wiring.driver_cpus or entry.cpus
        all_cpus = tuple(sorted({*entry.cpus, *driver}))
        procs = self._group(self._registry.group(entry.instance), all_cpus, entry.member.settings)
        machine.place(procs, entry.cpus, driver)
        return lead_s

    def _leave(self) -> None:
        if self._pool is not None:
            self._pool.give_back(self.machines)
            network.unplug(self._pool.network)
        self.machines = ()
