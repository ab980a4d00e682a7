"""Where and when a benchmark ran, CPU time of processes, and a part of a benchmark in a process of its own."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def circumstances() -> dict[str, Any]:
    """Date and machine, as tables and JSON show them."""
    machine = f"{platform.release()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    return {"date": datetime.now(UTC).date().isoformat(), "machine": machine}


def processes_of(pid: int) -> list[int]:
    """A process and all that it started, as far as they still run."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except FileNotFoundError:
        return []
    return [pid, *(one for child in text.split() for one in processes_of(int(child)))]


def cpu_s(pid: int) -> float:
    """CPU time of a process and its threads so far, user and system (proc(5): utime and stime of stat)."""
    return sum(_cpu_ticks(pid)[:2]) * _TICK_S


def ended_children_cpu_s(pid: int) -> float:
    """CPU time of what a process started and what ended (cutime and cstime)."""
    return sum(_cpu_ticks(pid)[2:]) * _TICK_S


def _cpu_ticks(pid: int) -> list[int]:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return [int(field) for field in fields[11:15]]


def apart(module: str, *arguments: str) -> Any:
    """What a module of this package prints as JSON, run by itself with one thread, so that its memory is its own."""
    argv = [sys.executable, "-m", f"research.benchmarks.{module}", *arguments]
    done = subprocess.run(argv, env=os.environ | ONE_THREAD, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)
