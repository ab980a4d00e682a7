"""Whole VMs of one run on a Xen host, made by xl in Dom0: a domain per instance, on a bridge of the lab's own.

    domain ── vif ── bridge ── uplink veth ── load generators

Unlike the switch of other instances the bridge lies in Dom0's own network namespace, where Xen's scripts look for it. A
domain boots the self-contained image (no 9p on Xen), and its agent is spoken to over the lab's network. Cap and weight
are the scheduler's own, in credit and credit2 alike. `driver` gives Dom0 these pCPUs, and a vCPU for each, for the run.
"""

from __future__ import annotations

from pathlib import Path

from lab.campaign import Cpus
from lab.control_groups import GroupMaker
from lab.dom0_cpus import DOM0, Dom0Cpus, move_commands
from lab.errors import PreparationError
from lab.guests.domain import Domain, DomainConfig, config_text, domain_type
from lab.guests.image import BootImage, build_image
from lab.guests.machine import make_disk
from lab.guests.renaming_backend import RenamingBackend
from lab.instances.base import RunSetup
from lab.instances.virtual_machines import GuestHandle, GuestInstances
from lab.network import GENERATOR_ADDRESS, batch, end_commands, instance_address
from lab.processes import call
from lab.schedule import PlacedMember
from lab.shaping import htb_commands
from lab.workloads import Site
from profiler.backends.base import Backend
from profiler.backends.xen.backend import XenBackend

_IMAGES: dict[tuple[str, ...], BootImage] = {}  # made once per campaign: each holds some 30 MB of programs


class XenInstances(GuestInstances):
    """The domains of one run; see `lab.instances.lifecycle.ManagedInstances`."""

    def __init__(self, setup: RunSetup, maker: GroupMaker) -> None:
        super().__init__(setup, maker)
        self._domains: list[Domain] = []
        self._type = ""

    def backend(self) -> Backend:
        """Reads exactly these domains, by the names of their instances."""
        pairs = zip(self._domains, self._standing, strict=True)
        return RenamingBackend(XenBackend(), {domain.name: guest.placed.instance for domain, guest in pairs})

    def circumstances(self) -> dict[str, str]:
        memory = str(self._setup.guests.memory_mb)
        return {"guest_type": self._type, "guest_network": "xen-netback", "guest_memory_mb": memory}

    def all_tasks_ns(self) -> None:
        """Dom0 counts its own tasks only."""

    def host_cpus(self) -> frozenset[int]:
        return frozenset()  # pinning is to pCPUs, and Dom0 sees its own virtual ones

    def _build(self) -> None:
        setup = self._setup
        check_settings(setup)
        if setup.wiring.driver_cpus is not None:
            self._move_driver(setup.wiring.driver_cpus)
        self._type = domain_type(call(["xl", "info"]))
        key = tuple(sorted({tool for workload in setup.workloads for tool in workload.tools}))
        image = _IMAGES[key] = _IMAGES.get(key) or build_image(key)
        bridge, generators = self._wire()
        for position, entry in enumerate(setup.placed):
            self._create(position, entry, image, bridge, generators)
        for domain in self._domains:
            domain.wait_up()
        for guest, domain in zip(self._standing, self._domains, strict=True):
            domain.settle(guest.site)

    def _move_driver(self, cpus: Cpus) -> None:
        """Give Dom0 these pCPUs; the registry knows which it had before, and puts it back after the run."""
        now = Dom0Cpus.parse(call(["xl", "vcpu-list", DOM0]))
        now.check(cpus)
        self._registry.made("driver", self._registry.driver(now.online, now.cpus))
        for command in move_commands(now.online, len(cpus), cpus):
            call(command)

    def _wire(self) -> tuple[str, str]:
        """Make bridge, uplink and the generators' namespace; returns the bridge's name and the namespace's path."""
        wiring, registry = self._setup.wiring, self._registry
        bridge, generators = f"cotenant-{registry.run}", registry.network("load")  # 15 letters: the most of a name
        uplink = f"ctn-{registry.run}-up"
        registry.made("bridge", bridge)
        registry.made("network", generators)
        call(["ip", "netns", "add", generators])
        lines = [
            f"link add {bridge} type bridge", f"link set {bridge} addrgenmode none up",
            f"link add {uplink} type veth peer name eth0 netns {generators}",
            f"link set {uplink} addrgenmode none master {bridge} up",
        ]  # fmt: skip
        batch(["ip"], lines)
        batch(["ip", "-n", generators], end_commands("eth0", [GENERATOR_ADDRESS]))
        attached = [(instance_address(position), settings) for position, settings in enumerate(self._networks())]
        shaping = htb_commands(uplink, attached, wiring.link_mbit, wiring.line_mbit, wiring.queue_packets)
        if shaping:
            batch(["tc"], shaping)
        return bridge, f"/run/netns/{generators}"

    def _create(self, position: int, entry: PlacedMember, image: BootImage, bridge: str, generators: str) -> None:
        setup = self._setup
        files = setup.directory / f"files-{position}"
        files.mkdir(exist_ok=True)
        site = Site(position, files, self._directory(position), instance_address(position), entry.member.vcpus)
        workload = setup.workloads[position]
        workload.prepare(site)
        disk = None
        if any(files.iterdir()):
            disk = setup.directory / f"disk-{position}.raw"
            make_disk(disk, files)
        name = self._registry.network(entry.instance)
        config = DomainConfig(
            name, self._type, image, setup.guests.memory_mb, entry.member.vcpus, entry.cpus, entry.member.settings,
            site.address, bridge, position, disk,
        )  # fmt: skip
        path = setup.directory / f"{name}.cfg"
        path.write_text(config_text(config), encoding="utf-8")
        self._registry.made("domain", name)
        domain = Domain(name, site.address, generators, has_disk=disk is not None)
        self._domains.append(domain)
        self._standing.append(
            GuestHandle(entry, workload, site, self._outside(entry, generators), workload.lead_s, domain)
        )
        domain.create(path)
        for vcpu in range(entry.member.vcpus):
            domain.pin(vcpu, entry.cpus)

    def _leave(self) -> None:
        for domain in self._domains:
            domain.close()
        self._domains.clear()


def check_settings(setup: RunSetup) -> None:
    """Raise PreparationError for what a campaign cannot have on Xen."""
    if any(len(entry.instance) > 200 for entry in setup.placed):
        raise PreparationError("the name of an instance is too long for a domain: shorten its workload's name")
    if not Path("/proc/xen/capabilities").exists():
        raise PreparationError("this is no Dom0 of a Xen host: write `instances: qemu` or `container`")
