"""Containers of one run: control groups, network namespaces, servers; everything goes through the registry."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from profiler.backends import LxcBackend
from profiler.backends.lxc.groups import find_groups
from profiler.backends.source import LiveSource
from profiler.lab import network
from profiler.lab.control_groups import GroupMaker, device_of
from profiler.lab.errors import RunError
from profiler.lab.instances.base import Running, Setup, Transport
from profiler.lab.processes import Process
from profiler.lab.schedule import Placed
from profiler.lab.workloads import Site, Workload
from profiler.observed import Instance, IsolationSettings, NetworkSettings

_READY_WITHIN_S = 20.0  # the slowest server (a game's, loading its map) needs a few seconds beside busy neighbours
_POLL_S = 0.005


@dataclass(slots=True)
class Container:
    """One started instance and how to start more programs in it or against it.

    `namespace` and `generators` are paths of network namespaces, `procs` and `load_procs` the files that a process
    joins the groups by.
    """

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
    asking: Process | None = None

    @property
    def lead_s(self) -> float:
        return self.workload.lead_s

    def start(self, command: list[str], *, wait: bool = False) -> Process:
        """Start the program that works: inside the instance, or in the generators' namespace for served workloads."""
        if self.load_group is None:
            return self.start_inside(command, wait=wait)
        return self._start_outside(command, wait=wait)

    def _start_outside(self, command: list[str], *, wait: bool = False) -> Process:
        return Process(
            command, groups=self.load_procs, network=self.generators, directory=self.site.directory, wait=wait
        )

    def start_inside(self, command: list[str], *, wait: bool = False) -> Process:
        return Process(command, groups=self.procs, network=self.namespace, directory=self.site.directory, wait=wait)

    def listens(self, transport: Transport, port: int) -> bool:
        """Reads the table of the instance's own network namespace; False before its server is in it."""
        if self.server is None:
            return False
        process = Path(f"/proc/{self.server.pid}")
        with contextlib.suppress(OSError):
            if (process / "ns/net").stat().st_ino == Path(self.namespace).stat().st_ino:
                return listens(process / "net", transport, port)
        return False

    def serve(self) -> None:
        """Start the server, if this workload has one."""
        command = self.workload.server(self.site)
        if command is not None:
            self.server = self.start_inside(command)

    def is_ready(self) -> bool:
        """Whether the server waits and answers; True where nothing serves."""
        if self.server is None:
            return True
        waits_on = self.workload.listens
        if waits_on is not None and not self.listens(*waits_on):
            return False
        command = self.workload.ready_check(self.site)
        if command is None:
            return True
        if self.asking is None:
            self.asking = self._start_outside(command)
        answer = self.asking.returncode
        if answer is not None:
            self.asking.stop()
            self.asking = None
        return answer == 0

    def complaint(self) -> str | None:
        """What is wrong with the server, naming the instance; None = it runs or there is none."""
        if self.server is None or self.server.returncode is None:
            return None
        said = self.server.errors() or "no message"
        return f"{self.server.command[0]} of {self.placed.instance} ended with status {self.server.returncode}: {said}"

    def stop(self) -> None:
        """End what serves and what asks; what else was started here is its starter's to end."""
        for process in (self.asking, self.server):
            if process is not None:
                process.stop()


class Containers:
    """Context manager: on entry all instances stand and their servers are ready, on exit nothing of them is left."""

    def __init__(self, setup: Setup, maker: GroupMaker) -> None:
        self._setup = setup
        self._maker = maker
        self._registry = setup.registry
        self._containers: list[Container] = []

    @property
    def running(self) -> list[Running]:
        return list(self._containers)

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self._tear_down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A server that ended by itself is the cause of whatever else went wrong, and of results that look right.
        complaints = [complaint for one in self._containers if (complaint := one.complaint())]
        self._tear_down()
        if complaints and (kind is None or issubclass(kind, RunError)):
            raise RunError("; ".join(complaints)) from error

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
        net = self._network()
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
        self._serve()

    def _network(self) -> network.Network:
        return network.build(self._registry, self._shaping(), self._wiring())

    def _shaping(self) -> list[NetworkSettings | None]:
        return [entry.member.settings.network for entry in self._setup.placed]

    def _wiring(self, *, switch: str | None = None, taps: tuple[str, ...] = ()) -> network.Wiring:
        setup = self._setup
        return network.Wiring(
            setup.link_mbit, setup.line_mbit, setup.queue_packets, setup.driver_cpus, switch=switch, taps=taps
        )

    def _group(self, name: str, cpus: tuple[int, ...], settings: IsolationSettings) -> list[str]:
        self._registry.made("group", name)
        return self._maker.make(name, cpus, settings, device_of(self._setup.directory))

    def _serve(self) -> None:
        """Start all servers side by side and wait until the last one is ready."""
        for container in self._containers:
            container.serve()
        waiting = list(self._containers)
        deadline = time.monotonic() + _READY_WITHIN_S
        while waiting := [one for one in waiting if not one.is_ready()]:
            for one in waiting:
                if complaint := one.complaint():
                    raise RunError(complaint)
                if time.monotonic() > deadline:
                    program = one.server.command[0] if one.server else "the server"
                    raise RunError(f"{program} of {one.placed.instance} was not ready within {_READY_WITHIN_S:.0f} s")
            time.sleep(_POLL_S)

    def _tear_down(self) -> None:
        for container in self._containers:
            if container.server is not None:
                container.server.terminate()  # all at once; then each is waited for
        for container in self._containers:
            container.stop()
        self._containers.clear()
        self._registry.remove_run()


def listens(tables: Path, transport: Transport, port: int) -> bool:
    """Whether a socket waits on this port, by the tables `tcp`, `tcp6`, `udp`, `udp6` of a namespace (proc(5))."""
    # local address and port, no peer; state 0A is TCP's LISTEN, 07 is what an unconnected UDP socket has
    waiting = re.compile(rf":{port:04X} 0+:0000 {'0A' if transport == 'tcp' else '07'} ")
    for name in (transport, f"{transport}6"):
        with contextlib.suppress(OSError):
            if waiting.search((tables / name).read_text(encoding="ascii")):
                return True
    return False
