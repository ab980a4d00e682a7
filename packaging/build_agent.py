"""Builds the agent as one file that needs only Python 3.11 on a host: the profiler and what it imports."""

from __future__ import annotations

import argparse
import importlib.metadata
import stat
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = Path("build") / "cotenant-profiler.pyz"
# Pure Python, taken from where this script runs. Of what rich requires, tables import nothing: Pygments and
# markdown-it-py colour source text, and are left out.
DEPENDENCIES = ("prometheus_client", "rich")
LEFT_OUT = ("profiler/look/",)
_SHEBANG = b"#!/usr/bin/env python3\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that ZIP knows: the same sources give the same bytes
_MAIN = """\
import sys

if sys.version_info < (3, 11):
    sys.exit("cotenant-profiler: it needs Python 3.11 or newer, this is " + sys.version.split()[0])

from profiler.cli import main

sys.exit(main())
"""


def contents() -> dict[str, bytes]:
    """Every file of the archive, by its name in there."""
    files = {"__main__.py": _MAIN.encode()}
    for path in sorted((ROOT / "profiler").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(LEFT_OUT):
            files[name] = path.read_bytes()
    version = tomllib.loads((ROOT / "packaging" / "profiler" / "pyproject.toml").read_text())["project"]["version"]
    files[f"cotenant_profiler-{version}.dist-info/METADATA"] = (
        f"Metadata-Version: 2.1\nName: cotenant-profiler\nVersion: {version}\n".encode()
    )
    files["LICENSE"] = (ROOT / "LICENSE").read_bytes()
    for dependency in DEPENDENCIES:
        files |= dict(_installed(dependency))
    return files


def _installed(name: str) -> Iterator[tuple[str, bytes]]:
    """The Python files and the licences of an installed distribution."""
    for file in importlib.metadata.distribution(name).files or ():
        path = file.as_posix()
        if (path.startswith(f"{name}/") and path.endswith(".py")) or "licenses/" in path or path.endswith("/METADATA"):
            yield path, Path(str(file.locate())).read_bytes()


def build(target: Path) -> int:
    """Write the archive; returns its size in bytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        file.write(_SHEBANG)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, data in sorted(contents().items()):
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (stat.S_IFREG | 0o644) << 16
                archive.writestr(entry, data)
    target.chmod(0o755)
    return target.stat().st_size


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TARGET, metavar="FILE", help=f"where to write it ({TARGET})")
    options = parser.parse_args()
    size = build(options.out)
    sys.stdout.write(f"{options.out}: {size / 1024:.0f} KiB, runs with Python 3.11 or newer\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
