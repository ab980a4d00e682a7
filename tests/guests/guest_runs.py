"""Runs of guests without a campaign around them, and the same things read where the lab does not read them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.campaign.model import Member
from lab.control_groups import GroupMaker
from lab.instances import Program, RunningInstance, RunSetup
from lab.instances.qemu import QemuInstances
from lab.network import Wiring
from lab.processes import call, wait_until
from lab.resource_registry import ResourceRegistry
from lab.schedule import PlacedMember
from lab.workloads import Workload, WorkloadResult
from profiler.collectors import Collected, collect
from profiler.observed import IsolationSettings
from tests.lab.qemu_accounts import cpu_seconds, qemu_threads, value_of

ENDS_WITHIN_S = 60.0
BUSY_S = 0.3  # of CPU: more than to start a program


@dataclass(frozen=True, slots=True)
class Lab:
    """What runs need that stays over a campaign."""

    registry: ResourceRegistry
    maker: GroupMaker
    scratch: Path

    def host(
        self, *members: tuple[PlacedMember, Workload], driver_cpus: tuple[int, ...] | None = None
    ) -> QemuInstances:
        """Guests for one run, not yet entered."""
        placed, workloads = zip(*members, strict=True)
        return QemuInstances(
            RunSetup(self.registry, placed, workloads, self.scratch, Wiring(driver_cpus=driver_cpus)), self.maker
        )


def place(
    name: str, cpus: tuple[int, ...], clients: tuple[int, ...] | None = None, vcpus: int = 1, cap: float | None = None
) -> PlacedMember:
    """An instance of this name on these CPUs."""
    member = Member(name, name, 1.0, vcpus, IsolationSettings(cap_percent=cap))
    return PlacedMember(name, member, cpus, clients, f"solo:{name}")


def finish(programs: Sequence[Program]) -> None:
    """Wait for programs to end well."""
    ended = wait_until(lambda: all(program.returncode is not None for program in programs), ENDS_WITHIN_S)
    assert ended, [program.command for program in programs]
    for program in programs:
        program.check()


def work(guests: QemuInstances, seconds: float) -> list[WorkloadResult]:
    """Let all work at once and read what each reached."""
    programs = [start(one, seconds) for one in guests.running]
    for program in programs:
        program.release()
    finish(programs)
    return [one.workload.read(program.output(), None) for one, program in zip(guests.running, programs, strict=True)]


def start(one: RunningInstance, seconds: float) -> Program:
    return one.start(one.workload.work(one.site, seconds, None), wait=True)


@dataclass(frozen=True, slots=True)
class Window:
    """Two readings and their difference."""

    collected: Collected

    @property
    def seconds(self) -> float:
        return self.collected.seconds

    def of(self, instance: str | None, metric: str, scope: str = "instance") -> float:
        return value_of(self.collected, instance, metric, scope)


def busy(guests: QemuInstances) -> None:
    """Wait until the first guest computes: how long a program takes to begin depends on the machine."""
    threads = qemu_threads(guests.machines[0].process.pid, vcpus=True)
    before = sum(map(cpu_seconds, threads))
    assert wait_until(lambda: sum(map(cpu_seconds, threads)) > before + BUSY_S, ENDS_WITHIN_S), "it does not get busy"


def over(guests: QemuInstances, seconds: float) -> Window:
    """Two readings so many seconds apart."""
    backend = guests.backend()
    first = backend.read_counters()
    time.sleep(seconds)
    second = backend.read_counters()
    backend.close()
    return Window(collect(first, second))


def tap_bytes(guests: QemuInstances, position: int) -> int:
    """What the kernel counted on a guest's tap, both ways, by the file of sysfs and not the table of proc."""
    machine = guests.machines[position]
    folder = f"/sys/class/net/{machine.shape.tap}/statistics"
    namespace = Path(guests.network).name
    printed = call(["ip", "netns", "exec", namespace, "cat", f"{folder}/rx_bytes", f"{folder}/tx_bytes"])
    return sum(map(int, printed.split()))
