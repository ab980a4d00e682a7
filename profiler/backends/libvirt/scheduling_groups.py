"""Control groups of libvirt's guests: those of their vCPUs in the CPU scheduler, and those of whole guests."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping

from profiler.backends.linux import or_none
from profiler.backends.lxc.control_groups import find_mounts, group_number
from profiler.backends.source import HostSource
from profiler.parse.cgroup import parse_group_of_task


def find_scheduling_groups(source: HostSource, threads: Mapping[str, Iterable[int]]) -> dict[int, str]:
    """Instance by number of group, from the vCPU threads of each instance; groups that instances share are left out.

    A guest for which libvirt makes no groups has none here.
    """
    mounts = or_none(find_mounts, source) or {}
    owners: dict[int, set[str]] = {}
    for name, tids in threads.items():
        for tid in tids:
            where = f"/proc/{tid}/cgroup"
            text = or_none(source.read, where)
            path = None if text is None else parse_group_of_task(text, "cpu" if "cpu" in mounts else "")
            folder = _controlled(source, mounts, path) if path else None
            number = or_none(group_number, source, folder) if folder else None
            if number is not None:
                owners.setdefault(number, set()).add(name)
    return {number: next(iter(names)) for number, names in owners.items() if len(names) == 1}


def find_guest_group(source: HostSource, pid: int) -> str:
    """The folder of the group of version 2 that holds all of a guest's QEMU, whose threads are in groups below it.

    libvirt names it `machine-qemu...scope`, or without systemd `qemu-1-shop.libvirt-qemu` (virCgroup). Raises OSError
    where there is none: then its pressure cannot be separated from that of others.
    """
    mounts, where = find_mounts(source), f"/proc/{pid}/cgroup"
    path = parse_group_of_task(source.read(where), "")
    steps = path.strip("/").split("/") if path is not None and "unified" in mounts else []
    depth = next((at for at, step in enumerate(steps, start=1) if "qemu" in step), None)
    if depth is None:
        raise OSError(errno.ENODATA, "it has no control group of version 2 of its own")
    return "/".join((mounts["unified"], *steps[:depth]))


def _controlled(source: HostSource, mounts: Mapping[str, str], path: str) -> str | None:
    """The folder of the group that the scheduler uses: in version 2 the nearest one with the cpu controller."""
    if "cpu" in mounts:
        return f"{mounts['cpu']}/{path.strip('/')}" if path != "/" else None
    while path not in ("", "/") and "unified" in mounts:
        folder = f"{mounts['unified']}/{path.strip('/')}"
        if or_none(source.read, f"{folder}/cpu.weight") is not None:
            return folder
        path = path.rpartition("/")[0]
    return None
