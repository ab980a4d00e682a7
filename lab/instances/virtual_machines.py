"""What all instances that are VMs have in common: their agents start programs and look at sockets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from lab.guests.channel import AgentChannel
from lab.instances.base import Transport
from lab.instances.lifecycle import ManagedInstances, RunningInstance, socket_waits
from lab.processes import Program


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
        return socket_waits(lambda table: self.inside.channel.read(f"/proc/net/{table}"), transport, port)

    def deliver(self) -> None:
        self.inside.deliver(self.site.directory)


class GuestInstances(ManagedInstances[GuestHandle]):
    """The guests of one run; see `lab.instances.lifecycle.ManagedInstances`."""

    ready_within_s: ClassVar[float] = 60.0  # a server starts much slower on an emulated CPU than on the host's
    poll_s: ClassVar[float] = 0.02  # each look takes CPU time of the guest
