"""Checks of counters: of the kernel, of the processor, and of cotenant-run-queue; and of load balancers."""

from __future__ import annotations

import errno
import gzip
import os
import platform
import re
import shutil
import zlib
from pathlib import Path

from profiler.backends.hardware_counters import CYCLES, HARDWARE, INSTRUCTIONS, RESCTRL, PerfCounters
from profiler.backends.linux import PROGRAM
from profiler.backends.lxc.control_groups import GroupsMissingError, find_groups, find_mounts
from profiler.backends.stalls import DELAYS_OFF, DELAYS_SWITCH
from profiler.checks.base import CheckFinding, CheckRule, HostView, UnseenError
from profiler.parse.cgroup import parse_service_bytes
from profiler.parse.proc import parse_blkio_ticks, parse_counter, parse_pressure, parse_schedstat

# Checks of kernel counters (control groups, scheduler times, pressure, interrupts) and of load balancers.

_MOVERS = ("irqbalance", "numad")
_IRQ_TIME = re.compile(r"^CONFIG_IRQ_TIME_ACCOUNTING=y$", re.MULTILINE)
_CONFIG_BYTES = 1 << 22  # no kernel configuration comes near 4 MB; a bomb in its place would


def groups(view: HostView) -> CheckFinding:
    """Kernel: Documentation/admin-guide/cgroup-v2.rst; version 1 is read as well."""
    try:
        return CheckFinding(True, f"version {find_groups(view.source).version}")
    except GroupsMissingError as error:
        return CheckFinding(False, str(error))
    except OSError as error:
        raise UnseenError(f"mounts: {error.strerror}") from None


def group_disk(view: HostView) -> CheckFinding | None:
    """Kernel: cgroup-v2.rst, Writeback: only version 2 charges buffered writes to the group that made them.

    Since 6.10, block/blk-throttle.c counts `blkio.throttle.*` of version 1 only once a limit was set.
    """
    try:
        mounts = find_mounts(view.source)
    except OSError as error:
        raise UnseenError(f"mounts: {error.strerror}") from None
    if not {"cpu", "cpuacct"} <= set(mounts):
        return None  # version 2, or none at all
    if "blkio" not in mounts:
        return CheckFinding(False, "version 1 without its blkio controller")
    where = f"{mounts['blkio']}/blkio.throttle.io_service_bytes_recursive"
    counted = parse_service_bytes(view.read(where), where)
    return CheckFinding(False, "version 1, counting" if counted else "version 1, not counting")


def schedstat(view: HostView) -> CheckFinding:
    """Kernel: fs/proc/base.c, proc_pid_schedstat writes `0 0 0` where sched_info is off.

    A task that reads its own file has run, so its timeslices cannot be 0. kernel.sched_schedstats does not matter: it
    switches statistics that are not read here (kernel/sched/stats.h).
    """
    path = "/proc/self/schedstat"
    text = view.find(path)
    if text is None:
        view.read("/proc/self/status")  # without it, /proc itself is not visible
        return CheckFinding(False, "missing")
    if parse_schedstat(text, path).timeslices == 0:
        return CheckFinding(False, "all zero")
    return CheckFinding(True, "counting")


def pressure(view: HostView) -> CheckFinding:
    """Kernel: Documentation/accounting/psi.rst, psi=; version 1 groups have no pressure of their own."""
    path = "/proc/pressure/cpu"
    text = view.find(path)
    if text is None:
        view.read("/proc/stat")
        return CheckFinding(False, "off")
    parse_pressure(text, path)
    return CheckFinding(True, "on")


def irq_time(view: HostView) -> CheckFinding:
    """Kernel: kernel/sched/cputime.c, irqtime_account_irq: without it, softirqs run on the account of a task.

    With it kernels since 6.1 show /proc/pressure/irq (kernel/sched/psi.c), which newer ones refuse to read
    where it is built in but the clock of this machine is too slow for it.
    """
    try:
        if view.find("/proc/pressure/irq") is not None:
            return CheckFinding(True, "counted")
    except UnseenError as refused:
        if refused.number != errno.EOPNOTSUPP:
            raise
        return CheckFinding(False, "built in, but switched off", "boot without tsc=noirqtime, on a stable TSC")
    built_in = bool(_IRQ_TIME.search(_kernel_config(view)))
    return CheckFinding(built_in, "counted" if built_in else "not built into this kernel")


