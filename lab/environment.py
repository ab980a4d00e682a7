"""The environment of a measurement: machine, kernel, CPUs, caches and clock, before and after a campaign."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path
from typing import Any

from lab.campaign import Campaign
from lab.journal import Journal
from lab.qdiscs import compare
from profiler.backends.host_description import HostDescription, describe_host
from profiler.backends.sources import LiveSource
from profiler.observed import format_cpus
from profiler.parse.proc import parse_stat
from profiler.parse.text import ParseError

_CPU = Path("/sys/devices/system/cpu")
MADE = "instances"  # kind of note: how instances were made, beyond what the campaign says
_MOVING = ("load", "steal_s")  # recorded with their values before and after


def read_machine(campaign: Campaign) -> HostDescription:
    """This host, as agents announce it; a Dom0 sees only its own CPUs, so Xen itself is asked."""
    own_xen = campaign.instances == "xen" and campaign.emulated is None
    with contextlib.closing(LiveSource()) as source:
        return describe_host("xen" if own_xen else "lxc", source)


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
