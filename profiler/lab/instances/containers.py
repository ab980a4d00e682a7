"""Containers of one run: control groups, network namespaces, servers; everything goes through the registry."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from profiler.backends import LxcBackend
from profiler.backends.lxc.groups import find_groups
from profiler.backends.source import LiveSource
from profiler.lab import network
from profiler.lab.control_groups import GroupMaker
from profiler.lab.errors import RunError
from profiler.lab.instances.base import Running, Setup, Transport
from profiler.lab.processes import Process, wait_until
from profiler.lab.schedule import Placed
from profiler.lab.workloads import Site, Workload
from profiler.observed import Instance, IsolationSettings

_READY_WITHIN_S = 10.0


@dataclass(slots=True)
class Container:
    """One started instance and how to start more programs in it or against it."""

    placed: Placed
    workload: Workload
    site: Site
    group: str
    load_group: str | None
    procs: tuple[str, ...]
    load_procs: tuple[str, ...]
    namespace: str
    generators: str
    server: Process | None = None

    def start(self, command: list[str], *, wait: bool = False) -> Process:
        """Start the program that works: inside the instance, or in the generators' namespace for served workloads."""
        if self.load_group is None:
            return self.start_inside(command, wait=wait)
        return Process(
            command, groups=self.load_procs, network=self.generators, directory=self.site.directory, wait=wait
        )

    def start_inside(self, command: list[str], *, wait: bool = False) -> Process:
        return Process(command, groups=self.procs, network=self.namespace, directory=self.site.directory, wait=wait)

    def listens(self, transport: Transport, port: int) -> bool:
        """Reads the table of the instance's own network namespace; False before its server stands."""
        return self.server is not None and listens(Path(f"/proc/{self.server.pid}/net"), transport, port)


class Containers:
    """Context manager: on entry all instances stand and their servers are ready, on exit nothing of them is left."""

    def __init__(self, setup: Setup, maker: GroupMaker) -> None:
        self._setup = setup
        self._maker = maker
        self._registry = setup.registry
        self._servers: list[Process] = []
        self._containers: list[Container] = []

    @property
    def running(self) -> list[Running]:
        return list(self._containers)

    def __enter__(self) -> Containers:
        try:
            self._build()
        except BaseException:
            self._tear_down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tear_down()

    def backend(self) -> LxcBackend:
        """Reads exactly these instances."""
        known = {
            one.group: Instance(one.placed.instance, vcpus=one.placed.member.vcpus, workload=one.placed.member.workload)
            for one in self._containers
        }
        return LxcBackend(known=known)

    def generator_ns(self) -> dict[str, int]:
        """CPU time so far of each instance's load generator."""
        groups = find_groups(LiveSource())
        return {one.placed.instance: groups.cpu_ns(one.load_group) for one in self._containers if one.load_group}

    def all_tasks_ns(self) -> int | None:
        """CPU time so far of every task on this host; only version 1 counts that exactly (version 2 counts ticks)."""
        groups = find_groups(LiveSource())
        return groups.cpu_ns("") if groups.version == 1 else None

    def _build(self) -> None:
        setup = self._setup
        settings = [entry.member.settings.network for entry in setup.placed]
        net = network.build(self._registry, settings, setup.link_mbit)
        for position, (entry, workload) in enumerate(zip(setup.placed, setup.workloads, strict=True)):
            port = net.ports[position]
            directory = setup.directory / f"instance-{position}"
            directory.mkdir(exist_ok=True)
            site = Site(position, setup.directory, directory, port.address, entry.member.vcpus)
            workload.prepare(site)
            group = self._registry.group(entry.instance)
            procs = self._group(group, entry.cpus, entry.member.settings)
            load_group, load_procs = None, []
            if entry.clients is not None:
                load_group = self._registry.group(entry.instance, load=True)
                load_procs = self._group(load_group, entry.clients, IsolationSettings())
            self._containers.append(
                Container(
                    entry, workload, site, group, load_group, tuple(procs), tuple(load_procs), port.namespace,
                    net.generators,
                )
            )  # fmt: skip
        for container in self._containers:
            self._serve(container)

    def _group(self, name: str, cpus: tuple[int, ...], settings: IsolationSettings) -> list[str]:
        self._registry.made("group", name)
        return self._maker.make(name, cpus, settings, device_of(self._setup.directory))

    def _serve(self, container: Container) -> None:
        command = container.workload.server(container.site)
        if command is None:
            return
        server = container.server = container.start_inside(command)
        self._servers.append(server)
        ready = wait_until(
            lambda: server.returncode is not None or container.workload.is_ready(server.pid), _READY_WITHIN_S
        )
        server.check()
        if not ready or server.returncode is not None:
            raise RunError(f"{command[0]} of {container.placed.instance} was not ready within {_READY_WITHIN_S:.0f} s")

    def _tear_down(self) -> None:
        for server in self._servers:
            server.stop()
        self._servers.clear()
        self._registry.remove_run()


def device_of(path: Path) -> str:
    """`major:minor` of the disk that a path lies on; disk limits are set on it."""
    number = path.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def listens(tables: Path, transport: Transport, port: int) -> bool:
    """Whether a socket waits on this port, by the tables `tcp`, `tcp6`, `udp`, `udp6` of a namespace (proc(5))."""
    # local address and port, no peer; state 0A is TCP's LISTEN, 07 is what an unconnected UDP socket has
    waiting = re.compile(rf":{port:04X} 0+:0000 {'0A' if transport == 'tcp' else '07'} ")
    for name in (transport, f"{transport}6"):
        with contextlib.suppress(OSError):
            if waiting.search((tables / name).read_text(encoding="ascii")):
                return True
    return False
