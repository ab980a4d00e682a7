"""Checks of counters beside the scheduler's, in kernel and processor: delays, cycles, caches, memory.

Without them some metrics are absent, but nothing that is measured is wrong. So each check is `ok` and says what is
absent.
"""

from __future__ import annotations

import os
import re

from profiler.backends.perf_events import CYCLES, HARDWARE, INSTRUCTIONS, PerfCounters
from profiler.backends.resctrl import RESCTRL
from profiler.backends.stalls import DELAYS_OFF, DELAYS_SWITCH
from profiler.checks.base import CheckFinding, CheckRule, HostView, UnseenError
from profiler.parse.proc import parse_blkio_ticks, parse_counter

_MONITORED = {"llc_occupancy": "llc_mb", "mbm_total_bytes": "mem_bw_mb_s"}
_FLAGS = re.compile(r"^flags\s*:.*\b(?:cqm_occup_llc|cqm_mbm_total)\b", re.MULTILINE)


def delays(view: HostView) -> CheckFinding:
    """Kernel: Documentation/accounting/delay-accounting.rst; off by default since 5.14."""
    text = view.find(DELAYS_SWITCH)
    if text is None:
        counted = parse_blkio_ticks(view.read("/proc/1/stat"), "/proc/1/stat") > 0
    else:
        counted = parse_counter(text, DELAYS_SWITCH) == 1
    return CheckFinding(True, "disk_wait of containers" if counted else f"no disk_wait of containers: {DELAYS_OFF}")


def cycles(view: HostView) -> CheckFinding:
    """perf_event_open(2), for this process: whether a hypervisor hides the processor's counters."""
    why = view.value("perf events", _refusal)
    if why.startswith("permission denied"):
        raise UnseenError(why, "run as root")
    return CheckFinding(True, f"no cpi: {why}" if why else "cpi with run --hardware-counters")


def _refusal() -> str:
    """Why they cannot be counted; empty = they can."""
    try:
        PerfCounters(((HARDWARE, CYCLES), (HARDWARE, INSTRUCTIONS)), thread=os.getpid()).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def caches(view: HostView) -> CheckFinding:
    """Kernel: Documentation/filesystems/resctrl.rst. Counts the groups that libvirt or a container runtime made."""
    where = f"{RESCTRL}/info/L3_MON/mon_features"
    features = view.find(where)
    if features is None:
        counts = _FLAGS.search(view.read("/proc/cpuinfo"))
        why = "mount -t resctrl resctrl /sys/fs/resctrl" if counts else "the processor or its hypervisor shows no such"
        return CheckFinding(True, f"no llc_mb and mem_bw_mb_s: resctrl does not monitor here ({why})")
    metrics = [metric for event, metric in _MONITORED.items() if event in features.split()]
    groups = view.folders(f"{RESCTRL}/mon_groups") or []
    controls = [name for name in view.folders(RESCTRL) or () if name not in ("info", "mon_groups", "mon_data")]
    return CheckFinding(
        True,
        f"{' and '.join(metrics) or 'nothing'} of instances in groups of their own ({len(groups) + len(controls)})",
    )


RULES = (
    CheckRule("delays of tasks", delays, "disk_wait of containers is absent", "", "linux"),
    CheckRule("cycles (perf events)", cycles, "cpi is absent", "", "linux"),
    CheckRule("caches and memory (resctrl)", caches, "llc_mb and mem_bw_mb_s are absent", "", "linux"),
)
