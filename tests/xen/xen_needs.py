"""What the lab needs of this machine, installed where it can be, and the reason where it cannot."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

_PACKAGES = {
    "qemu-system-x86_64": ("qemu-system-x86", "seabios", "ipxe-qemu"),
    "mmdebstrap": ("mmdebstrap",),
    "mke2fs": ("e2fsprogs",),
    "ip": ("iproute2",),
    "setpriv": ("util-linux",),
    "ab": ("apache2-utils",),
    "curl": ("curl",),
}
_APT_S = 900.0
_PROBE_S = 30.0


def missing() -> str:
    """Why the lab cannot run here, after installing what can be installed; "" when it can."""
    if platform.machine() != "x86_64":
        return "needs an x86-64 machine: its packages' Xen is emulated with this machine's architecture"
    if os.geteuid() != 0:
        return "needs root: it builds a root file system and makes a network namespace"
    lacking = [tool for tool in _PACKAGES if shutil.which(tool) is None]
    if lacking and (problem := _install(sorted({name for tool in lacking for name in _PACKAGES[tool]}))):
        return problem
    lacking = [tool for tool in _PACKAGES if shutil.which(tool) is None]
    if lacking:
        return f"needs {', '.join(lacking)}, which apt-get did not bring"
    if not Path("/dev/net/tun").exists():
        return "needs /dev/net/tun for the emulated network card"
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, timeout=_PROBE_S, check=False).returncode != 0:
        return "needs leave to make network namespaces"
    return ""


def _install(packages: list[str]) -> str:
    if shutil.which("apt-get") is None:
        return f"needs {', '.join(packages)} and has no apt-get to install them"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    for step in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        try:
            done = subprocess.run(
                ["apt-get", "-qq", *step], capture_output=True, text=True, timeout=_APT_S, env=environment, check=False
            )
        except subprocess.TimeoutExpired:
            return f"needs {', '.join(packages)}; apt-get {step[0]} took longer than {_APT_S:.0f} s"
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            return f"needs {', '.join(packages)}; apt-get {step[0]} failed: {last}"
    return ""
