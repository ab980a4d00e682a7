"""What must be there before a campaign starts: root, programs, CPUs, disk space; says what to install."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from profiler.lab.campaign import Campaign
from profiler.lab.errors import PreparationError
from profiler.observed import format_cpus

PACKAGES = {  # Debian and Ubuntu
    "nginx": "nginx",
    "wrk": "wrk",
    "httperf": "httperf",
    "fio": "fio",
    "sysbench": "sysbench",
    "ip": "iproute2",
    "tc": "iproute2",
}
_SPARE_MB = 64  # tables, journal and logs beside the workloads' own files


def check_ready(campaign: Campaign, directory: Path) -> None:
    """Raise PreparationError for the first thing that is missing."""
    if os.geteuid() != 0:
        raise PreparationError("the lab makes control groups and network namespaces: run it as root (sudo)")
    missing = missing_tools(campaign)
    if missing:
        packages = " ".join(sorted({PACKAGES[tool] for tool in missing}))
        verb = "is" if len(missing) == 1 else "are"
        raise PreparationError(f"{', '.join(missing)} {verb} not installed: apt-get install {packages}")
    here = os.sched_getaffinity(0)
    beyond = campaign.cpus - here
    if beyond:
        raise PreparationError(
            f"campaign {campaign.name} uses CPU {format_cpus(beyond)}, this host has {format_cpus(frozenset(here))}:"
            " change its pinnings"
        )
    needed = _SPARE_MB + sum(_file_mb(campaign).values())
    free = shutil.disk_usage(directory).free / 2**20
    if free < needed:
        raise PreparationError(
            f"{directory} has {free:.0f} MB free, the campaign needs {needed:.0f} MB: make room there"
        )


def missing_tools(campaign: Campaign) -> list[str]:
    """Programs that this campaign needs and that are not on the PATH."""
    members = [member for group in campaign.groups for member in group.members]
    needed = {tool for member in members for tool in campaign.workloads[member.workload].tools(member.load)}
    needed |= {"ip"}
    if any(member.settings.network is not None for member in members):
        needed |= {"tc"}
    return sorted(tool for tool in needed if shutil.which(tool) is None)


def _file_mb(campaign: Campaign) -> dict[tuple[str, int], float]:
    """Space per workload and position: files are made once for each place in a group."""
    needed: dict[tuple[str, int], float] = {}
    for group in campaign.groups:
        for position, member in enumerate(group.members):
            needed[member.workload, position] = campaign.workloads[member.workload].disk_mb()
    return needed
