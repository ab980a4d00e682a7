"""Checks of CPUs and of memory: what the host has beside what it reports of them."""

from __future__ import annotations

import errno
import os
import re
import struct

from profiler.checks.base import NOTICEABLE_PERCENT, CheckFinding, CheckRule, HostView, UnseenError
from profiler.observed import format_cpus
from profiler.parse.cgroup import parse_cpuset, parse_flat
from profiler.parse.proc import parse_pressure, parse_stat
from profiler.parse.text import ParseError

# Checks of memory: NUMA balancing, page merging, huge pages, swap, overcommitment, stalls and ballooning.

_MM = "/sys/kernel/mm"
_NODES = "/sys/devices/system/node"
_MEMINFO = re.compile(r"^(\w+):\s+([0-9]{1,19}) kB$", re.MULTILINE)
_NOTICEABLE_SWAP = 0.01  # of the memory: idle pages of daemons go out on any host
WATCHED = ("/proc/vmstat", "/proc/pressure/memory")


def numa_balancing(view: HostView) -> CheckFinding:
    """Kernel: Documentation/admin-guide/sysctl/kernel.rst, numa_balancing (0 off, 1 normal, 2 between memory tiers)."""
    path = "/proc/sys/kernel/numa_balancing"
    if view.find(path) is None:
        view.read("/proc/sys/kernel/osrelease")  # without the folder, a missing file would mean nothing
        return CheckFinding(True, "not in this kernel")
    mode = view.count(path)
    if view.find(f"{_NODES}/online") == "0":
        return CheckFinding(True, "one node only")
    return CheckFinding(mode == 0, "on" if mode else "off")


def merging(view: HostView) -> CheckFinding:
    """Kernel: Documentation/admin-guide/mm/ksm.rst, `run` (1 = merging, 2 = stopped and unmerged)."""
    if not _in_kernel(view, "ksm"):
        return CheckFinding(True, "not in this kernel")
    running = view.count(f"{_MM}/ksm/run") == 1
    return CheckFinding(not running, f"on, {view.count(f'{_MM}/ksm/pages_sharing')} pages shared" if running else "off")


def huge_pages(view: HostView) -> CheckFinding:
    """Kernel: Documentation/admin-guide/mm/transhuge.rst, `defrag`: with always, a page fault compacts memory."""
    if not _in_kernel(view, "transparent_hugepage"):
        return CheckFinding(True, "not in this kernel")
    enabled, defrag = (_chosen(view, f"{_MM}/transparent_hugepage/{name}") for name in ("enabled", "defrag"))
    return CheckFinding(enabled == "never" or defrag != "always", f"enabled {enabled}, defrag {defrag}")


def _in_kernel(view: HostView, name: str) -> bool:
    folders = view.folders(_MM)
    if folders is None:
        raise UnseenError(f"{_MM} is not there")
    return name in folders


def _chosen(view: HostView, path: str) -> str:
    text = view.read(path)
    match = re.search(r"\[([a-z+]{1,32})\]", text)
    if not match:
        raise ParseError("choice", path, 1, f"nothing is chosen in {text[:60]!r}")
    return match[1]


def swap(view: HostView) -> CheckFinding:
    """Kernel: mm/vmstat.c, pswpin and pswpout in pages; Documentation/filesystems/proc.rst, SwapTotal and SwapFree."""
    memory = _meminfo(view, "MemTotal", "SwapTotal", "SwapFree")
    used_kb = max(0, memory["SwapTotal"] - memory["SwapFree"])
    moved = _moved(view, "pswpin", "pswpout")
    value = f"{used_kb // 1024} MB out, {moved / view.seconds:.0f} pages/s" if memory["SwapTotal"] else "none"
    return CheckFinding(moved == 0 and used_kb <= _NOTICEABLE_SWAP * memory["MemTotal"], value)


def promised(view: HostView) -> CheckFinding:
    """Kernel: Documentation/filesystems/proc.rst, Committed_AS: what processes, QEMU among them, were promised."""
    memory = _meminfo(view, "MemTotal", "SwapTotal", "Committed_AS")
    percent = 100 * memory["Committed_AS"] / max(1, memory["MemTotal"] + memory["SwapTotal"])
    return CheckFinding(percent <= 100, f"{percent:.0f} % of memory and swap")


