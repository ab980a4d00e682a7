"""Versions of the programs of a campaign, from the package manager or from the programs themselves."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable

from lab.errors import ToolError
from lab.preflight import PACKAGES
from lab.processes import call

_TIMEOUT_S = 3.0
_VERSION = re.compile(r"\d+\.\d[\w.+~-]*")


def versions(tools: Iterable[str]) -> dict[str, str]:
    """Versions by tool; tools that do not report one are left out."""
    names = sorted(set(tools))
    packaged = _packaged({PACKAGES[tool] for tool in names if tool in PACKAGES})
    known = {tool: packaged.get(PACKAGES.get(tool, "")) or _own_version(tool) for tool in names}
    return {tool: version for tool, version in known.items() if version}


def _packaged(packages: set[str]) -> dict[str, str]:
    """The versions of these packages that are installed; none on a system without Debian's package manager."""
    if not packages or shutil.which("dpkg-query") is None:
        return {}
    try:
        shown = call(["dpkg-query", "--show", "--showformat", "${Package} ${Version}\\n"])
    except ToolError:
        return {}
    pairs = (line.partition(" ") for line in shown.splitlines())
    return {name: version for name, _, version in pairs if name in packages and version}


def _own_version(tool: str) -> str | None:
    """The version that the program prints itself; some print it on standard error."""
    try:
        done = subprocess.run(
            [tool, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_TIMEOUT_S, check=False, start_new_session=True,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(f"{done.stdout} {done.stderr}")
    return match[0] if match else None
