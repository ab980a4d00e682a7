"""Checks before a campaign starts: root, programs, CPUs and disk space; errors say what to install."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from lab.campaign import Campaign, EmulatedXen
from lab.emulated_xen import SIZES_KB
from lab.errors import PreparationError
from lab.idle_filler import TOOL
from lab.processes import call
from lab.shaping import check_promises
from lab.volume import TOOLS as VOLUME_TOOLS
from lab.workloads import CpuWorkload, WebWorkload
from profiler.observed import IsolationSettings, format_cpus
from profiler.parse.xen import parse_xl_info

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
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    **dict.fromkeys(("losetup", "mount", "umount"), "mount"),
    "qemu-storage-daemon": "qemu-system-common",
    "nbdfuse": "libnbd-bin",
}
_EMULATED_TOOLS = frozenset({"qemu-system-x86_64", "mmdebstrap", "mke2fs", "setpriv", "busybox", "ldd", "nginx", "ip"})
_GUEST_TOOLS = {  # that instances need beside those of their workloads
    "container": frozenset[str](),
    "native": frozenset[str](),
    "qemu": frozenset({"qemu-system-x86_64", "busybox", "mkfs.ext4"}),
    "xen": frozenset({"xl", "busybox", "mkfs.ext4", "ldd"}),
}
_COPIES = {"container": 1, "native": 1, "qemu": 2, "xen": 2}  # a guest has a second copy of its files on its own disk
_SPARE_MB = 64  # tables, journal and logs beside the workloads' own files
_OF_A_FILE_SYSTEM = 0.1  # that ext4 needs beyond its files


def check_ready(campaign: Campaign, directory: Path) -> None:
    """Raise PreparationError for the first thing that is missing."""
    refuse_impossible(campaign)
    if os.geteuid() != 0:
        raise PreparationError("the lab makes control groups and network namespaces: run it as root (sudo)")
    missing = missing_tools(campaign)
    if missing:
        packages = " ".join(sorted({PACKAGES[tool] for tool in missing}))
        verb = "is" if len(missing) == 1 else "are"
        raise PreparationError(f"{', '.join(missing)} {verb} not installed: apt-get install {packages}")
    for group in campaign.groups:
        networks = [member.settings.network for member in group.members]
        check_promises(networks, campaign.link_mbit, campaign.line_mbit)
    needed = needed_mb(campaign)
    free = shutil.disk_usage(directory).free / 2**20
    if free < needed:
        raise PreparationError(
            f"{directory} has {free:.0f} MB free, the campaign needs {needed:.0f} MB: make room there"
        )


def needed_mb(campaign: Campaign) -> float:
    """Space that a campaign needs for its files, in MB."""
    files = _COPIES.get(campaign.instances, 1) * sum(_file_mb(campaign).values())
    return _SPARE_MB + files * (1 if campaign.volume is None else 1 + _OF_A_FILE_SYSTEM)


def refuse_impossible(campaign: Campaign) -> None:
    """Raise PreparationError for what no host can do, and for what this one visibly cannot, also without root."""
    if campaign.emulated is not None:
        _refuse_in_emulation(campaign, campaign.emulated)
    members = [member for group in campaign.groups for member in group.members]
    if campaign.instances == "xen":
        for member in members:
            if member.settings.disk_limit_mb_s is not None:
                raise PreparationError(f"{member.label} has a disk limit, which Xen does not have: leave it out")
    elif campaign.emulated is not None:
        raise PreparationError("`emulated` is a Xen machine: write `instances: xen`, or leave it out")
    known = campaign.instances != "xen" or campaign.emulated is not None or shutil.which("xl") is not None
    if known and (beyond := campaign.cpus - (here := _cpus(campaign))):
        raise PreparationError(
            f"campaign {campaign.name} uses CPU {format_cpus(beyond)}, this host has {format_cpus(here)}:"
            " change its pinnings"
        )


def _refuse_in_emulation(campaign: Campaign, emulated: EmulatedXen) -> None:
    """Raise PreparationError for what the emulated machine's two guests of one vCPU cannot do."""
    if campaign.on_off is None or campaign.on_off.tunes:
        raise PreparationError("the emulated machine needs on_off with dwell_ms and guard_ms")
    for form in campaign.pinnings:
        if form.clients is not None:
            raise PreparationError(
                f"pinning {form.name} places clients, which are outside the emulated machine: leave it out"
            )
        if form.driver is None or len(form.driver) > emulated.dom0_vcpus:
            raise PreparationError(
                f"pinning {form.name} must give Dom0 as `driver` between 1 and {emulated.dom0_vcpus} CPUs"
                " (dom0_vcpus of the emulated machine)"
            )
    for group in campaign.groups:
        if len(group.members) > 2:
            raise PreparationError("the emulated machine has two guests: leave out groups of more")
        for member in group.members:
            workload = campaign.workloads[member.workload]
            served = isinstance(workload, WebWorkload) and workload.size_kb in SIZES_KB
            if not served and not isinstance(workload, CpuWorkload):
                sizes = ", ".join(str(size) for size in SIZES_KB)
                raise PreparationError(
                    f"{member.label} cannot run in the emulated machine, which has cpu, and web with size_kb {sizes}"
                )
            if member.vcpus != 1 or member.load < 1 or member.settings != IsolationSettings():
                raise PreparationError(
                    f"{member.label} must have one vCPU, full load and no settings in the emulated machine"
                )


def _cpus(campaign: Campaign) -> frozenset[int]:
    """The CPUs that instances can be put on; Dom0 itself sees only its own."""
    if campaign.emulated is not None:
        return frozenset(range(campaign.emulated.pcpus))
    if campaign.instances == "xen":
        return frozenset(range(parse_xl_info(call(["xl", "info"]), "xl info").pcpus))
    return frozenset(os.sched_getaffinity(0))


def missing_tools(campaign: Campaign) -> list[str]:
    """Programs that this campaign needs and that are not on the PATH."""
    return sorted(tool for tool in needed_tools(campaign) if shutil.which(tool) is None)


def needed_tools(campaign: Campaign) -> frozenset[str]:
    """Programs that this campaign starts."""
    if campaign.emulated is not None:
        return _EMULATED_TOOLS
    members = [member for group in campaign.groups for member in group.members]
    needed = {tool for member in members for tool in campaign.workloads[member.workload].tools}
    needed |= {"ip"} | _GUEST_TOOLS.get(campaign.instances, frozenset())
    if campaign.line_mbit is not None or any(member.settings.network is not None for member in members):
        needed |= {"tc"}
    if campaign.volume is not None:
        needed |= VOLUME_TOOLS
    if campaign.on_off is not None and campaign.on_off.fill_idle:
        needed |= {TOOL}
    return frozenset(needed)


def _file_mb(campaign: Campaign) -> dict[tuple[str, int], float]:
    """Space in MB by workload and position: files are made once for each position in a group."""
    needed: dict[tuple[str, int], float] = {}
    for group in campaign.groups:
        for position, member in enumerate(group.members):
            needed[member.workload, position] = campaign.workloads[member.workload].disk_mb()
    return needed
