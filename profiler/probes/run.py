"""Runs a probe with its far end, records the environment and marks, and writes the result."""

from __future__ import annotations

import argparse
import contextlib
import csv
import datetime
import gzip
import io
import os
import platform
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiler.checks.base import NOTICEABLE_PERCENT
from profiler.checks.cpus import SLOW_SOURCES
from profiler.observed import STOLEN, ProbeResult, format_cpus
from profiler.parse.proc import parse_stat
from profiler.parse.text import ParseError
from profiler.pictures import save
from profiler.probes import PROBES, load
from profiler.probes.base import Probe, ProbeError, ProbeRun, Progress, RawSeries
from profiler.probes.sessions import far_end

# The environment of a probe, and reasons to distrust its result on this machine; from kernel files only.

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


STOPPED = "stopped before its end"


def run_probe(name: str, options: argparse.Namespace, progress: Progress) -> tuple[ProbeResult, ProbeRun]:
    """Run a probe with its options (`to` names the far end, None = one of our own); ProbeError when it cannot.

    A stop on the way gives what was measured until then, marked.
    """
    probe = load(name)
    circumstances = surroundings()
    with contextlib.ExitStack() as ends:
        if PROBES[name].needs_peer:
            options.peer = ends.enter_context(far_end(options.to))
            circumstances["peer"] = str(options.peer)
            if options.peer.own:
                progress.say("no --to is given: both ends are on this machine, and loopback is the network between")
        before = read_counters(time.monotonic())
        run = probe.run(options, progress)
        after = read_counters(time.monotonic())
    marks = ((STOPPED,) if progress.stopped else ()) + run.marks + doubts(before, after, circumstances)
    return ProbeResult(name, run.values, run.main, {**circumstances, **run.circumstances}, marks), run


def write_series(series: RawSeries, path: Path) -> None:
    """Write the raw series as CSV, compressed where the name ends in .gz; ProbeError when that fails.

    Unknown cells are empty. The same series gives the same bytes.
    """
    try:
        with contextlib.ExitStack() as files:
            raw: Any = files.enter_context(path.open("wb"))
            if path.suffix == ".gz":
                # no name and no time inside; level 6 takes a third of 9's time for a percent more bytes
                raw = files.enter_context(gzip.GzipFile("", "wb", 6, raw, 0))
            text = files.enter_context(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(series.columns)
            writer.writerows(series.rows())
    except OSError as error:
        raise ProbeError(f"{path} cannot be written: {error.strerror}") from None


def draw(probe: Probe, run: ProbeRun, path: Path) -> None:
    """Draw a run into a file; PictureError when that fails."""
    save(probe.draw(run), path)