def _kernel_config(view: HostView) -> str:
    """The configuration of the running kernel: in /boot on Debian and its like, else inside the kernel itself."""
    release = platform.release()
    text = view.find(f"/boot/config-{release}") if re.fullmatch(r"[A-Za-z0-9._+~-]{1,128}", release) else None
    return text if text is not None else view.value("kernel configuration", _packed_config)


def _packed_config() -> str:
    try:
        with gzip.open(Path("/proc/config.gz")) as packed:
            return packed.read(_CONFIG_BYTES).decode("ascii", "replace")
    except (EOFError, zlib.error) as error:
        raise OSError(errno.EIO, f"/proc/config.gz: {error}") from None


def movers(view: HostView) -> CheckFinding:
    """irqbalance(1) moves interrupts between CPUs every 10 s; numad(8) moves tasks and memory between nodes."""
    running = set(view.commands.values())
    daemons = [name for name in _MOVERS if name in running]
    return CheckFinding(not daemons, ", ".join(daemons) or "none", f"systemctl stop {' '.join(daemons)}")


OF_KERNEL = (
    CheckRule(
        "control groups", groups, "no container can be read",
        "mount -t cgroup2 none /sys/fs/cgroup", "linux",
    ),
    CheckRule(
        "disk counts of groups", group_disk,
        "delayed writes are not attributed; groups without counts use the counts of their tasks (root)",
        "boot with systemd.unified_cgroup_hierarchy=1 (version 2)", "linux",
    ),
    CheckRule(
        "schedstat", schedstat, "waiting, block and execution are absent",
        "use a kernel with CONFIG_SCHED_INFO; before 5.14 boot without nodelayacct", "linux",
    ),
    CheckRule("pressure (PSI)", pressure, "psi_cpu and psi_io are absent", "boot with psi=1", "linux"),
    CheckRule(
        "interrupt time", irq_time,
        "network processing counts as cpu of the interrupted instance; that of the driver domain is only sampled",
        "use a kernel with CONFIG_IRQ_TIME_ACCOUNTING=y", "linux",
    ),
    CheckRule(
        "daemons that move work", movers, "interrupts and memory are moved during a measurement", "",
    ),
)  # fmt: skip


# Checks of counters beside the scheduler's, in kernel and processor: delays, cycles, caches, memory.
#
# Without them some metrics are absent, but nothing that is measured is wrong. So each check is `ok` and says what is
# absent.

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


OF_HARDWARE = (
    CheckRule("delays of tasks", delays, "disk_wait of containers is absent", "", "linux"),
    CheckRule("cycles (perf events)", cycles, "cpi is absent", "", "linux"),
    CheckRule("caches and memory (resctrl)", caches, "llc_mb and mem_bw_mb_s are absent", "", "linux"),
)


# Check whether this kernel lets cotenant-run-queue see which tasks wait for which.

_REFUSED = f"{PROGRAM} failed with 1: "


def run_queues(view: HostView) -> CheckFinding:
    """Load the BPF program for a moment. It is optional: without it, waiting comes from schedstat."""
    if not view.value(f"path of {PROGRAM}", lambda: shutil.which(PROGRAM) or ""):
        return CheckFinding(True, "not installed: waiting is known, what runs meanwhile is not")
    try:
        view.tool(PROGRAM, "--check")
    except UnseenError as unseen:
        refusal = str(unseen).partition(_REFUSED)[2]
        if not refusal or "not permitted" in refusal:
            raise UnseenError(refusal or str(unseen), "run as root", unseen.number) from None
        return CheckFinding(False, refusal)
    return CheckFinding(True, "watched by run --run-queue")


OF_RUN_QUEUE = (
    CheckRule(
        "run queues (BPF)", run_queues, "run_queue_p50_us, _p99_us and _p999_us are absent, and what runs meanwhile",
        "use a kernel with CONFIG_DEBUG_INFO_BTF=y and without lockdown", "linux",
    ),
)  # fmt: skip
