"""Starts and stops the instances of one run: groups, network, servers; everything goes through the registry."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from profiler.backends import LxcBackend
from profiler.backends.lxc.groups import find_groups
from profiler.backends.source import LiveSource
from profiler.lab import network
from profiler.lab.control_groups import GroupMaker
from profiler.lab.errors import RunError
from profiler.lab.processes import Process, wait_until
from profiler.lab.registry import Registry
from profiler.lab.schedule import Placed
from profiler.lab.workloads import Site, Workload
from profiler.observed import Instance, IsolationSettings

_READY_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Running:
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

    def start(self, command: list[str], *, wait: bool = False) -> Process:
        """Start the program that works: inside the instance, or in the generators' namespace for served workloads."""
        if self.load_group is None:
            return self.start_inside(command, wait=wait)
        return Process(
            command, groups=self.load_procs, network=self.generators, directory=self.site.directory, wait=wait
        )

    def start_inside(self, command: list[str], *, wait: bool = False) -> Process:
        return Process(command, groups=self.procs, network=self.namespace, directory=self.site.directory, wait=wait)


class Instances:
    """Context manager: on entry all instances stand and their servers are ready, on exit nothing of them is left."""

    def __init__(
        self, registry: Registry, maker: GroupMaker, placed: tuple[Placed, ...], workloads: list[Workload],
        directory: Path, link_mbit: float | None,
    ) -> None:  # fmt: skip
        self._registry = registry
        self._maker = maker
        self._placed = placed
        self._workloads = workloads
        self._directory = directory
        self._link_mbit = link_mbit
        self._servers: list[Process] = []
        self.running: list[Running] = []

    def __enter__(self) -> Instances:
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
            for one in self.running
        }
        return LxcBackend(known=known)

    def generator_ns(self) -> dict[str, int]:
        """CPU time so far of each instance's load generator."""
        groups = find_groups(LiveSource())
        return {one.placed.instance: groups.cpu_ns(one.load_group) for one in self.running if one.load_group}

    def all_tasks_ns(self) -> int | None:
        """CPU time so far of every task on this host; only version 1 counts that exactly (version 2 counts ticks)."""
        groups = find_groups(LiveSource())
        return groups.cpu_ns("") if groups.version == 1 else None

    def _build(self) -> None:
        settings = [entry.member.settings.network for entry in self._placed]
        net = network.build(self._registry, settings, self._link_mbit)
        for position, (entry, workload) in enumerate(zip(self._placed, self._workloads, strict=True)):
            port = net.ports[position]
            directory = self._directory / f"instance-{position}"
            directory.mkdir(exist_ok=True)
            site = Site(position, self._directory, directory, port.address, entry.member.vcpus)
            workload.prepare(site)
            group = self._registry.group(entry.instance)
            procs = self._group(group, entry.cpus, entry.member.settings)
            load_group, load_procs = None, []
            if entry.clients is not None:
                load_group = self._registry.group(entry.instance, load=True)
                load_procs = self._group(load_group, entry.clients, IsolationSettings())
            running = Running(
                entry, workload, site, group, load_group, tuple(procs), tuple(load_procs), port.namespace,
                net.generators,
            )  # fmt: skip
            self.running.append(running)
        for running in self.running:
            self._serve(running)

    def _group(self, name: str, cpus: tuple[int, ...], settings: IsolationSettings) -> list[str]:
        self._registry.made("group", name)
        return self._maker.make(name, cpus, settings, device_of(self._directory))

    def _serve(self, running: Running) -> None:
        command = running.workload.server(running.site)
        if command is None:
            return
        server = running.start_inside(command)
        self._servers.append(server)
        ready = wait_until(
            lambda: server.returncode is not None or running.workload.is_ready(server.pid), _READY_WITHIN_S
        )
        server.check()
        if not ready or server.returncode is not None:
            raise RunError(f"{command[0]} of {running.placed.instance} was not ready within {_READY_WITHIN_S:.0f} s")

    def _tear_down(self) -> None:
        for server in self._servers:
            server.stop()
        self._servers.clear()
        self._registry.remove_run()


def device_of(path: Path) -> str:
    """`major:minor` of the disk that a path lies on; disk limits are set on it."""
    number = path.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"
