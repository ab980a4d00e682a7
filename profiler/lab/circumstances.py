"""What a measurement was taken under: machine, kernel, CPUs, caches, clock, disk; read once per campaign."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from profiler.observed import format_cpus, parse_cpus

_CPU = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class Machine:
    """The columns of the platforms table that this host shows; None = it does not show it."""

    model: str
    kernel: str
    pcpus: int
    threads_per_core: int
    cpu_mhz: float | None
    l2_mb: float | None
    l3_mb: float | None
    memory_mb: float


def read_machine() -> Machine:
    """This host; `l2_mb` is per core, `l3_mb` per cache, as the papers give them."""
    cpuinfo = _text(Path("/proc/cpuinfo"))
    model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    mhz = re.search(r"^cpu MHz\s*:\s*([\d.]+)$", cpuinfo, re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+) kB$", _text(Path("/proc/meminfo")), re.MULTILINE)
    return Machine(
        model[1].strip() if model else platform.machine(),
        f"{platform.system()} {platform.release()}",
        os.cpu_count() or 1,
        _threads_per_core(),
        float(mhz[1]) if mhz else None,
        _cache_mb(2),
        _cache_mb(3),
        round(int(memory[1]) / 1024, 1) if memory else 0.0,
    )


def circumstances() -> dict[str, str]:
    """What else may move the numbers, as text; only what could be read."""
    found = {
        "governor": _text(_CPU / "cpu0/cpufreq/scaling_governor"),
        "smt": _text(_CPU / "smt/active"),
        "numa_balancing": _text(Path("/proc/sys/kernel/numa_balancing")),
        "clocksource": _text(Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        "hypervisor": "yes" if " hypervisor " in f"{_text(Path('/proc/cpuinfo'))} " else "no",
        "affinity": format_cpus(frozenset(os.sched_getaffinity(0))),
        "load_before": _text(Path("/proc/loadavg")),
    }
    return {name: value for name, value in found.items() if value}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _threads_per_core() -> int:
    siblings = _text(_CPU / "cpu0/topology/thread_siblings_list")
    try:
        return len(parse_cpus(siblings))
    except ValueError:
        return 1


def _cache_mb(level: int) -> float | None:
    for index in sorted((_CPU / "cpu0/cache").glob("index*")):
        size = re.fullmatch(r"(\d+)K", _text(index / "size"))
        if _text(index / "level") == str(level) and size:
            return int(size[1]) / 1024
    return None
