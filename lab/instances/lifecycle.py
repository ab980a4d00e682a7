"""The life cycle that instances of all kinds share: build, start servers and wait for them, tear down."""

from __future__ import annotations

import contextlib
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Generic, Self, TypeVar

from lab.control_groups import GroupMaker, device_of
from lab.errors import RunError
from lab.instances.base import RunSetup, Transport
from lab.processes import LabProcess, Program
from lab.schedule import PlacedMember
from lab.workloads import Site, Workload
from profiler.backends.base import Backend
from profiler.backends.lxc.control_groups import find_groups
from profiler.backends.sources import LiveSource
from profiler.observed import IsolationSettings, NetworkSettings


@dataclass(frozen=True, slots=True)
class GeneratorPlace:
    """Where the load generator of an instance runs: files to join its groups by, and its network namespace."""

    group: str
    procs: tuple[str, ...]
    network: str


@dataclass(slots=True)
class RunningInstance(ABC):
    """One instance, and how to start programs in it or against it.

    `lead_s` is how long its measuring program needs from its release until it works.
    """

    placed: PlacedMember
    workload: Workload
    site: Site
    outside: GeneratorPlace | None
    lead_s: float
    server: Program | None = field(default=None, init=False)
    asking: Program | None = field(default=None, init=False)

    @property
    def groups(self) -> tuple[str, ...]:
        """The control groups of all its processes and those of its load generator; none where it has none."""
        return ()

    def start(self, command: list[str], *, wait: bool = False) -> Program:
        """Start the program that works: inside the instance, or in the generators' namespace for served workloads."""
        return self.start_inside(command, wait=wait) if self.outside is None else self._start_outside(command, wait)

    @abstractmethod
    def start_inside(self, command: list[str], *, wait: bool = False) -> Program: ...

    @abstractmethod
    def listens(self, transport: Transport, port: int) -> bool:
        """Whether anything in the instance waits on this port."""

    @abstractmethod
    def deliver(self) -> None:
        """Let the instance see what its workload wrote into its folder, at the same path."""

    def _start_outside(self, command: list[str], wait: bool) -> LabProcess:
        if self.outside is None:
            raise RunError(f"{self.placed.instance} has no load generator")
        return LabProcess(
            command, groups=self.outside.procs, network=self.outside.network, directory=self.site.directory, wait=wait
        )

    def serve(self) -> None:
        """Start the server, if this workload has one."""
        command = self.workload.server(self.site)
        if command is not None:
            self.deliver()
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
            self.asking = self._start_outside(command, wait=False)
        status = self.asking.returncode
        if status is not None:
            self.asking.stop()
            self.asking = None
        return status == 0

    def complaint(self) -> str | None:
        """What is wrong with the server, naming the instance; None = it runs or there is none."""
        if self.server is None or self.server.returncode is None:
            return None
        command, status = self.server.command[0], self.server.returncode
        return f"{command} of {self.placed.instance} ended with status {status}: {self.server.errors() or 'no message'}"

    def stop(self) -> None:
        """End the server and the check; whoever started another program here ends it."""
        for program in (self.asking, self.server):
            if program is not None:
                program.stop()
        self.asking = self.server = None


S_co = TypeVar("S_co", bound=RunningInstance, covariant=True)


