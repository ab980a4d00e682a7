"""What all instances that are VMs have in common: their agents start programs and look at sockets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from lab.guests.channel import AgentChannel
from lab.instances.base import Program, Transport
from lab.instances.lifecycle import ManagedInstances, RunningInstance, waiting_socket


class GuestSystem(Protocol):
    """A guest as programs in it need it."""

    @property
    def channel(self) -> AgentChannel: ...

    def deliver(self, directory: Path, /) -> None:
        """Let the guest see what is in this folder of the host, at the same path."""


@dataclass(slots=True)
class GuestHandle(RunningInstance):
    """One guest that does a workload."""

    inside: GuestSystem

    def start_inside(self, command: list[str], *, wait: bool = False) -> Program:
        return self.inside.channel.start(command, self.site.directory, wait=wait)

    def listens(self, transport: Transport, port: int) -> bool:
        waiting = waiting_socket(transport, port)
        tables = (f"/proc/net/{transport}", f"/proc/net/{transport}6")
        return any(waiting.search(self.inside.channel.read(table)) for table in tables)

    def deliver(self) -> None:
        self.inside.deliver(self.site.directory)


class GuestInstances(ManagedInstances[GuestHandle]):
    """The guests of one run; see `lab.instances.lifecycle.ManagedInstances`."""

    ready_within_s: ClassVar[float] = 60.0  # a server starts much slower on an emulated CPU than on the host's
    poll_s: ClassVar[float] = 0.02  # each look takes CPU time of the guest
