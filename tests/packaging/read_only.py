"""Run a program as `nobody`, every file system read-only but a fresh /tmp and one folder; needs a mount namespace.

    unshare --mount --propagation private python read_only.py PACKAGES -- PYTHON-ARGUMENT ...

Shows what a container with `--read-only --tmpfs /tmp` and one volume shows: /mnt/packages (bound), /mnt/state (tmpfs).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

WRITABLE = ("/proc", "/sys", "/dev", "/tmp", "/mnt/state")
UNPRIVILEGED = "10001"


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def close_everything() -> None:
    """Make every mount read-only, and see that it is."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        where = re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), line.split()[4])
        if not where.startswith(WRITABLE) and Path(where).exists():  # one that is hidden by another cannot be reached
            mount("-o", "remount,bind,ro", where)
    for folder in ("/", "/var/lib", "/etc", "/mnt", "/mnt/packages", "/mnt/python"):
        try:
            (Path(folder) / "cotenant-was-here").touch()
        except OSError:
            continue
        sys.exit(f"{folder} can be written to")


def main() -> None:
    packages, arguments = sys.argv[1], sys.argv[3:]  # between them: --
    own, site = Path(sys.base_prefix), next(path for path in sys.path if path.endswith("site-packages"))
    mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", "/mnt")
    for name, source in {"packages": packages, "python": str(own), "site": site}.items():
        (Path("/mnt") / name).mkdir()
        mount("--bind", source, f"/mnt/{name}")
    Path("/mnt/state").mkdir()
    mount("-t", "tmpfs", "-o", f"mode=0750,uid={UNPRIVILEGED},gid={UNPRIVILEGED}", "tmpfs", "/mnt/state")
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp")
    close_everything()
    os.chdir("/mnt/state")
    user = ["setpriv", f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups", "--no-new-privs"]
    nothing = ["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
    python = f"/mnt/python/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": "/mnt/packages:/mnt/site",
        "LD_LIBRARY_PATH": "/mnt/python/lib",  # where libpython was is closed to `nobody`
        **{name: value for name, value in os.environ.items() if name.startswith(("COTENANT_", "MPL", "PYTHONDONT"))},
    }
    os.execvpe("setpriv", [*user, *nothing, "--", python, *arguments], environment)


if __name__ == "__main__":
    main()
