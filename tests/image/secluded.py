"""Keep a mount namespace for containers until this process is killed; it says `ready` once the namespace is as wanted.

    unshare --mount --propagation private python secluded.py

The machine's own storage of images and shared memory are hidden, so that nothing is left in them. So is the second
tree of control groups where there are two, which crun refuses. All of it is mounted by a process that is in the
namespace already: done from outside, a moment too early would change the machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

HIDDEN = ("/dev/shm", "/var/lib/containers")
SECOND_TREE = "/sys/fs/cgroup/unified"


def main() -> None:
    if Path("/proc/self/ns/mnt").readlink() == Path(f"/proc/{os.getppid()}/ns/mnt").readlink():
        raise SystemExit("this is the mount namespace of who started it")
    for folder in HIDDEN:
        if Path(folder).exists():
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    if Path(SECOND_TREE).is_mount():
        subprocess.run(["umount", SECOND_TREE], check=True)
    print("ready", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
