"""Holds the lab's own namespaces: started by daemon.py under `unshare --mount --net`, it lives as long as its stdin.

Libvirt keeps its state at fixed paths. In a mount namespace of its own the lab has those paths for itself, beside any
other libvirtd, and bridge and taps in the network namespace are gone with it. When stdin ends, however the lab ended,
every process in the mount namespace is killed: that is everything the lab started, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

STATE = ("/etc/libvirt", "/run/libvirt", "/var/lib/libvirt", "/var/cache/libvirt", "/var/log/libvirt")
_GROUPS = Path("/sys/fs/cgroup")
GATEWAY = "10.78.0.1"
# Debian's libvirtd starts only where this account exists; its package libvirt-daemon-system, which needs systemd or
# sysvinit, makes it. Guests of the lab run as root (qemu.conf).
_ACCOUNT = {
    "/etc/passwd": "libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin\n",
    "/etc/group": "libvirt-qemu:x:64055:\n",
}
_BRIDGE = (
    "link set lo up", "link add bridge type bridge", "link set bridge addrgenmode none up",
    f"addr add {GATEWAY}/24 dev bridge",
)  # fmt: skip


def folder(directory: Path, path: str) -> Path:
    """Where the lab keeps what libvirt sees at `path`."""
    return directory / path.strip("/").replace("/", "-")


def main(directory: Path, name: str = "") -> None:
    """Set the namespaces up, say so, wait for the end of stdin, end everything."""
    if name:
        socket.sethostname(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the lab, which then ends us by closing stdin
    for path in STATE:
        # The host keeps them, empty: removing one would also unmount it in another lab's namespace.
        Path(path).mkdir(parents=True, exist_ok=True)
        _call("mount", "--bind", str(folder(directory, path)), path)
    for path, line in _ACCOUNT.items():
        _add_account(Path(path), line, folder(directory, path))
    _own_sysfs(folder(directory, "groups"))
    for line in _BRIDGE:
        _call("ip", *line.split())
    print("ready", flush=True)
    sys.stdin.buffer.read()
    groups = {group for pid in _members() for group in _groups(pid)}
    _kill_all()
    for group in groups:
        _remove_group(group)
    shutil.rmtree(directory, ignore_errors=True)


def _call(*argv: str) -> None:
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


def _add_account(path: Path, line: str, copy: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if line.split(":", maxsplit=1)[0] + ":" not in text:
        copy.write_text(text + line, encoding="utf-8")
        _call("mount", "--bind", str(copy), str(path))


def _own_sysfs(parked: Path) -> None:
    """Show libvirtd this network namespace's interfaces in /sys, and still all control groups."""
    parked.mkdir()
    _call("mount", "--rbind", "/sys/fs/cgroup", str(parked))
    _call("mount", "-t", "sysfs", "sysfs", "/sys")
    _call("mount", "--rbind", str(parked), "/sys/fs/cgroup")
    _call("umount", "--lazy", str(parked))
    parked.rmdir()


def _members() -> list[int]:
    """Every other process in this mount namespace."""
    own = _namespace(os.getpid())
    others = [int(path.name) for path in Path("/proc").glob("[0-9]*") if path.name != str(os.getpid())]
    return [pid for pid in others if _namespace(pid) == own]


def _kill_all() -> None:
    for _ in range(50):  # a fork may slip through one round, and dying takes a moment
        members = _members()
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not members:
            return
        time.sleep(0.02)


def _groups(pid: int) -> set[str]:
    """The folders that libvirt made below /machine for this process's guest, as it does without systemd."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    parts = [line.split(":", 2)[2].split("/") for line in lines]
    return {names[2] for names in parts if len(names) > 2 and names[1] == "machine"}


def _remove_group(name: str) -> None:
    """Remove a guest's control groups from all trees; a guest that libvirtd destroyed itself has none left."""
    for _ in range(100):  # they are busy for a moment after the last process was killed
        tops = [top / name for top in (*_GROUPS.glob("*/machine"), _GROUPS / "machine") if (top / name).is_dir()]
        for group in [
            path for top in tops for path in (*sorted(filter(Path.is_dir, top.rglob("*")), reverse=True), top)
        ]:
            with contextlib.suppress(OSError):
                group.rmdir()
        if not tops:
            return
        time.sleep(0.05)


def _namespace(pid: int) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/ns/mnt").readlink())
    except OSError:
        return None


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