class ManagedInstances(ABC, Generic[S_co]):
    """Context manager: on entry all instances run and their servers are ready; on exit everything is removed.

    What cannot be removed stays on the registry's list, and is an error only where nothing else went wrong.
    """

    ready_within_s: ClassVar[float]  # for the slowest server beside busy neighbours
    poll_s: ClassVar[float]

    def __init__(self, setup: RunSetup, maker: GroupMaker) -> None:
        self._setup = setup
        self._maker = maker
        self._registry = setup.registry
        self._standing: list[S_co] = []

    @property
    def running(self) -> list[RunningInstance]:
        return list(self._standing)

    def circumstances(self) -> dict[str, str]:
        """How instances were made, beyond the campaign's settings, for people; the same in all runs of a campaign."""
        return {}

    def usage_files(self) -> list[str]:
        """Files with CPU time in ns: first that of all tasks on this host, then that of each group of these instances.

        None where that is not counted exactly.
        """
        return []

    def __enter__(self) -> Self:
        try:
            self._build()
            self._serve()
        except BaseException:
            with contextlib.suppress(RunError):
                self._tear_down()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        # A server that ended by itself is the cause of whatever else went wrong; results may look right all the same.
        complaints = self._complaints()
        try:
            self._tear_down()
        except RunError:
            if kind is None and not complaints:
                raise
        if complaints and (kind is None or issubclass(kind, RunError)):
            raise RunError("; ".join(complaints)) from error

    @abstractmethod
    def backend(self) -> Backend:
        """Reads exactly these instances."""

    @abstractmethod
    def _build(self) -> None:
        """Make the instances and fill `_standing`."""

    @abstractmethod
    def _leave(self) -> None:
        """Undo what `_build` made that is not on the registry, also where it came only half-way."""

    def generator_ns(self) -> dict[str, int]:
        """CPU time so far of each instance's load generator."""
        groups = find_groups(LiveSource())
        return {
            running.placed.instance: groups.cpu_ns(running.outside.group)
            for running in self._standing
            if running.outside
        }

    def all_tasks_ns(self) -> int | None:
        """CPU time so far of every task on this host; only version 1 counts that exactly (version 2 counts ticks)."""
        groups = find_groups(LiveSource())
        return groups.cpu_ns("") if groups.version == 1 else None

    def own_programs_ns(self) -> int:
        """CPU time so far of the lab's own programs: those that fill idle CPUs, and the daemon of a volume."""
        return 0

    def host_cpus(self) -> frozenset[int]:
        """The CPUs that instances run on, by this system's numbers; none where pinning is by numbers of other CPUs."""
        return frozenset(cpu for entry in self._setup.placed for cpu in entry.cpus)

    def _networks(self) -> list[NetworkSettings | None]:
        return [entry.member.settings.network for entry in self._setup.placed]

    def _directory(self, position: int) -> Path:
        """The folder of the instance at this position, made."""
        directory = self._setup.directory / f"instance-{position}"
        directory.mkdir(exist_ok=True)
        return directory

    def _group(self, name: str, cpus: tuple[int, ...], settings: IsolationSettings) -> tuple[str, ...]:
        """Make a control group; returns the files by which a process joins it."""
        self._registry.made("group", name)
        return tuple(self._maker.make(name, cpus, settings, device_of(self._setup.directory)))

    def _outside(self, entry: PlacedMember, network: str) -> GeneratorPlace | None:
        """A group for the load generator of this instance; None = it has none."""
        if entry.clients is None:
            return None
        group = self._registry.group(entry.instance, load=True)
        return GeneratorPlace(group, self._group(group, entry.clients, IsolationSettings()), network)

    def _serve(self) -> None:
        """Start all servers side by side and wait until the last one is ready."""
        for running in self._standing:
            running.serve()
        waiting = list(self._standing)
        deadline = time.monotonic() + self.ready_within_s
        while waiting := [running for running in waiting if not running.is_ready()]:
            for running in waiting:
                if complaint := running.complaint():
                    raise RunError(complaint)
                if time.monotonic() > deadline:
                    program = running.server.command[0] if running.server else "the server"
                    late = f"was not ready within {self.ready_within_s:.0f} s"
                    raise RunError(f"{program} of {running.placed.instance} {late}")
            time.sleep(self.poll_s)

    def _complaints(self) -> list[str]:
        complaints: list[str] = []
        for running in self._standing:
            try:
                complaint = running.complaint()
            except RunError as error:  # the guest does not answer any more
                complaint = str(error)
            if complaint:
                complaints.append(complaint)
        return complaints

    def _tear_down(self) -> None:
        for running in self._standing:
            if running.server is not None:
                running.server.terminate()  # all at once; then each is waited for
        for running in self._standing:
            running.stop()
        self._leave()
        self._standing.clear()
        self._registry.remove_run()


def socket_waits(read: Callable[[str], str], transport: Transport, port: int) -> bool:
    """Whether a socket waits on this port, by the tables of a network namespace (proc(5), net), which `read` reads."""
    # local address and port, no peer; state 0A is TCP's LISTEN, 07 that of an unconnected UDP socket
    waiting = re.compile(rf":{port:04X} 0+:0000 {'0A' if transport == 'tcp' else '07'} ")
    for table in (transport, f"{transport}6"):
        with contextlib.suppress(OSError):
            if waiting.search(read(table)):
                return True
    return False
