"""Keeps idle CPUs busy, so that each CPU is always as fast as it is beside a busy one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

from lab.control_groups import GroupMaker
from lab.processes import LabProcess
from lab.resource_registry import ResourceRegistry
from lab.workloads.base import PROGRAMS
from profiler.backends.lxc.control_groups import find_groups
from profiler.backends.sources import LiveSource
from profiler.observed import IsolationSettings

TOOL = "sysbench"
_DAY_S = 86_400


class IdleFiller:
    """Context manager: meanwhile a program works on each CPU of this host whenever no other program does.

    A virtual CPU is faster while the other hardware thread of its core idles, and an idle one takes time to wake up.
    With these programs neither depends on who else works. RunError where the kernel cannot let others go first.
    """

    def __init__(self, registry: ResourceRegistry, maker: GroupMaker, directory: Path, network: str) -> None:
        self._registry = registry
        self._maker = maker
        self._directory = directory
        self._network = network
        self.groups: list[str] = []
        self.programs: list[LabProcess] = []

    def __enter__(self) -> Self:
        try:
            for cpu in sorted(os.sched_getaffinity(0)):
                self._fill(cpu)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def cpu_ns(self) -> int:
        """CPU time of these programs so far."""
        groups = find_groups(LiveSource())
        return sum(groups.cpu_ns(name) for name in self.groups)

    def _fill(self, cpu: int) -> None:
        group = self._registry.group(f"idle.{cpu}")
        self._registry.made("group", group)
        self.groups.append(group)
        procs = self._maker.make(group, (cpu,), IsolationSettings(), None)
        self._maker.let_others_first(group)
        command = [TOOL, str(PROGRAMS / "loop.lua"), "--work=spin", "--kb=0", "--threads=1", f"--time={_DAY_S}", "run"]
        self.programs.append(LabProcess(command, groups=procs, network=self._network, directory=self._directory))

    def _end(self) -> None:
        for program in self.programs:
            program.stop(0)
        self.programs.clear()
        for group in self.groups:
            self._registry.remove("group", group)
        self.groups.clear()
