"""Checks before a campaign starts: root, programs, CPUs and disk space; errors say what to install."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from lab.campaign import Campaign
from lab.errors import PreparationError
from lab.instances.containers import FILLER
from lab.processes import call
from lab.shaping import check_promises
from profiler.observed import format_cpus
from profiler.parse.xl_host import parse_xl_info

PACKAGES = {  # Debian and Ubuntu
    "nginx": "nginx",
    "wrk": "wrk",
    "fio": "fio",
    "sysbench": "sysbench",
    "iperf3": "iperf3",
    "redis-server": "redis-server",
    "redis-cli": "redis-tools",
    "redis-benchmark": "redis-tools",
    "stdbuf": "coreutils",
    "gcc": "gcc",
    "pgbench": "postgresql",
    "setpriv": "util-linux",
    "/usr/games/openarena-server": "openarena-server",
    "quakestat": "qstat",
    "ip": "iproute2",
    "tc": "iproute2",
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "mkfs.ext4": "e2fsprogs",
    "ldd": "libc-bin",
    "xl": "xen-utils",
}
_GUEST_TOOLS = {  # what whole VMs need beside their workloads
    "container": frozenset[str](),
    "native": frozenset[str](),
    "qemu": frozenset({"qemu-system-x86_64", "busybox", "mkfs.ext4"}),
    "xen": frozenset({"xl", "busybox", "mkfs.ext4", "ldd"}),
}
_COPIES = {"container": 1, "native": 1, "qemu": 2, "xen": 2}  # a guest has its files on a disk of its own
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
    here = _cpus(campaign)
    beyond = campaign.cpus - here
    if beyond:
        raise PreparationError(
            f"campaign {campaign.name} uses CPU {format_cpus(beyond)}, this host has {format_cpus(here)}:"
            " change its pinnings"
        )
    for group in campaign.groups:
        networks = [member.settings.network for member in group.members]
        check_promises(networks, campaign.link_mbit, campaign.line_mbit)
    needed = _SPARE_MB + _COPIES.get(campaign.instances, 1) * sum(_file_mb(campaign).values())
    free = shutil.disk_usage(directory).free / 2**20
    if free < needed:
        raise PreparationError(
            f"{directory} has {free:.0f} MB free, the campaign needs {needed:.0f} MB: make room there"
        )


def _cpus(campaign: Campaign) -> frozenset[int]:
    """The CPUs that instances can be put on; Dom0 itself sees only its own."""
    if campaign.instances == "xen":
        return frozenset(range(parse_xl_info(call(["xl", "info"]), "xl info").pcpus))
    return frozenset(os.sched_getaffinity(0))


def missing_tools(campaign: Campaign) -> list[str]:
    """Programs that this campaign needs and that are not on the PATH."""
    return sorted(tool for tool in needed_tools(campaign) if shutil.which(tool) is None)


def needed_tools(campaign: Campaign) -> frozenset[str]:
    """Programs that this campaign starts."""
    members = [member for group in campaign.groups for member in group.members]
    needed = {tool for member in members for tool in campaign.workloads[member.workload].tools(member.load)}
    needed |= {"ip"} | _GUEST_TOOLS.get(campaign.instances, frozenset())
    if campaign.line_mbit is not None or any(member.settings.network is not None for member in members):
        needed |= {"tc"}
    if campaign.on_off is not None and campaign.on_off.fill_idle:
        needed |= {FILLER[0]}
    return frozenset(needed)


def _file_mb(campaign: Campaign) -> dict[tuple[str, int], float]:
    """Space per workload and position: files are made once for each place in a group."""
    needed: dict[tuple[str, int], float] = {}
    for group in campaign.groups:
        for position, member in enumerate(group.members):
            needed[member.workload, position] = campaign.workloads[member.workload].disk_mb()
    return needed
