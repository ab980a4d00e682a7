"""A disk of its own for the files of a campaign, as fast as the campaign says: what a volume in a network is like.

    image ── qemu-storage-daemon, which limits reads and writes together ── nbdfuse ── loop device ── ext4

A limit of a control group would be each instance's own: this one is shared by all. The daemon could export a file by
itself, without nbdfuse, but that of QEMU 7.2 mixes up the data of requests that wait at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from lab.campaign import Volume
from lab.control_groups import GroupMaker
from lab.errors import PreparationError, RunError
from lab.processes import LabProcess, call, wait_until
from lab.resource_registry import ResourceRegistry, volume_parts
from profiler.observed import IsolationSettings

TOOLS = frozenset({"qemu-storage-daemon", "nbdfuse", "mke2fs", "mount", "umount", "losetup"})
_READY_WITHIN_S = 10.0
_OWN_NETWORK = "/proc/self/ns/net"
_IMAGE, _SOCKET, _DISK = "volume.raw", "volume.socket", "disk"  # relative to the daemons: a socket's path is short


@contextmanager
def mounted_volume(
    registry: ResourceRegistry, maker: GroupMaker, scratch: Path, volume: Volume, size_mb: float
) -> Iterator[Path]:
    """A folder on such a disk of `size_mb`, below `scratch`; its daemons work in the group `daemon_group`.

    PreparationError where this host cannot mount it.
    """
    exported, folder = volume_parts(scratch)
    with (scratch / _IMAGE).open("wb") as file:
        file.truncate(round(size_mb) << 20)
    call(["mke2fs", "-q", "-t", "ext4", "-m", "0", str(scratch / _IMAGE)])
    registry.made("volume", str(scratch), lasting=True)
    exported.mkdir()
    folder.mkdir()
    registry.made("group", daemon_group(registry), lasting=True)
    groups = maker.make(daemon_group(registry), tuple(sorted(os.sched_getaffinity(0))), IsolationSettings(), None)
    with ExitStack() as running:
        for command, made in (
            (_storage_daemon(volume), scratch / _SOCKET),
            (["nbdfuse", f"{exported}/{_DISK}", f"nbd+unix:///volume?socket={_SOCKET}"], exported / _DISK),
        ):
            daemon = LabProcess(command, groups=groups, network=_OWN_NETWORK, directory=scratch)
            running.callback(daemon.stop)
            _wait_for(daemon, made)
        running.callback(partial(registry.remove, "volume", str(scratch)))  # first, while the daemons answer
        try:
            call(["mount", "-o", "loop", f"{exported}/{_DISK}", str(folder)])  # umount removes the loop device, too
            # Past the page cache: else the limit would hold for one read of a block, and not for the next.
            call(["losetup", "--direct-io=on", f"/dev/loop{os.minor(folder.stat().st_dev)}"])
        except RunError as error:
            raise PreparationError(f"a volume cannot be mounted here: {error}") from None
        yield folder


def daemon_group(registry: ResourceRegistry) -> str:
    """Name of the control group that the daemons of a volume work in."""
    return registry.group("volume")


def _storage_daemon(volume: Volume) -> list[str]:
    limits = f"limits.bps-total={round(volume.mb_s * 1e6)}"
    if volume.requests_s is not None:
        limits += f",limits.iops-total={round(volume.requests_s)}"
    return [
        "qemu-storage-daemon", "--object", f"throttle-group,id=limits,{limits}",
        "--blockdev", f"driver=file,node-name=image,filename={_IMAGE},cache.direct=on,aio=threads",
        "--blockdev", "driver=throttle,node-name=limited,throttle-group=limits,file=image",
        "--nbd-server", f"addr.type=unix,addr.path={_SOCKET}",
        "--export", "type=nbd,id=export,node-name=limited,name=volume,writable=on",
    ]  # fmt: skip


def _wait_for(daemon: LabProcess, made: Path) -> None:
    if not wait_until(lambda: daemon.returncode is not None or made.exists(), _READY_WITHIN_S):
        raise PreparationError(f"{daemon.command[0]} did not make {made} within {_READY_WITHIN_S:.0f} s")
    if daemon.returncode is not None:
        raise PreparationError(f"{daemon.command[0]} cannot provide a volume here: {daemon.errors()}")
