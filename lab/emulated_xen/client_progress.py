"""The progress that clients of the emulated guests report, and the CPU time of this host meanwhile."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.emulated_xen.machine import XenMachine
from lab.on_off.states import State
from lab.processes import LabProcess

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ClientProgress:
    """What one guest did, in its workload's unit, by bins of `bin_s` seconds of the monotonic clock."""

    bin_s: float
    amounts: Mapping[int, float]

    def between(self, begin_s: float, end_s: float) -> tuple[float, float]:
        """Amount and seconds of the bins that lie wholly in this time."""
        first, last = math.ceil(begin_s / self.bin_s), math.floor(end_s / self.bin_s)
        return sum(self.amounts.get(number, 0.0) for number in range(first, last)), max(0, last - first) * self.bin_s


@dataclass(frozen=True, slots=True)
class HostUsage:
    """CPU seconds so far: of all this host, stolen from it, of the emulated machine and the lab, and of each client."""

    at_s: float
    busy_s: float
    stolen_s: float
    ours_s: float
    clients: tuple[float, ...]

    @classmethod
    def read(cls, machine: XenMachine, clients: Sequence[LabProcess], fillers: Sequence[LabProcess] = ()) -> HostUsage:
        """Now; `fillers` keep idle CPUs busy and count as the lab's."""
        user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text("ascii").split()[1:9])
        ours = _process_s(machine.process) + time.process_time() + sum(_process_s(filler.pid) for filler in fillers)
        of_clients = tuple(_process_s(client.pid) for client in clients)
        busy = (user + nice + system + irq + softirq) * _TICK_S
        return cls(time.monotonic(), busy, steal * _TICK_S, ours, of_clients)

    def since(self, before: HostUsage) -> tuple[float, float]:
        """Percent of a CPU that was stolen, and that went to others than the machine, the lab and the clients."""
        ours = self.ours_s - before.ours_s + sum(self.clients) - sum(before.clients)
        foreign = self.busy_s - before.busy_s - ours
        scale = 100 / (self.at_s - before.at_s)
        return (self.stolen_s - before.stolen_s) * scale, max(0.0, foreign) * scale


@dataclass(frozen=True, slots=True)
class StateSpell:
    """A time in which the same guests worked."""

    block: int
    state: State
    first: HostUsage
    last: HostUsage


def _process_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S
