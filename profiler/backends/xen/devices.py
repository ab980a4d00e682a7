"""Devices of domains in xenstore, and which of them this Dom0's kernel drives and counts. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from profiler.backends.xen.io import IoCounters
from profiler.parse.xen_dom0 import parse_number

_COUNTERS = {"vif": "net_bytes", "vbd": "disk_bytes"}


@dataclass(slots=True)
class Attached:
    """Devices of one domain: numbers of vifs and disks that the kernel should count, and why it does not count others.

    `elsewhere` has these reasons by counter: net_bytes, disk_bytes. CD drives are left out: guests hardly read them,
    and QEMU serves them uncounted.
    """

    vifs: set[int] = field(default_factory=set)
    disks: set[int] = field(default_factory=set)
    elsewhere: dict[str, str] = field(default_factory=dict)

    def missing(self, io: IoCounters) -> dict[str, str]:
        """Why counters do not hold all of this domain's devices, by counter."""
        reasons = {}
        for counter, kind, attached, counted in (
            ("net_bytes", "interface", self.vifs, io.vifs),
            ("disk_bytes", "disk", self.disks, io.disks),
        ):
            if attached - counted:
                reasons[counter] = f"{kind} {min(attached - counted)} is in xenstore and cannot be found in Dom0"
        return reasons | self.elsewhere


def attached_devices(nodes: Mapping[str, str]) -> dict[int, Attached]:
    """Devices by domain, from all of xenstore."""
    by_domain: dict[int, Attached] = {}
    for path, backend in nodes.items():
        part = path.split("/")  # /local/domain/3/device/vif/0/backend
        if len(part) != 8 or part[4] != "device" or part[5] not in _COUNTERS or part[7] != "backend":
            continue
        domain, number = parse_number(part[3]), parse_number(part[6])
        if domain is None or number is None or nodes.get(f"{path.removesuffix('backend')}device-type") == "cdrom":
            continue
        devices = by_domain.setdefault(domain, Attached())
        why = _why_not(part[5], number, backend)
        if why:
            devices.elsewhere[_COUNTERS[part[5]]] = why
        else:
            (devices.vifs if part[5] == "vif" else devices.disks).add(number)
    return by_domain


def _why_not(kind: str, number: int, backend: str) -> str:
    """Why this Dom0's kernel does not count a device; empty if it does."""
    part = backend.split("/")  # /local/domain/0/backend/vif/3/0
    if len(part) < 6 or part[4] != "backend":
        return f"{kind} {number} has no backend that is known"
    if part[3] != "0":
        return f"{kind} {number} is driven by domain {part[3][:5]}, whose counts only that domain can read"
    if part[5] != kind:
        return f"{kind} {number} is served by {part[5][:20]} (QEMU, not the kernel), which counts nothing in Dom0"
    return ""


def renamed_vifs(nodes: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Domain and number of vifs whose interface has a name of its own (`vifname=`), by that name."""
    by_name: dict[str, tuple[int, int]] = {}
    for path, name in nodes.items():
        part = path.split("/")  # /local/domain/0/backend/vif/3/0/vifname
        if len(part) == 9 and part[3:6] == ["0", "backend", "vif"] and part[8] == "vifname":
            domain, number = parse_number(part[6]), parse_number(part[7])
            if domain is not None and number is not None:
                by_name[name] = domain, number
    return by_name
