"""Checks of clocks: the cost of reading the clock, and whether time stamps of hosts are comparable."""

from __future__ import annotations

import errno
import os
import struct

from profiler.checks.base import CheckFinding, CheckRule, HostView, UnseenError
from profiler.parse.text import ParseError

_SOURCES = "/sys/devices/system/clocksource/clocksource0"
# Read in user space without a system call (vDSO): arch/*/include/asm/vdso/clocksource.h
_FAST = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "xen", "timebase", "tod")
SLOW_SOURCES = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit")
_UNSYNCHRONISED = 0x40  # STA_UNSYNC, adjtimex(2)
_STATUS_OFFSET = 40  # of `status` in struct timex where long has 64 bits
_TIMEX_BYTES = 512  # struct timex has 208
_STEP_S = 0.05  # slewing moves the clock by at most 0.0005 s in a second (500 ppm, adjtimex(2)); more is a step


def clock_source(view: HostView) -> CheckFinding:
    """Kernel: Documentation/timers/timekeeping.rst; slow sources are read through I/O ports or are coarse."""
    current = view.read(f"{_SOURCES}/current_clocksource")
    if current in SLOW_SOURCES:
        others = view.read(f"{_SOURCES}/available_clocksource").split()
        better = next((name for name in _FAST if name in others), None)
        fix = f"echo {better} > {_SOURCES}/current_clocksource" if better else ""
        return CheckFinding(False, current, fix)
    if current not in _FAST:
        raise ParseError("clock source", "", 1, f"{current[:60]!r} is not known")
    return CheckFinding(True, current)


def wall_clock(view: HostView) -> CheckFinding:
    """adjtimex(2): the kernel knows whether something keeps its clock synchronised; a step is seen while watching."""
    if abs(view.wall_step_s) > _STEP_S:
        return CheckFinding(False, f"set by {view.wall_step_s:+.2f} s while watched")
    status = view.value("adjtimex status", _clock_status)
    if not isinstance(status, int):
        raise UnseenError("the kernel's answer is not understood")
    synchronised = not status & _UNSYNCHRONISED
    return CheckFinding(synchronised, "synchronised" if synchronised else "not synchronised")


def _clock_status() -> int:
    """STA_* bits. With modes = 0, adjtimex only reads and needs no privilege."""
    try:
        import ctypes
    except ImportError:  # small Pythons come without it
        raise OSError(errno.ENOSYS, "this Python has no ctypes") from None
    if struct.calcsize("l") != 8:
        raise OSError(errno.ENOSYS, "struct timex has another shape on 32 bits")
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
    if ctypes.CDLL(None, use_errno=True).adjtimex(buffer) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(struct.unpack_from("i", buffer, _STATUS_OFFSET)[0])


RULES = (
    CheckRule(
        "clock source", clock_source, "reading the time is slow or imprecise for all instances on this host",
        "find out why the TSC is not used: dmesg | grep -i -e tsc -e clocksource",
    ),
    CheckRule(
        "wall clock", wall_clock, "time stamps jump: windows overlap or have gaps, and hosts cannot be compared",
        "timedatectl set-ntp true (or run chronyd)",
    ),
)  # fmt: skip