def stalls(view: HostView) -> CheckFinding:
    """Kernel: Documentation/accounting/psi.rst, memory: time in which some task waited for memory, µs."""
    earlier_us, now_us = view.change("/proc/pressure/memory", parse_pressure)
    percent = max(0, now_us - earlier_us) / 1e4 / view.seconds
    return CheckFinding(percent <= NOTICEABLE_PERCENT, f"{percent:.1f} % of the time")


def balloon(view: HostView) -> CheckFinding | None:
    """Kernel: include/linux/vm_event_item.h, BALLOON_*: pages that this VM gave away and got back."""
    if view.virtual is False:
        return None
    counts = parse_flat(view.read("/proc/vmstat"), "/proc/vmstat")
    if "balloon_inflate" not in counts or "balloon_deflate" not in counts:
        return None  # no balloon in this kernel
    moved = _moved(view, "balloon_inflate", "balloon_deflate")
    away = max(0, counts["balloon_inflate"] - counts["balloon_deflate"])
    return CheckFinding(moved == 0 and away == 0, f"{away} pages given away, {moved / view.seconds:.0f} pages/s")


def _moved(view: HostView, *names: str) -> int:
    earlier, now = view.change("/proc/vmstat", parse_flat)
    try:
        return sum(max(0, now[name] - earlier[name]) for name in names)
    except KeyError as missing:
        raise ParseError("vmstat", "/proc/vmstat", 1, f"no line {missing.args[0]}") from None


def _meminfo(view: HostView, *names: str) -> dict[str, int]:
    """Numbers of /proc/meminfo in kB."""
    numbers = {name: int(number) for name, number in _MEMINFO.findall(view.read("/proc/meminfo"))}
    for name in names:
        if name not in numbers:
            raise ParseError("meminfo", "/proc/meminfo", 1, f"no line {name}")
    return numbers


RULES = (
    CheckRule(
        "NUMA balancing", numa_balancing, "pages and tasks are moved during a measurement",
        "sysctl -w kernel.numa_balancing=0", "linux",
    ),
    CheckRule(
        "memory merging (KSM)", merging, "ksmd's CPU time belongs to no instance; writes to merged pages stall",
        f"systemctl stop ksmtuned; echo 2 > {_MM}/ksm/run", "linux",
    ),
    CheckRule(
        "huge pages", huge_pages, "page faults wait for memory compaction: latency peaks that no neighbour caused",
        f"echo madvise > {_MM}/transparent_hugepage/defrag", "linux",
    ),
    CheckRule(
        "swap", swap, "instances wait for pages from swap, and this traffic counts as disk and block",
        "add memory or move instances away; then: swapoff -a && swapon -a",
    ),
    CheckRule(
        "memory promised", promised, "when all of it is used, instances are swapped out or killed during a measurement",
        "move instances away, or lower their memory limits", "linux",
    ),
    CheckRule(
        "memory stalls", stalls, "instances wait for memory, which counts as block",
        "add memory or move instances away",
    ),
    CheckRule(
        "balloon", balloon, "the outer hypervisor takes memory of this VM: caches shrink and grow during a measurement",
        "give this VM fixed memory (no ballooning) on the outer host", "linux",
    ),
)  # fmt: skip


# Checks of clocks: the cost of reading the clock, and whether time stamps of hosts are comparable.

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


CLOCKS = (
    CheckRule(
        "clock source", clock_source, "reading the time is slow or imprecise for all instances on this host",
        "find out why the TSC is not used: dmesg | grep -i -e tsc -e clocksource",
    ),
    CheckRule(
        "wall clock", wall_clock, "time stamps jump: windows overlap or have gaps, and hosts cannot be compared",
        "timedatectl set-ntp true (or run chronyd)",
    ),
)  # fmt: skip


