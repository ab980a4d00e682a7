"""What makes measurements lie on this host: what each setting distorts and how to fix it; reads only."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from profiler.backends.groups import GroupsMissingError, find_groups
from profiler.backends.linux import HostReader
from profiler.backends.source import LiveSource, Source
from profiler.parse import ParseError, parse_pressure, parse_schedstat

State = Literal["ok", "warning", "unknown"]
_CPU = "/sys/devices/system/cpu"
_STEAL_WINDOW_S = 1.0
_NOTICEABLE_STEAL_PERCENT = 0.5


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `distorts` and `fix` are empty when it is fine."""

    name: str
    state: State
    value: str
    distorts: str = ""
    fix: str = ""


def check_host(source: Source | None = None, sleep: Callable[[float], None] = time.sleep) -> list[Check]:
    """Look at everything; takes about a second, for the time stolen by a hypervisor has to be watched."""
    source = source or LiveSource()
    return [
        _groups(source), _schedstat(source), _pressure(source), _governor(source), _smt(source), _numa(source),
        _halt_polling(source), _clock(source), _steal(source, sleep),
    ]  # fmt: skip


def _read(source: Source, path: str) -> str | None:
    try:
        return source.read(path).strip()
    except OSError:
        return None


def _groups(source: Source) -> Check:
    try:
        version = find_groups(source).version
    except (GroupsMissingError, ParseError, OSError) as error:
        return Check("control groups", "warning", str(error), "no container can be read", "mount control groups")
    return Check("control groups", "ok", f"version {version}")


def _schedstat(source: Source) -> Check:
    distorts = "waiting, block and execution are absent"
    try:
        times = parse_schedstat(source.read("/proc/self/schedstat"))
    except (OSError, ValueError):
        return Check("schedstat", "warning", "missing", distorts, "use a kernel with CONFIG_SCHED_INFO")
    if times.run_ns == 0:
        return Check("schedstat", "warning", "all zero", distorts, "sysctl -w kernel.sched_schedstats=1")
    return Check("schedstat", "ok", "counting")


def _pressure(source: Source) -> Check:
    try:
        parse_pressure(source.read("/proc/pressure/cpu"))
    except (OSError, ValueError):
        return Check("pressure (PSI)", "warning", "off", "psi_cpu and psi_io are absent", "boot with psi=1")
    return Check("pressure (PSI)", "ok", "on")


def _governor(source: Source) -> Check:
    governor = _read(source, f"{_CPU}/cpu0/cpufreq/scaling_governor")
    if governor is None:
        return Check("frequency governor", "unknown", "not visible (usual in a VM)", "the host may change the clock")
    if governor == "performance":
        return Check("frequency governor", "ok", governor)
    distorts = "the clock follows the load, and so does every rate"
    return Check("frequency governor", "warning", governor, distorts, "cpupower frequency-set -g performance")


def _smt(source: Source) -> Check:
    active = _read(source, f"{_CPU}/smt/active")
    if active is None:
        return Check("SMT", "unknown", "not visible", "neighbouring CPUs may share a core", "")
    if active == "0":
        return Check("SMT", "ok", "no siblings visible")
    distorts = "two CPUs are one core: pinning to different CPUs may still share it"
    return Check("SMT", "warning", "siblings", distorts, "pin to whole cores (lscpu -e), or echo off > smt/control")


def _numa(source: Source) -> Check:
    balancing = _read(source, "/proc/sys/kernel/numa_balancing")
    if balancing in (None, "0"):
        return Check("NUMA balancing", "ok", "off" if balancing else "not in this kernel")
    distorts = "pages and tasks are moved during a measurement"
    return Check("NUMA balancing", "warning", "on", distorts, "sysctl -w kernel.numa_balancing=0")


def _halt_polling(source: Source) -> Check:
    poll = _read(source, "/sys/module/kvm/parameters/halt_poll_ns")
    if poll in (None, "0"):
        return Check("halt polling", "ok", "off" if poll else "no KVM here")
    distorts = "idle vCPUs burn host CPU, so cpu reads too high and block too low"
    return Check("halt polling", "warning", f"{poll} ns", distorts, "echo 0 > /sys/module/kvm/parameters/halt_poll_ns")


def _clock(source: Source) -> Check:
    clock = _read(source, "/sys/devices/system/clocksource/clocksource0/current_clocksource")
    if clock is None:
        return Check("clock source", "unknown", "not visible")
    if clock in ("tsc", "kvm-clock", "arch_sys_counter", "xen"):
        return Check("clock source", "ok", clock)
    return Check("clock source", "warning", clock, "reading the time is slow and coarse", "boot with clocksource=tsc")


def _steal(source: Source, sleep: Callable[[float], None]) -> Check:
    reader = HostReader(source)
    readings = []
    for pause_s in (_STEAL_WINDOW_S, 0.0):
        _, whole = reader.read({})
        readings.append((source.clock()[1], whole))
        sleep(pause_s)
    (begin, first), (end, second) = readings
    if first is None or second is None or end <= begin:
        return Check("steal", "unknown", "not visible", "a hypervisor below may take CPU time unseen", "")
    percent = (second.steal_ns - first.steal_ns) / 1e7 / (end - begin)
    if percent <= _NOTICEABLE_STEAL_PERCENT:
        return Check("steal", "ok", f"{percent:.1f} % of a CPU in {end - begin:.1f} s")
    distorts = "the hypervisor below gives these CPUs to others: all rates drop, unevenly"
    return Check("steal", "warning", f"{percent:.1f} % of a CPU", distorts, "use dedicated CPUs, or more repeats")
