"""Containers of one run: control groups, network namespaces, servers; everything goes through the registry."""

from __future__ import annotations

import contextlib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from lab import network
from lab.control_groups import GroupMaker, device_of
from lab.idle_filler import IdleFiller
from lab.instances.base import RunSetup, Transport
from lab.instances.lifecycle import ManagedInstances, RunningInstance, socket_waits
from lab.processes import LabProcess
from lab.schedule import PlacedMember
from lab.workloads import Site
from profiler.backends import LxcBackend
from profiler.backends.lxc.control_groups import GroupsV1, find_groups
from profiler.backends.sources import LiveSource
from profiler.observed import Instance, IsolationSettings


@dataclass(slots=True)
class LabContainer(RunningInstance):
    """One started container.

    A process joins its group by writing its id to the files `procs`. `namespace` and `generators` are paths of network
    namespaces, its own and that of the load generators.
    """

    group: str
    procs: tuple[str, ...]
    namespace: str
    generators: str

    @property
    def groups(self) -> tuple[str, ...]:
        return (self.group, self.outside.group) if self.outside else (self.group,)

    def start_inside(self, command: list[str], *, wait: bool = False) -> LabProcess:
        return LabProcess(command, groups=self.procs, network=self.namespace, directory=self.site.directory, wait=wait)

    def listens(self, transport: Transport, port: int) -> bool:
        """By the table of the instance's own network namespace; False before its server has joined that."""
        if not isinstance(self.server, LabProcess):
            return False
        process = Path(f"/proc/{self.server.pid}")
        with contextlib.suppress(OSError):
            if (process / "ns/net").stat().st_ino == Path(self.namespace).stat().st_ino:
                return socket_waits(lambda table: (process / "net" / table).read_text("ascii"), transport, port)
        return False

    def deliver(self) -> None:
        """Nothing to do: a container sees the host's files."""


class ContainerInstances(ManagedInstances[LabContainer]):
    """The containers of one run; see `lab.instances.lifecycle.ManagedInstances`."""

    ready_within_s: ClassVar[float] = 20.0  # a game's server, loading its map, needs a few seconds
    poll_s: ClassVar[float] = 0.005

    def __init__(self, setup: RunSetup, maker: GroupMaker) -> None:
        super().__init__(setup, maker)
        self._filling = ExitStack()
        self._filler: IdleFiller | None = None
        self._host: str | None = None

    def backend(self) -> LxcBackend:
        entries = {container.group: container.placed for container in self._standing}
        return LxcBackend(known={
            group: Instance(entry.instance, vcpus=entry.member.vcpus, workload=entry.member.workload)
            for group, entry in entries.items()
        })  # fmt: skip

    def usage_files(self) -> list[str]:
        groups = find_groups(LiveSource())
        if not isinstance(groups, GroupsV1):
            return []
        fillers = [] if self._filler is None else self._filler.groups
        names = (
            "",
            *self._setup.host_groups,
            *fillers,
            *(name for container in self._standing for name in container.groups),
        )
        return [f"{groups.mounts['cpuacct']}/{name}/cpuacct.usage" for name in names]

    def own_programs_ns(self) -> int:
        groups = find_groups(LiveSource())
        daemons_ns = sum(groups.cpu_ns(name) for name in self._setup.host_groups)
        return daemons_ns if self._filler is None else daemons_ns + self._filler.cpu_ns()

    def _build(self) -> None:
        setup = self._setup
        net = self._network()
        if setup.host_cap_percent is not None:
            self._make_capped_host(setup.host_cap_percent)
        if setup.fill_idle:
            filler = IdleFiller(self._registry, self._maker, setup.directory, net.generators)
            self._filler = self._filling.enter_context(filler)
        for position, (entry, workload) in enumerate(zip(setup.placed, setup.workloads, strict=True)):
            port = net.ports[position]
            site = Site(position, setup.directory, self._directory(position), port.address, entry.member.vcpus)
            workload.prepare(site)
            group, procs = self._own_group(entry)
            outside = self._outside(entry, net.generators)
            self._standing.append(
                LabContainer(
                    entry, workload, site, outside, workload.lead_s, group, procs, port.namespace, net.generators
                )
            )

    def _make_capped_host(self, percent: float) -> None:
        """A group for all containers, whose CPU time is limited as if the host itself had no more."""
        self._host = self._registry.group("host")
        self._group(self._host, tuple(sorted(self.host_cpus())), IsolationSettings(cap_percent=percent))
        self._maker.open_up(self._host)

    def _own_group(self, entry: PlacedMember) -> tuple[str, tuple[str, ...]]:
        """The group of an instance, and the files by which a process joins it."""
        name, settings = self._registry.group(entry.instance), entry.member.settings
        if self._host is None:
            return name, self._group(name, entry.cpus, settings)
        name = f"{self._host}/{name}"  # it goes with the host's, so it is not on the registry
        return name, tuple(self._maker.make(name, entry.cpus, settings, device_of(self._setup.directory)))

    def _network(self) -> network.LabNetwork:
        return network.build(self._registry, self._networks(), self._setup.wiring)

    def _leave(self) -> None:
        """End the programs that fill idle CPUs; everything else is on the registry."""
        self._filling.close()
        self._filler = None