_CPU = "/sys/devices/system/cpu"
_WORD = re.compile(r"[a-z_]{1,32}\Z")
_TICK_PERCENT = 1.0  # one tick of /proc/stat is 10 ms: 1 % of a CPU in a second
_SLOW_WAKE_US = 10  # halting takes 1-2 µs (C1), up to 10 µs (C1E); deeper states 30 µs and more (intel_idle.c)


def governor(view: HostView) -> CheckFinding:
    """Kernel: Documentation/admin-guide/pm/cpufreq.rst, `scaling_governor`; every CPU may have its own."""
    by_governor: dict[str, list[int]] = {}
    for cpu in view.numbered(_CPU, "cpu"):
        path = f"{_CPU}/cpu{cpu}/cpufreq/scaling_governor"
        name = view.find(path)
        if name is None:
            continue
        if not _WORD.match(name):
            raise ParseError("governor", path, 1, f"{name[:60]!r} is no governor")
        by_governor.setdefault(name, []).append(cpu)
    if not by_governor:
        raise UnseenError("this host shows no governor", "look at the outer host" if view.virtual else "")
    listed = ", ".join(f"{name} on CPUs {format_cpus(tuple(cpus))}" for name, cpus in sorted(by_governor.items()))
    return CheckFinding(set(by_governor) == {"performance"}, listed)


def boost(view: HostView) -> CheckFinding:
    """Kernel: pm/intel_pstate.rst, `no_turbo` (1 = off); pm/cpufreq.rst, `boost` (1 = on)."""
    for path, off in ((f"{_CPU}/intel_pstate/no_turbo", "1"), (f"{_CPU}/cpufreq/boost", "0")):
        setting = view.find(path)
        if setting is None:
            continue
        if setting not in ("0", "1"):
            raise ParseError("boost", path, 1, f"{setting[:60]!r} is neither 0 nor 1")
        return CheckFinding(setting == off, "off" if setting == off else "on", f"echo {off} > {path}")
    raise UnseenError("this host shows no switch for it")


def siblings(view: HostView) -> CheckFinding:
    """Kernel: Documentation/ABI/testing/sysfs-devices-system-cpu, `smt/active`."""
    active = view.read(f"{_CPU}/smt/active")
    if active not in ("0", "1"):
        raise ParseError("smt", f"{_CPU}/smt/active", 1, f"{active[:60]!r} is neither 0 nor 1")
    if active == "0" and view.virtual:
        raise UnseenError("none shown, but the outer hypervisor decides what is shown")
    return CheckFinding(active == "0", "off" if active == "0" else "two or more CPUs share a core")


def idle_states(view: HostView) -> CheckFinding:
    """Kernel: Documentation/admin-guide/pm/cpuidle.rst, `latency` (exit latency in µs) and `disable`."""
    slow: dict[str, int] = {}
    seen = False
    for cpu in view.numbered(_CPU, "cpu"):
        for state in view.numbered(f"{_CPU}/cpu{cpu}/cpuidle", "state"):
            base = f"{_CPU}/cpu{cpu}/cpuidle/state{state}"
            seen = True
            latency_us = view.count(f"{base}/latency")
            if view.count(f"{base}/disable") == 0 and latency_us > _SLOW_WAKE_US:
                slow[view.read(f"{base}/name")] = latency_us
    if not seen and (view.virtual is not False or view.find(f"{_CPU}/cpuidle/current_driver") != "none"):
        raise UnseenError("this host shows no idle states")
    listed = ", ".join(f"{name} wakes in {latency} us" for name, latency in slow.items())
    return CheckFinding(not slow, listed or f"none above {_SLOW_WAKE_US} us")


def offline(view: HostView) -> CheckFinding:
    """Kernel: Documentation/admin-guide/cputopology.rst, `present` and `online`."""
    present = set(parse_cpuset(view.read(f"{_CPU}/present"), f"{_CPU}/present"))
    online = set(parse_cpuset(view.read(f"{_CPU}/online"), f"{_CPU}/online"))
    if not online:
        raise ParseError("online", f"{_CPU}/online", 1, "no CPU is online")
    missing = format_cpus(frozenset(present - online))
    if missing and view.find(f"{_CPU}/smt/control") in ("off", "forceoff"):
        return CheckFinding(True, f"CPUs {missing}, as siblings are switched off")
    return CheckFinding(not missing, f"CPUs {missing}" if missing else "none", f"chcpu -e {missing}")


