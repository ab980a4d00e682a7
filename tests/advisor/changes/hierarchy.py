"""Control groups of version 1 or 2 as plain files of a folder, and changes of one group."""

from __future__ import annotations

from pathlib import Path

from advisor.changes.control_groups import ControlGroups
from advisor.domain import Change, Command, Host
from advisor.render import commands
from profiler.observed import Instance, IsolationSettings, NetworkSettings, Pinning

HOST = Host("h1", "lxc", pcpus=4, memory_mb=4096, labels={"cgroup_version": "1", "kernel": "6.1.0"})
HOST_V2 = Host("h1", "lxc", pcpus=4, memory_mb=4096, labels={"cgroup_version": "2", "kernel": "6.1.0"})
FILES = {
    1: {
        "cpu": {"cpu.shares": "1024\n", "cpu.cfs_period_us": "100000\n", "cpu.cfs_quota_us": "-1\n"},
        "cpuset": {"cpuset.cpus": "0-3\n"},
        "blkio": {"blkio.throttle.read_bps_device": "", "blkio.throttle.write_bps_device": ""},
    },
    2: {"unified": {"cpu.weight": "100\n", "cpu.max": "max 100000\n", "cpuset.cpus": "\n", "io.max": ""}},
}

__all__ = ["FILES", "HOST", "HOST_V2", "NetworkSettings", "change_of", "group", "hierarchy", "rendered"]


def hierarchy(folder: Path, version: int, path: str = "lxc.payload.vm1") -> ControlGroups:
    """A hierarchy with one group, of which the process is on host h1."""
    mounts = {}
    for controller, files in FILES[version].items():
        mounts[controller] = str(folder / controller)
        group = folder / controller / path
        group.mkdir(parents=True)
        for name, text in files.items():
            (group / name).write_text(text)
    return ControlGroups(frozenset({"h1"}), mounts)


def group(folder: Path, version: int) -> dict[str, bytes]:
    """Every file of every group, byte by byte."""
    del version
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def rendered(
    wanted: IsolationSettings, *, host: Host = HOST, current: IsolationSettings | None = None, **labels: str
) -> tuple[Command, ...]:
    """Commands of the instance vm1 with 2 vCPUs."""
    instance = Instance("vm1", vcpus=2, host="h1", labels=labels)
    return commands(host, instance, current or IsolationSettings(), wanted)


def change_of(groups: ControlGroups, command: Command, *, host: Host = HOST) -> Change:
    meaning = groups.meaning(host, command)
    return Change(0, host.id, "vm1", meaning.kind, "control-groups", meaning.target, meaning.before, meaning.after)


PINNED = IsolationSettings(pinning=Pinning(((1,), (2,))))
