"""The environment of a measurement: machine, kernel, CPUs, caches and clock, before and after a campaign."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.journal import Journal
from lab.qdiscs import compare
from profiler.observed import format_cpus, parse_cpus
from profiler.parse.proc import parse_stat
from profiler.parse.text import ParseError

_CPU = Path("/sys/devices/system/cpu")
MADE = "instances"  # kind of note: how instances were made, beyond what the campaign says
_MOVING = ("load", "steal_s")  # recorded with their values before and after


@dataclass(frozen=True, slots=True)
class HostMachine:
    """The columns of the platforms table that this host shows; None = unknown here."""

    model: str
    kernel: str
    pcpus: int
    threads_per_core: int
    cpu_mhz: float | None
    l2_mb: float | None
    l3_mb: float | None
    memory_mb: float


def read_machine() -> HostMachine:
    """This host; `l2_mb` is per core, `l3_mb` per cache, as the papers give them."""
    cpuinfo = _text(Path("/proc/cpuinfo"))
    model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    mhz = re.search(r"^cpu MHz\s*:\s*([\d.]+)$", cpuinfo, re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+) kB$", _text(Path("/proc/meminfo")), re.MULTILINE)
    return HostMachine(
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
    """Other conditions that may influence results, as text; only those that could be read."""
    texts = {
        "governor": _text(_CPU / "cpu0/cpufreq/scaling_governor"),
        "turbo": _turbo(),
        "smt": _text(_CPU / "smt/active"),
        "numa_balancing": _text(Path("/proc/sys/kernel/numa_balancing")),
        "clocksource": _text(Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        "hypervisor": "yes" if " hypervisor " in f"{_text(Path('/proc/cpuinfo'))} " else "no",
        "affinity": format_cpus(frozenset(os.sched_getaffinity(0))),
        "kernel": platform.release(),
        "load": _text(Path("/proc/loadavg")),
        "steal_s": _steal_s(),
    }
    return {name: text for name, text in texts.items() if text}


def remembered(journal: Journal) -> dict[str, Any]:
    """Circumstances of a whole campaign as its journal has them: before its first run, and what changed until its last.

    Host qdiscs are compared from the first to the last; `times_begun` is how often the campaign was begun or resumed.
    """
    befores, afters = journal.facts("before"), journal.facts("after")
    if not befores:
        return {}
    first, last = dict(befores[0]), dict((afters or befores)[-1])
    ends = {"before": first, **({"after": last} if afters else {})}  # it may not have come to an end yet
    qdiscs = compare(first.pop("host_qdiscs", None), last.pop("host_qdiscs", None) if afters else None)
    whole: dict[str, Any] = {name: value for name, value in first.items() if name not in ("at", *_MOVING)}
    changed = {name: value for name, value in last.items() if name in whole and whole[name] != value}
    for name in _MOVING:
        whole |= {f"{name}_{when}": fact[name] for when, fact in ends.items() if name in fact}
    for made in journal.facts(MADE):
        whole |= made
    whole |= {"times_begun": len(befores), "host_qdiscs_after": qdiscs}
    if changed:
        whole["changed_during_the_campaign"] = changed
    if journal.measured_again:
        whole["runs_measured_again"] = f"{journal.measured_again}, because they were disturbed"
    return whole


def _turbo() -> str:
    """Whether CPUs may clock above their nominal rate; Intel's own driver has a file with the opposite."""
    no_turbo, boost = _text(_CPU / "intel_pstate/no_turbo"), _text(_CPU / "cpufreq/boost")
    return {"0": "on", "1": "off"}.get(no_turbo, "") or {"1": "on", "0": "off"}.get(boost, "")


def _steal_s() -> str:
    """CPU time that a hypervisor below took from all CPUs since the boot, in seconds; empty where it is not shown."""
    try:
        ticks = parse_stat(_text(Path("/proc/stat")), "/proc/stat").ticks["steal"]
    except (ParseError, KeyError):
        return ""
    return f"{ticks / os.sysconf('SC_CLK_TCK'):.2f}"


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