def isolated(view: HostView) -> CheckFinding:
    """Kernel: Documentation/admin-guide/kernel-parameters.txt, isolcpus= and nohz_full=."""
    settings = []
    for name in ("isolated", "nohz_full"):
        path = f"{_CPU}/{name}"
        text = view.find(path)
        if text and text != "(null)":  # what kernels print for an empty nohz_full
            settings.append(f"{name}: {format_cpus(parse_cpuset(text, path))}")
    if not settings:
        view.read(f"{_CPU}/online")  # without the folder, a missing file would mean nothing
    return CheckFinding(not settings, ", ".join(settings) or "none")


def steal(view: HostView) -> CheckFinding:
    """Kernel: Documentation/filesystems/proc.rst, /proc/stat: steal, the involuntary wait of virtual CPUs."""
    earlier, now = view.change("/proc/stat", parse_stat)
    ticks = max(0, now.ticks["steal"] - earlier.ticks["steal"])  # some hypervisors let it run backwards by a tick
    if view.virtual and now.ticks["steal"] == 0:
        raise UnseenError("zero since boot, as under hypervisors that do not report it")
    percent = ticks * _TICK_PERCENT / view.seconds
    return CheckFinding(percent <= NOTICEABLE_PERCENT, f"{percent:.1f} % of a CPU in {view.seconds:.1f} s")


def below(view: HostView) -> CheckFinding:
    """Kernel: arch/x86/include/asm/cpufeatures.h, X86_FEATURE_HYPERVISOR: set by every hypervisor for its guests."""
    if view.virtual is None:
        raise UnseenError("this processor does not report it")
    return CheckFinding(not view.virtual, "this host is itself a virtual machine" if view.virtual else "none")


def guest_polling(view: HostView) -> CheckFinding | None:
    """Kernel: Documentation/virt/guest-halt-polling.rst: in a VM, idle CPUs spin before they halt."""
    if view.find(f"{_CPU}/cpuidle/current_driver") != "haltpoll":
        return None
    poll_ns = view.count("/sys/module/haltpoll/parameters/guest_halt_poll_ns")
    return CheckFinding(poll_ns == 0, f"{poll_ns} ns" if poll_ns else "off")


CPUS = (
    CheckRule(
        "frequency governor", governor, "the CPU clock depends on the load, so all rates do too",
        "cpupower frequency-set -g performance", "linux",
    ),
    CheckRule(
        "turbo", boost, "instances alone get a faster clock than co-located ones: interference is overestimated",
        "", "linux",
    ),
    CheckRule(
        "SMT", siblings, "two CPUs are one core: instances pinned to different CPUs may share a core",
        "pin to whole cores (lscpu -e), or: echo off > /sys/devices/system/cpu/smt/control", "linux",
    ),
    CheckRule(
        "idle states", idle_states, "an instance alone wakes up late: its latency and block are too high",
        f"cpupower idle-set -D {_SLOW_WAKE_US + 1}", "linux",
    ),
    CheckRule("offline CPUs", offline, "the host may have fewer CPUs than its inventory says", "", "linux"),
    CheckRule(
        "isolated CPUs", isolated, "unpinned instances never run on these CPUs: they wait while these are idle",
        "pin instances there, or boot without isolcpus= and nohz_full=", "linux",
    ),
    CheckRule(
        "steal", steal, "the outer hypervisor gives these CPUs to other guests: all rates drop, unevenly",
        "use dedicated CPUs, or more repeats", "linux",
    ),
    CheckRule(
        "hypervisor below", below, "it decides which CPUs and clock are shown; its other guests are invisible",
        "measure on a physical machine, or on dedicated CPUs", "linux",
    ),
    CheckRule(
        "guest halt polling", guest_polling, "idle CPUs of this VM use CPU time of the outer host",
        "echo 0 > /sys/module/haltpoll/parameters/guest_halt_poll_ns", "linux",
    ),
)  # fmt: skip
