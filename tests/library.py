"""The compiled contention of a source tree: built beside its source where it is not there or older than that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "models" / "physics" / "cpu_contention.c"


def build() -> None:
    """Build the library beside its source, unless a newer one is there."""
    found = SOURCE.parent.glob("_cpu_contention*.so")
    if not any(library.stat().st_mtime >= SOURCE.stat().st_mtime for library in found):
        command = [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q", "build_ext", "--inplace"]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
