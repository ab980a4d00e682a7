"""Containers of one run: control groups, network namespaces, servers; everything goes through the registry."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from lab import network
from lab.control_groups import GroupMaker
from lab.instances.base import RunSetup, Transport
from lab.instances.lifecycle import InstanceHandle, ManagedInstances, waiting_socket
from lab.processes import LabProcess
from lab.workloads import Site
from lab.workloads.base import PROGRAMS
from profiler.backends import LxcBackend
from profiler.backends.lxc.control_groups import GroupsV1, find_groups
from profiler.backends.source import LiveSource
from profiler.observed import Instance, IsolationSettings

FILLER = ("sysbench", str(PROGRAMS / "loop.lua"), "--work=spin", "--kb=0", "--threads=1")
_FILLER_S = 86_400


@dataclass(slots=True)
class LabContainer(InstanceHandle):
    """One started container.

    `procs` are the files that a process joins its group by; `namespace` and `generators` are paths of network
    namespaces, its own and that of the load generators.
    """

    group: str
    procs: tuple[str, ...]
    namespace: str
    generators: str

    @property
    def groups(self) -> tuple[str, ...]:
        """Its control group, and that of its load generator."""
        return (self.group, self.outside.group) if self.outside else (self.group,)

    def start_inside(self, command: list[str], *, wait: bool = False) -> LabProcess:
        return LabProcess(command, groups=self.procs, network=self.namespace, directory=self.site.directory, wait=wait)

    def listens(self, transport: Transport, port: int) -> bool:
        """Reads the table of the instance's own network namespace; False before its server is in it."""
        if not isinstance(self.server, LabProcess):
            return False
        process = Path(f"/proc/{self.server.pid}")
        with contextlib.suppress(OSError):
            if (process / "ns/net").stat().st_ino == Path(self.namespace).stat().st_ino:
                return listens(process / "net", transport, port)
        return False

    def deliver(self) -> None:
        """Nothing to bring: a container sees the host's files."""


class ContainerInstances(ManagedInstances[LabContainer]):
    """The containers of one run; see `lab.instances.base.Instances`."""

    ready_within_s: ClassVar[float] = 20.0  # a game's server, loading its map, needs a few seconds
    poll_s: ClassVar[float] = 0.005

    def __init__(self, setup: RunSetup, maker: GroupMaker) -> None:
        super().__init__(setup, maker)
        self._idle: list[LabProcess] = []
        self._fillers: list[str] = []

    def backend(self) -> LxcBackend:
        """Reads exactly these instances."""
        known = {
            one.group: Instance(one.placed.instance, vcpus=one.placed.member.vcpus, workload=one.placed.member.workload)
            for one in self._standing
        }
        return LxcBackend(known=known)

    def usage_files(self) -> list[str]:
        """Files with the CPU time in ns of every task on this host, and then of each group of these instances; none
        where that is not counted exactly."""
        groups = find_groups(LiveSource())
        if not isinstance(groups, GroupsV1):
            return []
        names = ("", *self._fillers, *(name for one in self._standing for name in one.groups))
        return [f"{groups.mounts['cpuacct']}/{name}/cpuacct.usage" for name in names]

    def filler_ns(self) -> int:
        """CPU time so far of the programs that fill idle CPUs."""
        groups = find_groups(LiveSource())
        return sum(groups.cpu_ns(name) for name in self._fillers)

    def _build(self) -> None:
        setup = self._setup
        net = self._network()
        if setup.fill_idle:
            self._fill_idle(net.generators)
        for position, (entry, workload) in enumerate(zip(setup.placed, setup.workloads, strict=True)):
            port = net.ports[position]
            site = Site(position, setup.directory, self._directory(position), port.address, entry.member.vcpus)
            workload.prepare(site)
            group = self._registry.group(entry.instance)
            procs = self._group(group, entry.cpus, entry.member.settings)
            outside = self._outside(entry, net.generators)
            self._standing.append(
                LabContainer(
                    entry, workload, site, outside, workload.lead_s, group, procs, port.namespace, net.generators
                )
            )

    def _fill_idle(self, namespace: str) -> None:
        """Keep every CPU busy with work that anybody else's goes before, until the groups are removed.

        A virtual CPU is faster while the other hardware thread of its core idles, and waking it takes time: with this,
        neither depends on who else works.
        """
        for cpu in sorted(os.sched_getaffinity(0)):
            group = self._registry.group(f"idle.{cpu}")
            procs = self._group(group, (cpu,), IsolationSettings())
            self._maker.let_others_first(group)
            command = [*FILLER, f"--time={_FILLER_S}", "run"]
            self._idle.append(LabProcess(command, groups=procs, network=namespace, directory=self._setup.directory))
            self._fillers.append(group)

    def _network(self) -> network.LabNetwork:
        return network.build(self._registry, self._networks(), self._wiring())

    def _leave(self) -> None:
        """All but the programs that fill idle CPUs is on the registry."""
        for program in self._idle:
            program.stop(0)
        self._idle.clear()
        self._fillers.clear()


def listens(tables: Path, transport: Transport, port: int) -> bool:
    """Whether a socket waits on this port, by the tables in this folder, as `/proc/PID/net` is one."""
    waiting = waiting_socket(transport, port)
    for name in (transport, f"{transport}6"):
        with contextlib.suppress(OSError):
            if waiting.search((tables / name).read_text(encoding="ascii")):
                return True
    return False
