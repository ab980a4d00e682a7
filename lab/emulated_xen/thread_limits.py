"""Limits each thread that emulates a pCPU to a part of a CPU, so that there may be more pCPUs than CPUs.

Four emulated pCPUs on two CPUs would slow each other by themselves, whatever runs in them. Limited to a part that all
can have at once, each has the same speed at any time, as real ones have.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lab.errors import PreparationError
from lab.resource_registry import ResourceRegistry
from profiler.backends.lxc.control_groups import find_mounts
from profiler.backends.sources import LiveSource

_PERIOD_US = 4000  # short against a guest's time slice of 30 ms; the kernel takes 1 ms at least


def limit_threads(threads: Sequence[int], percent: float, registry: ResourceRegistry) -> None:
    """Put each thread into its own group with this part of a CPU; PreparationError where no group can limit threads."""
    mount = find_mounts(LiveSource()).get("cpu")
    if mount is None:
        raise PreparationError("pcpu_percent needs control groups of version 1, which can limit threads: leave it out")
    for number, thread in enumerate(threads):
        name = registry.group(f"pcpu{number}")
        registry.remove("group", name)  # of a machine before this one
        registry.made("group", name, lasting=True)
        group = Path(mount, name)
        group.mkdir()
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(round(percent / 100 * _PERIOD_US)))
        (group / "tasks").write_text(str(thread))
