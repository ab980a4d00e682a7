"""What instances that are whole VMs share: load generators beside them, servers in them, one life from start to end."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from profiler.backends.base import Backend
from profiler.backends.lxc.groups import find_groups
from profiler.backends.source import LiveSource
from profiler.lab.control_groups import GroupMaker, device_of
from profiler.lab.errors import RunError
from profiler.lab.guests.channel import Channel
from profiler.lab.instances.base import Program, Running, Setup, Transport
from profiler.lab.processes import Process
from profiler.lab.schedule import Placed
from profiler.lab.workloads import Site, Workload
from profiler.observed import IsolationSettings

_READY_WITHIN_S = 60.0  # a server that starts in an emulated CPU takes ten times as long as on the host's
_POLL_S = 0.02


class Inside(Protocol):
    """A guest, as far as programs in it matter."""

    @property
    def channel(self) -> Channel: ...

    def deliver(self, directory: Path, /) -> None:
        """Let the guest have what lies in this folder of the host, at the same path."""


@dataclass(frozen=True, slots=True)
class Outside:
    """Where the load generator of an instance runs: files to join its groups by, and its network namespace."""

    group: str
    procs: tuple[str, ...]
    network: str


@dataclass(slots=True)
class Guest:
    """One guest that does a workload."""

    placed: Placed
    workload: Workload
    site: Site
    inside: Inside
    outside: Outside | None
    lead_s: float
    server: Program | None = None
    asking: Program | None = None

    def start(self, command: list[str], *, wait: bool = False) -> Program:
        """Start the program that works: inside the guest, or in the generators' namespace for served workloads."""
        return self.start_inside(command, wait=wait) if self.outside is None else self._start_outside(command, wait)

    def start_inside(self, command: list[str], *, wait: bool = False) -> Program:
        return self.inside.channel.start(command, self.site.directory, wait=wait)

    def _start_outside(self, command: list[str], wait: bool) -> Program:
        if self.outside is None:
            raise RunError(f"{self.placed.instance} has no load generator")
        return Process(
            command, groups=self.outside.procs, network=self.outside.network, directory=self.site.directory, wait=wait
        )

    def listens(self, transport: Transport, port: int) -> bool:
        """Whether a socket in the guest waits on this port (proc(5): net/tcp, net/udp)."""
        # local address and port, no peer; state 0A is TCP's LISTEN, 07 is what an unconnected UDP socket has
        waiting = re.compile(rf":{port:04X} 0+:0000 {'0A' if transport == 'tcp' else '07'} ")
        tables = (f"/proc/net/{transport}", f"/proc/net/{transport}6")
        return any(waiting.search(self.inside.channel.read(table)) for table in tables)

    def serve(self) -> None:
        """Start the server, if this workload has one."""
        command = self.workload.server(self.site)
        if command is not None:
            self.inside.deliver(self.site.directory)
            self.server = self.start_inside(command)

    def is_ready(self) -> bool:
        """Whether the server waits and answers; True where nothing serves."""
        if self.server is None:
            return True
        if self.workload.listens is not None and not self.listens(*self.workload.listens):
            return False
        command = self.workload.ready_check(self.site)
        if command is None:
            return True
        if self.asking is None:
            self.asking = self._start_outside(command, wait=False)
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
        for program in (self.asking, self.server):
            if program is not None:
                program.stop()
        self.asking = self.server = None


class Guests(ABC):
    """Context manager: on entry all guests stand and their servers are ready, on exit nothing of the run is left."""

    def __init__(self, setup: Setup, maker: GroupMaker) -> None:
        self._setup = setup
        self._maker = maker
        self._registry = setup.registry
        self._guests: list[Guest] = []

    @property
    def running(self) -> list[Running]:
        return list(self._guests)

    def __enter__(self) -> Self:
        try:
            self._build()
            self._serve()
        except BaseException:
            self._tear_down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        complaints: list[str] = []
        try:
            # A server that ended by itself is the cause of whatever else went wrong, and of results that look right.
            complaints = [complaint for one in self._guests if (complaint := one.complaint())]
        finally:
            self._tear_down()
        if complaints and (kind is None or issubclass(kind, RunError)):
            raise RunError("; ".join(complaints)) from error

    @abstractmethod
    def backend(self) -> Backend:
        """Reads exactly these instances."""

    @abstractmethod
    def circumstances(self) -> dict[str, str]:
        """How the guests were made, as text: what results depend on and the campaign does not say."""

    @abstractmethod
    def _build(self) -> None:
        """Fill `_guests`."""

    @abstractmethod
    def _leave(self) -> None:
        """Take apart what `_build` made, whatever of it stands."""

    def generator_ns(self) -> dict[str, int]:
        """CPU time so far of each instance's load generator."""
        groups = find_groups(LiveSource())
        return {one.placed.instance: groups.cpu_ns(one.outside.group) for one in self._guests if one.outside}

    def all_tasks_ns(self) -> int | None:
        """CPU time so far of every task on this host; only version 1 counts that exactly (version 2 counts ticks)."""
        groups = find_groups(LiveSource())
        return groups.cpu_ns("") if groups.version == 1 else None

    def _outside(self, entry: Placed, network: str) -> Outside | None:
        if entry.clients is None:
            return None
        group = self._registry.group(entry.instance, load=True)
        return Outside(group, tuple(self._group(group, entry.clients, IsolationSettings())), network)

    def _group(self, name: str, cpus: tuple[int, ...], settings: IsolationSettings) -> list[str]:
        self._registry.made("group", name)
        return self._maker.make(name, cpus, settings, device_of(self._setup.directory))

    def _serve(self) -> None:
        """Start all servers side by side and wait until the last one is ready."""
        for guest in self._guests:
            guest.serve()
        waiting = list(self._guests)
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
        for guest in self._guests:
            guest.stop()
        self._leave()
        self._guests.clear()
        self._registry.remove_run()
