"""Threads of real QEMU processes by the kernel's own accounts, which no backend reads, and samples beside them."""

from __future__ import annotations

import os
from pathlib import Path

from profiler.collectors import Collected

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_seconds(folder: Path) -> float:
    """utime + stime of a process or thread in seconds (proc(5), stat)."""
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def qemu_threads(pid: int, *, vcpus: bool) -> list[Path]:
    """A guest's vCPU threads, or QEMU's others, by the names that QEMU gives them."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [task for task in tasks if (task / "comm").read_text().startswith("CPU ") == vcpus]


def allowed_cpus(task: Path) -> str:
    """The CPUs that a thread may use."""
    lines = (task / "status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list:"))


def value_of(collected: Collected, instance: str | None, metric: str, scope: str) -> float:
    """A sample; a missing one fails the test with what was said about it."""
    for sample in collected.samples:
        if (sample.instance, sample.metric, sample.scope) == (instance, metric, scope):
            return sample.value
    raise AssertionError(f"no {scope} {metric} of {instance}: {collected.absences} {collected.drops}")
