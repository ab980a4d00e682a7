"""The environment of a probe, and reasons to distrust its result on this machine; from kernel files only."""

from __future__ import annotations

import datetime
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from profiler.checks.base import NOTICEABLE_PERCENT
from profiler.checks.clocks import SLOW_SOURCES
from profiler.observed import STOLEN, format_cpus
from profiler.parse.proc import parse_stat
from profiler.parse.text import ParseError

_CPU = Path("/sys/devices/system/cpu")
_CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_HZ = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class CounterReading:
    """Counters before or after a probe; None = not shown here."""

    steal_ticks: int | None
    monotonic_s: float


def surroundings() -> dict[str, str]:
    """The machine and what moves its numbers, as text; only what could be read."""
    cpuinfo = _text(Path("/proc/cpuinfo"))
    model = re.search(r"^model name\s*:\s*(.{1,200})$", cpuinfo, re.MULTILINE)
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)  # other processors than x86 have no such line
    facts = {
        "host": platform.node(),
        "machine": model[1].strip() if model else platform.machine(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cpus": format_cpus(frozenset(os.sched_getaffinity(0))),
        "governor": _text(_CPU / "cpu0/cpufreq/scaling_governor"),
        "smt": _text(_CPU / "smt/active"),
        "hypervisor": ("yes" if "hypervisor" in flags[1].split() else "no") if flags else "",
        "clock_source": _text(_CLOCK),
        "load": " ".join(_text(Path("/proc/loadavg")).split()[:3]),
        "taken_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    return {name: value for name, value in facts.items() if value}


def read_counters(monotonic_s: float) -> CounterReading:
    """The counters that `doubts` compares."""
    try:
        ticks: int | None = parse_stat(_text(Path("/proc/stat")), "/proc/stat").ticks["steal"]
    except (ParseError, KeyError):
        ticks = None
    return CounterReading(ticks, monotonic_s)


def doubts(before: CounterReading, after: CounterReading, facts: dict[str, str]) -> tuple[str, ...]:
    """Reasons to distrust whatever was measured between two readings."""
    marks = []
    seconds = after.monotonic_s - before.monotonic_s
    if before.steal_ticks is not None and after.steal_ticks is not None and seconds > 0:
        percent = 100 * max(0, after.steal_ticks - before.steal_ticks) / _HZ / seconds
        if percent > NOTICEABLE_PERCENT:
            marks.append(f"the hypervisor below took {percent:.1f} {STOLEN}")
    if facts.get("clock_source") in SLOW_SOURCES:
        marks.append(f"reading the clock is slow here (clock source {facts['clock_source']})")
    return tuple(marks)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
