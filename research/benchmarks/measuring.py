"""Where and when a benchmark ran, and a part of it in a process of its own."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def circumstances() -> dict[str, Any]:
    """Date and machine, as tables and JSON show them."""
    machine = f"{platform.release()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    return {"date": datetime.now(UTC).date().isoformat(), "machine": machine}


def apart(module: str, *arguments: str) -> Any:
    """What a module of this package prints as JSON, run by itself with one thread, so that its memory is its own."""
    argv = [sys.executable, "-m", f"research.benchmarks.{module}", *arguments]
    done = subprocess.run(argv, env=os.environ | ONE_THREAD, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)
